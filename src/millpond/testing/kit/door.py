"""The side door: reads, damages and deletes what a plugin keeps, under its feet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path


class SideDoor(ABC):
    """
    What a plugin keeps, as whoever can reach its place sees it: raw things under names.

    An author writes one for a place that the kit cannot know; :class:`FolderDoor` is the one for files.
    """

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Give the names of all things that are kept, sorted."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Give what is under *name*."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Put *data* in place of what is under *name*."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove what is under *name*."""

    def size(self) -> int:
        """Give the bytes of all things together."""
        return sum(len(self.read(name)) for name in self.names())


class FolderDoor(SideDoor):
    """The side door of a plugin that keeps files below a folder."""

    def __init__(self, folder: Path, belongs: Callable[[str], bool] = lambda name: True) -> None:
        """See the files below *folder* whose relative name *belongs*; it may not exist yet."""
        self._folder = folder
        self._belongs = belongs

    def names(self) -> Sequence[str]:
        """Give the relative names of all files, sorted."""
        files = (path for path in self._folder.rglob("*") if path.is_file())
        return sorted(name for path in files if self._belongs(name := str(path.relative_to(self._folder))))

    def read(self, name: str) -> bytes:
        """Give a file's content."""
        return (self._folder / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Replace a file by another one, so that a hard link to the old one keeps its content."""
        (self._folder / name).unlink(missing_ok=True)
        (self._folder / name).write_bytes(data)

    def delete(self, name: str) -> None:
        """Remove a file."""
        (self._folder / name).unlink(missing_ok=True)

    def size(self) -> int:
        """Give the bytes of all files; several links to one file count once."""
        found = (self._folder / name for name in self.names())
        return sum({(status.st_dev, status.st_ino): status.st_size for status in (f.stat() for f in found)}.values())


def damages(data: bytes) -> dict[str, bytes]:
    """Give ways in which *data* can be damaged: by what was done, what it then is."""
    ways = {"emptied": b"", "cut short": data[: len(data) // 2], "cut by a byte": data[:-1]}
    for place in sorted({0, len(data) // 3, len(data) // 2, len(data) - 1}) if data else ():
        ways[f"flipped a bit of byte {place}"] = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
    ways["lengthened"] = data + b"\x00"
    return {what: bad for what, bad in ways.items() if bad != data}
