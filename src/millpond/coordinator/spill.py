"""Held records on disk: a file of frames, each with its length and a checksum, read once and in order."""

from __future__ import annotations

import os
import secrets
import struct
from collections import deque
from pathlib import Path
from typing import Any
from zlib import crc32

from millpond.errors import StateCorruptError
from millpond.local import explained

_FRAME = struct.Struct(">II")
_BUFFER = 1 << 20


class SpillFile:
    """
    A queue of byte strings on disk, with marks between them in memory; it lives no longer than its process. One thread.

    The file has no name once it is open, so nothing is left behind however the process ends.
    """

    def __init__(self, directory: Path) -> None:
        """
        Make an empty one in *directory*.

        Raises:
            ConfigError, TransientError: The folder cannot be written to; with what to do.
        """
        path = directory / f".spill-{secrets.token_hex(12)}"
        with explained("spill held records to", path):
            self._file = path.open("w+b", buffering=_BUFFER)
            path.unlink()
        self._where = path
        self._read_at = 0
        self._write_at = 0
        self._marks: deque[tuple[int, Any]] = deque()

    def __bool__(self) -> bool:
        return self._read_at < self._write_at or bool(self._marks)

    def put(self, record: bytes) -> None:
        """Append *record*; TransientError if the disk is full or fails, and then the member has to be restored."""
        with explained("spill held records to", self._where):
            self._file.seek(self._write_at)
            self._file.write(_FRAME.pack(len(record), crc32(record)))
            self._file.write(record)
        self._write_at += _FRAME.size + len(record)

    def mark(self, item: Any) -> None:
        """Append *item*, which stays in memory."""
        self._marks.append((self._write_at, item))

    def take(self) -> Any:
        """
        Give the first record or mark.

        Raises:
            StateCorruptError: The disk gave back something else than was written.
        """
        if self._marks and self._marks[0][0] == self._read_at:
            return self._marks.popleft()[1]
        with explained("read held records from", self._where):
            self._file.seek(self._read_at)
            head = self._file.read(_FRAME.size)
            size, checksum = _FRAME.unpack(head) if len(head) == _FRAME.size else (0, -1)
            if checksum < 0 or self._read_at + _FRAME.size + size > self._write_at:
                raise StateCorruptError(f"held records in {self._where} are damaged: restore the job")
            record = self._file.read(size)
        if len(record) != size or crc32(record) != checksum:
            raise StateCorruptError(f"held records in {self._where} are damaged: restore the job")
        self._read_at += _FRAME.size + size
        return record

    def close(self) -> None:
        """Give the disk's space back; idempotent."""
        if not self._file.closed:
            try:
                os.ftruncate(self._file.fileno(), 0)
            finally:
                self._file.close()
