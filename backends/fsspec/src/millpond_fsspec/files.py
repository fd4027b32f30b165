"""``file:``: objects as files of a local or mounted file system, durable in a power cut."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from millpond.blob import BlobCapabilities, BlobEntry, Body, Unfinished
from millpond.errors import ConfigError, StateNotFoundError
from millpond.local import create_durably, explained, fsync_directory, is_temporary, make_folders, refuse_to_leave
from millpond.points import reached
from millpond_fsspec.place import Place
from millpond_fsspec.reading import COPY_SIZE, whole
from millpond_fsspec.store import FsspecStore
from millpond_fsspec.walking import UNFINISHED, Child, unfinished, walk

_PROBE = ".probe-"
_TEMPORARY_LIFE_MS = 24 * 3600 * 1000


class FileStore(FsspecStore):
    """
    Files below one folder; fsspec only says which.

    A new object is a complete temporary file that is renamed, or linked where it must not be there yet: both atomic,
    and linking is exclusive on local disks and on NFS. A symbolic link never leads out of the folder.
    """

    permissions: ClassVar[Mapping[str, str]] = MappingProxyType({
        "write": "to write in that folder (w, x)",
        "read": "to read that file (r)",
        "list": "to read that folder (r, x)",
        "remove": "to write in that folder (w, x)",
    })  # fmt: skip

    def __init__(self, place: Place, capabilities: BlobCapabilities) -> None:
        """Keep what is given; nothing is opened yet."""
        super().__init__(place, capabilities)
        self._root = Path(place.root or "/")

    def _connect(self) -> Any:
        return None

    def _put(self, fs: Any, key: str, body: Body, *, if_absent: bool) -> bool:
        path = self._path(key)
        make_folders(path.parent)
        if if_absent:
            with whole(body) as stream:
                return create_durably(path, stream.read())
        with explained("write", path):
            self._replace(path, key, body)
        fsync_directory(path.parent)
        return True

    def _replace(self, path: Path, key: str, body: Body) -> None:
        temporary = path.with_name(f"{path.name}{UNFINISHED}{secrets.token_hex(12)}")
        try:
            with temporary.open("xb") as file, whole(body) as stream:
                while piece := stream.read(COPY_SIZE):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
                self._check_size(key, os.fstat(file.fileno()).st_size, body.size)
            reached("fsspec.file-written")
            temporary.replace(path)
            reached("fsspec.file-replaced")
        except BaseException:
            with suppress(OSError):  # what cannot be removed now is found by `unfinished`
                temporary.unlink()
            raise

    def _get(self, fs: Any, key: str, start: int, length: int | None) -> bytes:
        path = self._path(key)
        with explained("read", path):
            try:
                with path.open("rb") as file:
                    file.seek(start)
                    return file.read() if length is None else file.read(length)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise StateNotFoundError(f"there is no object {self.where(key)}") from None

    def _list(self, prefix: str, after: str) -> Iterator[BlobEntry]:
        return walk(self._children, prefix, after)

    def _children(self, folder: str) -> Iterable[Child]:
        path = refuse_to_leave(self._root, self._root / folder)
        with explained("list", path):
            try:
                with os.scandir(path) as entries:
                    return [child for entry in entries if (child := _child(entry)) is not None]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def _delete(self, fs: Any, keys: Collection[str]) -> None:
        paths = [self._path(key) for key in keys]
        for path in paths:
            with explained("remove", path), suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
        for folder in sorted({path.parent for path in paths}):
            if folder.is_dir():
                fsync_directory(folder)
                _remove_probe(folder)

    def _now(self, fs: Any) -> int:
        """Give the time that the file system stamps on a new file."""
        make_folders(self._root)
        path = self._root / f".new-{secrets.token_hex(12)}"
        with explained("create", path):
            path.touch(exist_ok=False)
            try:
                now = path.stat().st_mtime_ns // 1_000_000
                self._remove_abandoned(now - _TEMPORARY_LIFE_MS)
                return now
            finally:
                path.unlink()

    def _remove_abandoned(self, oldest_kept: int) -> None:
        """Remove what processes left that were killed while they asked for the time: no prefix finds it."""
        for child in self._children(""):
            if is_temporary(child.name) and not child.folder and child.millis < oldest_kept:
                with suppress(FileNotFoundError):
                    (self._root / child.name).unlink()

    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        """Give what killed writers left."""
        found = unfinished(self._children, prefix)
        return [Unfinished(key, entry.key, entry.millis) for entry, key in found]

    def abort(self, upload: Unfinished) -> None:
        """Remove it."""
        path = refuse_to_leave(self._root, self._root / upload.token)
        with explained("remove", path):
            path.unlink(missing_ok=True)
        _remove_probe(path.parent)

    def _path(self, key: str) -> Path:
        if is_temporary(key.rpartition("/")[2]):
            raise ConfigError(f"{key!r} cannot be a key here: a name that begins like this is an unfinished file's")
        path = self._root / key
        return refuse_to_leave(self._root, path)


def _remove_probe(folder: Path) -> None:
    """Remove a probe's folder once it is empty: nobody writes there again, as somebody may in any other."""
    if folder.name.startswith(_PROBE):
        with suppress(OSError):
            folder.rmdir()


def _child(entry: os.DirEntry[str]) -> Child | None:
    """Describe what is in a folder; None if it vanished meanwhile, or is a symbolic link, which is none of ours."""
    try:
        if entry.is_symlink():
            return None
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Child(entry.name, entry.is_dir(follow_symlinks=False), found.st_size, found.st_mtime_ns // 1_000_000)
