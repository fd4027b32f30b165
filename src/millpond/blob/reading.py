"""Reading parts of objects: bounded, resumed after a broken body, and never taken for more than they are."""

from __future__ import annotations

from millpond.blob.store import BlobStore, BrokenBodyError
from millpond.errors import StateCorruptError, StateNotFoundError

ATTEMPTS = 4
"""How often the rest of one broken body is asked for."""


def read_part(store: BlobStore, key: str, start: int, length: int) -> bytes:
    """
    Give exactly *length* bytes of the object *key*, from *start* on.

    A body that broke off, or came short, is asked for again from where it ended.

    Raises:
        StateNotFoundError: There is no such object.
        StateCorruptError: It is shorter than that.
        TransientError: What the store said, or the body broke off again and again.
    """
    data = b""
    for attempt in range(ATTEMPTS):
        try:
            more = store.get(key, start + len(data), length - len(data))
        except BrokenBodyError:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        except StateNotFoundError as error:
            raise StateNotFoundError(f"the object {store.where(key)} is gone: {error}") from error
        data = data + more if data else more
        if len(data) == length:
            return data
        if not more or len(data) > length:
            break
    raise StateCorruptError(
        f"the object {store.where(key)} is cut: {length} bytes from {start} on were asked for, and {len(data)} came"
    )
