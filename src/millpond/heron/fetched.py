"""A stored state that was verified to its last byte, on its way to whoever asked; and how it is read and verified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from millpond.blob import BlobStore
from millpond.errors import StateCorruptError
from millpond.heron.folder import FolderStore
from millpond.heron.names import StateKey
from millpond.heron.scratch import Scratch
from millpond.heron.sealed import FIRST_READ, Seal, Unsealing
from millpond.local import explained

READ_SIZE = 4 << 20
"""What is asked of a store at once, and so what a fetch holds in memory."""

_FILE_READ = 1 << 20


class Fetched:
    """
    A verified state: in memory, or in an open file that nobody changes.

    Attributes:
        seal: Its size, None where there is no state, and its digest.
    """

    def __init__(self, seal: Seal, data: bytes = b"", file: BinaryIO | None = None, start: int = 0) -> None:
        """Keep what is given."""
        self.seal = seal
        self._data, self._file, self._start = data, file, start

    @property
    def data(self) -> bytes | None:
        """The whole state, if it is in memory."""
        return self._data if self._file is None else None

    def chunks(self, size: int) -> Iterator[bytes]:
        """Give the state in pieces of *size* bytes; blocks where it is in a file."""
        if self._file is None:
            yield from (self._data[at : at + size] for at in range(0, len(self._data), size))
            return
        left = self.seal.size or 0
        self._file.seek(self._start)
        while left:
            piece = self._file.read(min(size, left))
            if not piece:
                raise StateCorruptError("a verified state became shorter while it was sent")
            left -= len(piece)
            yield piece

    def close(self) -> None:
        """Let go of the file; idempotent."""
        if self._file is not None:
            self._file.close()


def fetch(blobs: BlobStore, path: str, key: StateKey, scratch: Scratch, *, unsealed_too: bool) -> Fetched:
    """
    Read the object *path* and verify all of it; a large one ends in a file.

    Raises:
        StateNotFoundError: There is no such object.
        StateCorruptError: It is not what was written for *key*.
    """
    reading = Unsealing(key, blobs.where(path), unsealed_too=unsealed_too)
    first = blobs.get(path, 0, FIRST_READ)
    if len(first) < FIRST_READ:
        data = b"".join(reading.feed(first))
        return Fetched(reading.end(), data)
    if isinstance(blobs, FolderStore):
        return _verify_in_place(blobs.open(path), reading)
    return _spool(blobs, path, first, reading, scratch.new_path())


def _verify_in_place(file: BinaryIO, reading: Unsealing) -> Fetched:
    try:
        with explained("read", Path(str(file.name))):
            while piece := file.read(_FILE_READ):
                for _ in reading.feed(piece):
                    pass
        return Fetched(reading.end(), file=file, start=reading.start)
    except BaseException:
        file.close()
        raise


def _spool(blobs: BlobStore, path: str, first: bytes, reading: Unsealing, spool: Path) -> Fetched:
    with explained("write", spool):
        file = spool.open("x+b")
        spool.unlink()  # what is open stays readable, and nothing is left of it after a kill
    try:
        at, piece = 0, first
        while piece:
            with explained("write", spool):
                for part in reading.feed(piece):
                    file.write(part)
            at += len(piece)
            piece = blobs.get(path, at, READ_SIZE)
        with explained("write", spool):
            file.flush()
        return Fetched(reading.end(), file=file)
    except BaseException:
        file.close()
        raise
