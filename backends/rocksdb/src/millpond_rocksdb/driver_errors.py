"""
From the driver's exceptions to Millpond's, in one place.

rocksdict raises plain ``Exception`` with the text of RocksDB's status, which begins with the name of the status code
(``Status::ToString`` in RocksDB's ``util/status.cc``) and, for I/O errors, that of the subcode. Only these names are
looked at, never the free text after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import MillpondError, StateCorruptError, StoreClosedError, TransientError

_ERRORS: tuple[tuple[str, type[MillpondError]], ...] = (
    ("Corruption: ", StateCorruptError),
    ("IO error: No such file or directory", StateCorruptError),
    ("IO error: ", TransientError),
    ("Result incomplete: ", TransientError),
    ("Shutdown in progress", StoreClosedError),
    ("Operation timed out: ", TransientError),
    ("Operation aborted: ", TransientError),
    ("Resource busy: ", TransientError),
    ("Operation failed. Try again.: ", TransientError),
)

_CLOSED = "DbClosedError"


def translate(error: BaseException, doing: str) -> MillpondError | None:
    """
    Give Millpond's error for one of the driver's; None if it is not one of the driver's.

    Args:
        error: What was raised.
        doing: What was being done, where; the beginning of the message.
    """
    if type(error).__name__ == _CLOSED:
        return StoreClosedError(f"{doing}: the database is closed")
    if type(error) is not Exception:
        return None
    text = str(error)
    for beginning, kind in _ERRORS:
        if text.startswith(beginning):
            return kind(f"{doing}: RocksDB says: {text}")
    return None


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Run a block in which the driver's errors become Millpond's."""
    try:
        yield
    except Exception as error:  # all others pass unchanged
        translation = translate(error, doing)
        if translation is None:
            raise
        raise translation from error
