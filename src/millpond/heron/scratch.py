"""
States on their way: in memory while they are small, else in files of a folder that ends with its process.

Each process has a folder of its own, with a lock that it holds for life. Whoever starts later removes the folders whose
lock nobody holds: a process that was killed leaves nothing for good.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from blake3 import blake3
from filelock import FileLock, Timeout

from millpond.heron.names import StateKey
from millpond.heron.sealed import Seal, digest_in, lead, tail
from millpond.local import explained, make_folders

_PREFIX = "spool-"
_LOCK = "LOCK"


class Scratch:
    """A folder of this process below *root*; any thread may ask for files in it."""

    def __init__(self, root: Path) -> None:
        """
        Make the folder, and remove those that dead processes left.

        Raises:
            ConfigError: The folder cannot be made.
            TransientError: The disk fails, or is full.
        """
        make_folders(root)
        _remove_abandoned(root)
        self.folder = root / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
        with explained("make the folder", self.folder):
            self.folder.mkdir(mode=0o700)
            self._lock = FileLock(self.folder / _LOCK)
            self._lock.acquire(timeout=0)

    def new_path(self) -> Path:
        """Give a path that nobody has."""
        return self.folder / secrets.token_hex(12)

    def close(self) -> None:
        """Remove the folder; idempotent."""
        self._lock.release()
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove_abandoned(root: Path) -> None:
    for folder in root.glob(f"{_PREFIX}*"):
        # A folder without a lock is being made right now, or was when its maker died: the next start but one finds it.
        with suppress(Timeout, OSError), FileLock(folder / _LOCK, timeout=0):
            shutil.rmtree(folder, ignore_errors=True)


class Spool:
    """
    One stored file while it is written: what comes before a state, and the state's pieces. One thread at a time.

    Attributes:
        size: Of what was written so far, in bytes.
    """

    def __init__(self, path: Path, state_size: int | None) -> None:
        """Make the file *path* and write what stands before a state of *state_size* bytes."""
        self.path, self._state_size = path, state_size
        self._hasher: Any = blake3()
        self.size = 0
        with explained("write", path):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            self._write(lead(state_size))
        except BaseException:
            self.discard()
            raise

    def add(self, pieces: Iterable[bytes | memoryview]) -> None:
        """Write *pieces* of the state; TransientError where the disk does not take them."""
        for piece in pieces:
            self._write(piece)

    def finish(self, key: StateKey) -> Seal:
        """Write what stands behind the state, and sync the file."""
        end = tail(key, self._hasher)
        with explained("write", self.path):
            _write_all(self._file, end)
            self.size += len(end)
            os.fsync(self._file)
            self._close()
        return Seal(self._state_size, digest_in(end))

    def discard(self) -> None:
        """Remove the file if it is still there; idempotent."""
        self._close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _write(self, data: bytes | memoryview) -> None:
        self._hasher.update(data)
        with explained("write", self.path):
            _write_all(self._file, data)
        self.size += len(data)

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
