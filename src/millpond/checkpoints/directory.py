"""
The directory checkpoint manager: one small file a record, on a local disk or a shared one.

::

    <path>/<job>/<task>/records/<n>     claims and checkpoints; see :mod:`millpond.records`
    <path>/<job>/<task>/pins/<name>     copies of records

A record is a complete temporary file that is linked to its name: exclusive and atomic on local disks and on NFS.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Sequence
from concurrent.futures import wait
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import ClassVar

from attrs import field, frozen

from millpond.errors import ConfigError, StateCorruptError, TransientError
from millpond.formats.envelope import MAX_SIZE
from millpond.lanes import Workers
from millpond.local import (
    create_durably,
    escape_name,
    explained,
    fsync_directory,
    is_temporary,
    job_folder,
    make_folders,
    refuse_to_leave,
    unescape_name,
)
from millpond.records import NumberedCheckpoints, RecordFolder
from millpond.spi import ManagerCapabilities

_LONGEST_RECORD = MAX_SIZE + 4096
_TEMPORARY_LIFE = timedelta(days=1)
_PROBE = ".probe-"
_PROBE_DEADLINE_S = 30.0


@frozen
class DirectoryCheckpointsConfig:
    """
    The directory manager's settings.

    Attributes:
        path: The folder that holds the records of any number of jobs; best on another disk than ``state_dir``.
    """

    path: Path = field(converter=Path)


@frozen
class DirectoryFolder(RecordFolder):
    """
    The files of one folder, which is made when something is first created in it.

    Attributes:
        path: The folder.
        root: What no symbolic link on the way to it may leave.
    """

    path: Path
    root: Path

    def names(self) -> list[str]:
        """Give the names of all files but unfinished ones."""
        return [name for name in _list(self._safe()) if not is_temporary(name)]

    def create(self, name: str, data: bytes) -> bool:
        """Put *data* at *name* unless something is there."""
        make_folders(self._safe())
        return create_durably(self.path / name, data)

    def read(self, name: str) -> bytes | None:
        """Give the content of *name*; StateCorruptError if it is larger than any record."""
        path = self._safe() / name
        with explained("read the record", path):
            try:
                with path.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    data = file.read() if size <= _LONGEST_RECORD else None
            except FileNotFoundError:
                return None
        if data is None:
            raise StateCorruptError(
                f"the record {path} cannot be read: it is larger than any ({_LONGEST_RECORD:,} bytes)"
            )
        return data

    def delete(self, names: Collection[str]) -> None:
        """Remove *names*."""
        for name in names:
            path = self._safe() / name
            with explained("remove the record", path):
                path.unlink(missing_ok=True)
        if self.path.is_dir():
            fsync_directory(self.path)

    def now_millis(self) -> int:
        """Give the time that the file system stamps on a new file."""
        make_folders(self._safe())
        path = self.path / f".new-{secrets.token_hex(12)}"
        with explained("create", path):
            path.touch(exist_ok=False)
            try:
                return path.stat().st_mtime_ns // 1_000_000
            finally:
                path.unlink()

    def tidy(self) -> None:
        """Remove unfinished files that are a day old."""
        oldest_kept = self.now_millis() / 1000 - _TEMPORARY_LIFE.total_seconds()
        for path in (self.path / name for name in _list(self.path) if is_temporary(name)):
            with explained("remove", path):
                try:
                    if path.lstat().st_mtime < oldest_kept:
                        path.unlink()
                except FileNotFoundError:
                    continue

    def where(self, name: str) -> str:
        """Give the file's path."""
        return str(self.path / name)

    def _safe(self) -> Path:
        return refuse_to_leave(self.root, self.path)


class DirectoryCheckpoints(NumberedCheckpoints):
    """
    Keeps records as files, safe for any number of processes that share the folder.

    Its file system needs exclusive creation, and for whole records even in a crash, hard links.
    """

    config_class: ClassVar[type] = DirectoryCheckpointsConfig
    capabilities = ManagerCapabilities()
    config: DirectoryCheckpointsConfig

    def create_resources(self) -> None:
        """Make the job's folder."""
        make_folders(self._job())

    def validate_resources(self) -> None:
        """Try that of two creations of one file exactly one wins, and that it can be read and removed."""
        folder = DirectoryFolder(self._job() / f"{_PROBE}{secrets.token_hex(8)}", self._root())
        make_folders(folder.path)
        _remove_abandoned(folder.path)
        try:
            _race_two_creations(folder)
        finally:
            folder.delete(_list(folder.path))
            with explained("remove", folder.path):
                folder.path.rmdir()

    def tasks(self) -> Sequence[str]:
        """Give the names of the tasks that have a record here, sorted."""
        found = map(_task_of, _list(self._job()))
        return sorted(task for task in found if task is not None and self.records_folder(task).names())

    def records_folder(self, task: str) -> DirectoryFolder:
        """Give the place of the task's records."""
        return DirectoryFolder(self._job() / escape_name(task) / "records", self._root())

    def pins_folder(self, task: str) -> DirectoryFolder:
        """Give the place of the task's pins."""
        return DirectoryFolder(self._job() / escape_name(task) / "pins", self._root())

    def _root(self) -> Path:
        return self.config.path.absolute()

    def _job(self) -> Path:
        return self._root() / job_folder(self.job.job, self.job.job_id)


def _remove_abandoned(probe: Path) -> None:
    """Remove what killed processes left of their probes a day before *probe* was made; never what is newer."""
    oldest_kept = probe.stat().st_mtime - _TEMPORARY_LIFE.total_seconds()
    for path in (probe.parent / name for name in _list(probe.parent) if name.startswith(_PROBE)):
        with explained("remove", path), suppress(FileNotFoundError):
            if path.lstat().st_mtime < oldest_kept:
                shutil.rmtree(path)


def _race_two_creations(folder: DirectoryFolder) -> None:
    """
    Try whether exactly one of two creations wins and its content is what can be read.

    Raises:
        ConfigError: It does not.
        TransientError: The file system hangs.
    """
    start = Barrier(2)
    bodies = [b"first" * 100, b"second" * 100]
    workers = Workers("probe", 2)
    attempts = [workers.submit(partial(_create_at_once, folder, body, start)) for body in bodies]
    hung = wait(attempts, _PROBE_DEADLINE_S).not_done
    workers.close(0)
    if hung:
        raise TransientError(f"{folder.root} did not answer within {_PROBE_DEADLINE_S:g} s: is its server reachable?")
    won = [attempt.result() for attempt in attempts]
    read = folder.read("probe")
    if sum(won) != 1 or read != bodies[won.index(True)]:
        raise ConfigError(
            f"the file system of {folder.root} does not create files exclusively: of two creations {sum(won)} won; "
            "keep the records on another file system"
        )


def _create_at_once(folder: DirectoryFolder, body: bytes, start: Barrier) -> bool:
    start.wait(_PROBE_DEADLINE_S)
    return folder.create("probe", body)


def _list(path: Path) -> list[str]:
    with explained("list", path):
        try:
            return [entry.name for entry in path.iterdir()]
        except FileNotFoundError:
            return []


def _task_of(folder: str) -> str | None:
    try:
        return unescape_name(folder)
    except ValueError:
        return None
