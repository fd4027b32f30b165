"""An object store in this process: an example of a driver, and what tests lose answers and break bodies with."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from threading import RLock

from millpond.blob.store import BlobCapabilities, BlobEntry, BlobStore, Body, BytesBody, Unfinished
from millpond.errors import StateNotFoundError

Hook = Callable[[str, str], None]
"""Told the verb and the key; what it raises is what the call raises."""


def _nothing(_verb: str, _key: str) -> None:
    return


class MemoryBlobStore(BlobStore):
    """
    Keeps objects in a dict. Any thread may call it.

    Attributes:
        objects: Key to content and the time when it was made; a test may look, and may do harm.
        before: Called before a verb has its effect.
        after: Called after it: what it raises is a lost answer.
        unlisted: Keys that listings do not show yet.
        pending: Uploads that were begun and not finished.
        clock: Gives milliseconds since 1970.
    """

    def __init__(self, clock: Callable[[], int] | None = None, capabilities: BlobCapabilities | None = None) -> None:
        self.capabilities = capabilities or BlobCapabilities()
        self.clock = clock or (lambda: time.time_ns() // 1_000_000)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.unlisted: set[str] = set()
        self.pending: list[Unfinished] = []
        self.before: Hook = _nothing
        self.after: Hook = _nothing
        self._lock = RLock()

    def put(self, key: str, body: Body, *, if_absent: bool = False) -> bool:
        """Make the object *key*."""
        self.before("put", key)
        if type(body) is BytesBody:  # what is in memory needs no stream
            data = body.data
        else:
            with body.open() as stream:
                data = stream.read()
        with self._lock:
            if if_absent and key in self.objects:
                return False
            self.objects[key] = (data, self.now())
        self.after("put", key)
        return True

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Give a part of the object *key*."""
        self.before("get", key)
        found = self.objects.get(key)
        if found is None:
            raise StateNotFoundError(f"there is no object {self.where(key)}")
        self.after("get", key)
        return found[0][start : None if length is None else start + length]

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobEntry]:
        """Give the objects below *prefix*, as they are now."""
        self.before("list", prefix)
        with self._lock:
            found = sorted(self.objects.items())
        for key, (data, millis) in found:
            if key.startswith(prefix) and key > after and key not in self.unlisted:
                yield BlobEntry(key, len(data), millis)

    def delete(self, keys: Collection[str]) -> None:
        """Remove objects."""
        self.before("delete", " ".join(keys))
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)
        self.after("delete", " ".join(keys))

    def now(self) -> int:
        """Give the clock's time."""
        return self.clock()

    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        """Give the uploads that were begun."""
        return [upload for upload in self.pending if upload.key.startswith(prefix)]

    def abort(self, upload: Unfinished) -> None:
        """Forget an upload."""
        self.pending = [other for other in self.pending if other != upload]

    def where(self, key: str = "") -> str:
        """Name this store and *key*."""
        return f"memory:{key}"
