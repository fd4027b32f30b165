"""What ``rocksdb-local`` prepares, probes and finds to remove for a whole job."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from millpond.checkpoint import Checkpoint
from millpond.errors import ConfigError, MillpondError
from millpond.local import fsync_directory, job_folder, make_folders
from millpond.spi import Garbage, JobContext, StateBackendAdmin
from millpond_rocksdb.retention import needed
from millpond_rocksdb.shelf import (
    ImageName,
    Shelf,
    folders_in,
    newest_change,
    remove_tree,
    stores_in,
    task_folder,
    unescaped_folders,
)

_PROBE = ".probe-"
_PROBE_LIFE = timedelta(days=1)


class LocalAdmin(StateBackendAdmin):
    """Prepares and inspects the folder of a section that has a ``path``."""

    def __init__(self, backend: str, path: Path | None, job: JobContext) -> None:
        self._backend, self._path, self._job = backend, path, job

    def create_resources(self) -> None:
        """Make the folder."""
        if self._path is not None:
            make_folders(self._path)

    def validate_resources(self) -> None:
        """
        Try what the backend does there: make, write, sync, link, rename, remove.

        Raises:
            ConfigError: It does not work; the message says where and how to mend it.
        """
        if self._path is None:
            return
        if not self._path.is_dir():
            raise ConfigError(
                f"backend {self._backend!r}: the path {self._path} is no folder: make it, or mend the path"
            )
        try:
            _probe(self._path)
        except (MillpondError, OSError) as error:
            raise ConfigError(
                f"backend {self._backend!r}: the path {self._path} cannot hold images: {error}"
            ) from error

    def garbage(self, retained: Mapping[str, Sequence[Checkpoint]], grace: timedelta) -> Iterator[Garbage]:
        """
        Find images of no retained checkpoint, and what uploads and removals left; older than *grace*.

        Tasks that *retained* does not name are left alone, and so are images in tasks' own folders.
        """
        if self._path is None:
            return
        for task in unescaped_folders(self._path / job_folder(self._job.job, self._job.job_id)):
            if task in retained:
                root = task_folder(self._path, self._job, task, self._backend)
                keep = needed(retained[task], self._backend)
                for store in stores_in(root):
                    yield from self._of_shelf(Shelf.of(root, store), keep.get(store, frozenset()), grace)

    def _of_shelf(self, shelf: Shelf, keep: frozenset[str], grace: timedelta) -> Iterator[Garbage]:
        for place in shelf.doomed():
            yield Garbage(str(place), "its removal was cut short", _bytes_in(place), partial(remove_tree, place))
        for name in shelf.images():
            if str(name) not in keep and self._is_older(shelf.image(name).stat().st_mtime, grace):
                yield _garbage(shelf.image(name), "no retained checkpoint names this image", shelf, name)
        for name in shelf.staged():
            if self._is_older(newest_change(shelf.staging(name)), grace):
                yield _garbage(shelf.staging(name), "an upload left it half made", shelf, name)

    def _is_older(self, changed: float, grace: timedelta) -> bool:
        return self._job.clock.millis() / 1000 - changed >= grace.total_seconds()


def _garbage(path: Path, reason: str, shelf: Shelf, name: ImageName) -> Garbage:
    def remove() -> None:
        if path == shelf.image(name):
            shelf.remove(name)
        else:
            shelf.remove_staging(name)

    return Garbage(str(path), reason, _bytes_in(path), remove)


def _bytes_in(path: Path) -> int:
    return sum(file.lstat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())


def _remove_abandoned(probe: Path) -> None:
    """Remove what killed processes left of their probes a day before *probe* was made; never what is newer."""
    oldest_kept = probe.stat().st_mtime - _PROBE_LIFE.total_seconds()
    for name in folders_in(probe.parent):
        if name.startswith(_PROBE) and 0 < newest_change(probe.parent / name) < oldest_kept:
            remove_tree(probe.parent / name)


def _probe(path: Path) -> None:
    """Do with a small folder what is done with images."""
    staging, image = (path / f"{_PROBE}{secrets.token_hex(8)}" for _ in range(2))
    try:
        staging.mkdir()
        _remove_abandoned(staging)
        (staging / "file").write_bytes(b"probe")
        fsync_directory(staging)
        staging.rename(image)
        fsync_directory(path)
    finally:
        remove_tree(staging)
        remove_tree(image)
