"""
Large states that pass through files of a shared folder, as a topology's plan may ask for.

Instances write below ``<location>/<instance id>/`` and send the path; we write below ``<location>/ckptmgr/`` and answer
with the path. The plan comes from a client, so a location counts only below a folder that the operator has named, and a
path only below the location. Nothing of anybody else's is removed, and of our own only what its reader is done with.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from attrs import define, field

from millpond.errors import ConfigError, StateCorruptError, StateNotFoundError
from millpond.heron.fetched import Fetched
from millpond.heron.names import segment
from millpond.local import explained, fsync_file

FOLDER = "ckptmgr"
_PIECE = 1 << 20
_ABANDONED_S = 24 * 3600
_KEPT = 2
"""Files of one instance: the newest, and the one before it, which may still be read."""


def allowed(location: str | None, roots: Sequence[Path]) -> Path | None:
    """Give the folder *location* if it is below one of *roots*, with all links followed; None if it is not."""
    if location is None or "\0" in location or not Path(location).is_absolute():
        return None
    folder = Path(location).resolve()
    return folder if any(folder.is_relative_to(root.resolve()) for root in roots) else None


@define
class Spill:
    """
    The spilled states of one topology; any thread.

    Attributes:
        location: The topology's folder; :func:`allowed` gave it.
    """

    location: Path
    _given: dict[Hashable, list[Path]] = field(factory=dict, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def open(self, path: str) -> tuple[BinaryIO, int]:
        """
        Open the file in which an instance left its state, and give its size; the caller closes it.

        Raises:
            StateNotFoundError: It is not there.
            ConfigError: It is outside the location, or no plain file.
        """
        found = Path(path)
        if "\0" in path or not found.is_absolute() or not found.resolve().is_relative_to(self.location):
            raise ConfigError(f"the spilled state {path[:200]!r} is not below {self.location}: it was not read")
        with explained("read", found):
            try:
                descriptor = os.open(found.resolve(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                raise StateNotFoundError(f"the spilled state {path} is gone: nothing was saved") from None
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            os.close(descriptor)
            raise ConfigError(f"the spilled state {path} is no plain file: it was not read")
        return os.fdopen(descriptor, "rb"), facts.st_size

    def give(self, reader: Hashable, checkpoint: str, state: Fetched) -> str:
        """Write *state* to a new file for *reader*, and give its path."""
        folder = self.location / FOLDER
        path = folder / f"{segment(checkpoint)}-{secrets.token_hex(16)}"
        with explained("write", path):
            folder.mkdir(exist_ok=True)
            try:
                with path.open("xb") as file:
                    for piece in state.chunks(_PIECE):
                        file.write(piece)
                fsync_file(path)
            except BaseException:
                _remove([path])
                raise
        with self._lock:
            mine = self._given.setdefault(reader, [])
            mine.append(path)
            old, self._given[reader] = mine[:-_KEPT], mine[-_KEPT:]
        _remove(old)
        return str(path)

    def done(self, reader: Hashable) -> None:
        """Remove what *reader* was given: it has saved a state since, so it has read it."""
        with self._lock:
            mine = self._given.pop(reader, [])
        _remove(mine)

    def sweep(self) -> None:
        """Remove files of processes before this one that are a day old."""
        with self._lock:
            known = {path for mine in self._given.values() for path in mine}
        oldest = time.time() - _ABANDONED_S
        with suppress(FileNotFoundError), os.scandir(self.location / FOLDER) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    unknown = Path(entry.path) not in known and entry.is_file(follow_symlinks=False)
                    if unknown and entry.stat(follow_symlinks=False).st_mtime < oldest:
                        _remove([Path(entry.path)])


def pieces(file: BinaryIO, size: int, where: str) -> Iterator[bytes]:
    """
    Give the content of a spilled state, which nobody may change meanwhile.

    Raises:
        StateCorruptError: It changed while it was read.
    """
    before = os.fstat(file.fileno())
    left = size
    with explained("read", Path(where)):
        while left and (piece := file.read(min(_PIECE, left))):
            left -= len(piece)
            yield piece
        after = os.fstat(file.fileno())
    if left or (after.st_size, after.st_mtime_ns) != (size, before.st_mtime_ns):
        raise StateCorruptError(f"the spilled state {where} changed while it was read: nothing was saved")


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
