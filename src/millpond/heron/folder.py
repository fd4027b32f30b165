"""
An object store in a folder of the local disk, in Heron's layout: a file an object, durable in a power cut.

A file is written beside its place and renamed, so that a reader sees all of it or none. What is spooled in the store's
own scratch folder is renamed and not copied. Names may be any that a file may have, since Heron's have no rules, and no
key and no symbolic link leads out of the folder.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from millpond.blob import BlobCapabilities, BlobEntry, BlobStore, Body, FileBody
from millpond.errors import ConfigError, MillpondError, StateNotFoundError, TransientError
from millpond.heron.names import OWN
from millpond.heron.scratch import Scratch
from millpond.local import explained, fsync_directory, refuse_to_leave

_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_ATTEMPTS = 8
_MOST_FOLDERS = 10_000


class FolderStore(BlobStore):
    """
    Files below *root*. Any thread may call it, and several processes may share a root.

    Attributes:
        scratch: Where states are spooled, on the same file system.
    """

    capabilities = BlobCapabilities(conditional_put=False, reason="Heron's layout is overwritten, as Heron does")

    def __init__(self, root: Path) -> None:
        """Make the folder, if it is missing."""
        self.root = root
        # Held while a folder is made for a file that is not in it yet, and while one is removed.
        self._folders = threading.Lock()
        # Folders of which this process knows that they outlast a power cut.
        self._durable: set[Path] = set()
        self.scratch = Scratch(root / OWN / "scratch")

    def put(self, key: str, body: Body, *, if_absent: bool = False) -> bool:
        """Make the file *key*; the body of a file in ``scratch`` is moved to its place."""
        if if_absent:
            raise ConfigError(f"{self.where(key)}: a folder in Heron's layout does not create exclusively")
        path = self._path(key)
        spooled = self._spool(body)
        try:
            self._rename(spooled, path)
        except BaseException:
            with suppress(OSError):
                spooled.unlink()
            raise
        return True

    def _spool(self, body: Body) -> Path:
        """Give a synced file with the content of *body*, in ``scratch``."""
        if isinstance(body, FileBody) and body.path.parent == self.scratch.folder:
            return body.path
        path = self.scratch.new_path()
        with explained("write", path), path.open("xb") as file, body.open() as stream:
            shutil.copyfileobj(stream, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        return path

    def _rename(self, spooled: Path, path: Path) -> None:
        if path.parent not in self._durable or not self._renamed(spooled, path):
            self._rename_into_new_folder(spooled, path)
        try:
            fsync_directory(path.parent)
        except TransientError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise  # else the file was removed, with its folder, right after it was there

    def _rename_into_new_folder(self, spooled: Path, path: Path) -> None:
        # No removal of this process takes a folder away before the file is in it. One of another process may.
        for left in reversed(range(_ATTEMPTS)):
            with self._folders:
                try:
                    self._make(path.parent)
                    if self._renamed(spooled, path):
                        return
                except MillpondError as error:
                    if not left or not isinstance(error.__cause__, (FileNotFoundError, FileExistsError)):
                        raise
                self._durable.clear()
        raise TransientError(f"cannot write {path}: other processes remove its folder again and again")

    def _make(self, folder: Path) -> None:
        """Make *folder* and those above it durable, whoever made them: a save of another thread may not be so far."""
        if folder == self.root or folder in self._durable:
            return
        self._make(folder.parent)
        with explained("make the folder", folder):
            folder.mkdir(exist_ok=True)
        fsync_directory(folder.parent)
        if len(self._durable) >= _MOST_FOLDERS:
            self._durable.clear()
        self._durable.add(folder)

    def _renamed(self, spooled: Path, path: Path) -> bool:
        """Move *spooled* to *path*; False where there is no folder for it."""
        with explained("write", path):
            try:
                spooled.replace(path)
            except FileNotFoundError:
                if not spooled.exists():
                    raise
                return False
        return True

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Give a part of the file *key*."""
        with self.open(key) as file, explained("read", self.root / key):
            file.seek(start)
            return file.read() if length is None else file.read(length)

    def open(self, key: str) -> BinaryIO:
        """Open the file *key*, which later writes leave as it is; StateNotFoundError if there is none."""
        path = self._path(key)
        with explained("read", path):
            try:
                return path.open("rb")
            except _MISSING:
                raise StateNotFoundError(f"there is no file {self.where(key)}") from None

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobEntry]:
        """Give the files below *prefix*, sorted by key."""
        folder = prefix[: prefix.rfind("/") + 1]
        if folder:
            self._path(folder.rstrip("/"))
        found = [entry for entry in self._walk(folder) if entry.key.startswith(prefix) and entry.key > after]
        return iter(sorted(found, key=lambda entry: entry.key))

    def _walk(self, folder: str) -> Iterator[BlobEntry]:
        path = self.root / folder  # links are not followed below, so it is inside
        with explained("list", path):
            try:
                with os.scandir(path) as entries:
                    children = list(entries)
            except (FileNotFoundError, NotADirectoryError):
                return
        for child in children:
            key = f"{folder}{child.name}"
            if child.is_symlink() or key == f"{OWN}/scratch":
                continue
            if child.is_dir(follow_symlinks=False):
                yield from self._walk(f"{key}/")
                continue
            with suppress(FileNotFoundError):
                facts = child.stat(follow_symlinks=False)
                yield BlobEntry(key, facts.st_size, facts.st_mtime_ns // 1_000_000)

    def delete(self, keys: Collection[str]) -> None:
        """Remove files, and the folders that are empty then."""
        folders: set[Path] = set()
        for key in keys:
            path = self._path(key)
            with explained("remove", path), suppress(*_MISSING):
                path.unlink()
                folders.add(path.parent)
        for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
            self._prune(folder)

    def _prune(self, folder: Path) -> None:
        """Make the removals in *folder* durable; remove it, and those above it, while they are empty."""
        while folder != self.root and self._remove_empty(folder):
            folder = folder.parent
        try:
            fsync_directory(folder)
        except TransientError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise  # else another clean has removed it, and goes on above it

    def _remove_empty(self, folder: Path) -> bool:
        """Remove *folder* if it is empty; tell whether it is gone."""
        with self._folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return False
            self._durable.discard(folder)
        return True

    def now(self) -> int:
        """Give the machine's clock in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def where(self, key: str = "") -> str:
        """Give the path."""
        return str(self.root / key)

    def close(self) -> None:
        """Remove the scratch folder."""
        self.scratch.close()

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not {"", ".", ".."}.isdisjoint(parts) or "\0" in key or parts[:2] == [OWN, "scratch"]:
            raise ConfigError(f"{key[:200]!r} is no key of a state: it could lead out of its folder")
        return refuse_to_leave(self.root, self.root / key)
