"""
The backend ``rocksdb-local``: images kept on a local disk, by hard links where they work.

It takes the image of any engine as it is. Without a ``path`` images lie in the task's own folder and survive a crash of
the process or the machine; with a ``path`` on another disk they survive the loss of the first.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from attrs import field, frozen
from attrs.converters import optional

from millpond.checkpoint import Checkpoint, CheckpointId, Markers
from millpond.errors import ConfigError, StateCorruptError, StateNotFoundError
from millpond.formats.manifest import FILE_NAME as MANIFEST
from millpond.formats.manifest import ImageManifest, check_name
from millpond.local import (
    explained,
    read_manifest,
)
from millpond.points import reached
from millpond.spi import (
    Capabilities,
    Facet,
    FileEntry,
    JobContext,
    RestoreTarget,
    Snapshot,
    StateBackendFactory,
    StoreSpec,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)
from millpond_rocksdb.admin import LocalAdmin
from millpond_rocksdb.retention import needed, newest, removable
from millpond_rocksdb.shelf import ImageName, Shelf, newest_change, remove_tree, stores_in, task_folder
from millpond_rocksdb.transfer import Held, Piece, copy, link

log = logging.getLogger("millpond.rocksdb")


def _absolute(path: str | os.PathLike[str]) -> Path:
    return Path(path).expanduser().absolute()


@frozen(kw_only=True)
class RocksDBLocalConfig:
    """
    The section of a ``rocksdb-local`` backend.

    Attributes:
        path: The folder for the images of all jobs; best on another disk. None: each task's own folder.
        grace: How long after its claim a task lets lie what earlier owners left behind.
    """

    path: Path | None = field(default=None, converter=optional(_absolute))
    grace: timedelta = field(default=timedelta(minutes=10))

    @grace.validator
    def _check_grace(self, _attribute: object, grace: timedelta) -> None:
        if grace < timedelta(0):
            raise ConfigError(f"grace is {grace}: it cannot be negative")


class RocksDBLocal(StateBackendFactory):
    """Makes the managers of one ``rocksdb-local`` section. A marker is the name of an image."""

    spi_version: ClassVar[tuple[int, int]] = (1, 0)
    config_class: ClassVar[type] = RocksDBLocalConfig
    capabilities = Capabilities(facets=Facet.DIRECTORY)

    config: RocksDBLocalConfig

    def backup_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> LocalBackup:
        """Make the manager that backs up *stores*. Nothing to fence: an image's name holds its writer."""
        return LocalBackup(task, self._root(task), self.config.grace)

    def restore_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> LocalRestore:
        """Make the manager that restores *stores*."""
        return LocalRestore(task, self._root(task))

    def admin(self, job: JobContext, stores: Sequence[StoreSpec]) -> LocalAdmin:
        """Make the admin. Without a ``path`` the images lie in the tasks' folders, and it has nothing to do."""
        return LocalAdmin(self.name, self.config.path, job)

    def _root(self, task: TaskContext) -> Path:
        if self.config.path is None:
            return task.directory
        return task_folder(self.config.path, task.job, task.task, task.backend)


class LocalBackup(TaskBackupManager):
    """Links or copies each image into the backend's own folder, and removes what nobody needs."""

    def __init__(self, task: TaskContext, root: Path, grace: timedelta) -> None:
        self._task, self._root, self._grace = task, root, grace
        self._claimed = task.job.clock.monotonic()
        self._unsettled: set[str] | None = None
        self._markers: Markers = {}
        self._told = False

    def init(self, last: Checkpoint | None) -> tuple[()]:
        """Note the last images: what they hold need not be copied again."""
        self._markers = {} if last is None else last.markers.get(self._task.backend, {})
        return ()

    def upload(self, snapshot: Snapshot, markers: Markers) -> Markers:
        """Make each store's image durable in this backend's folder, and name it."""
        name = ImageName(snapshot.id, self._writer)
        for store in snapshot.stores:
            snapshot.check()
            self._note(store)
            self._upload_store(snapshot, store, name)
        return {store: str(name) for store in snapshot.stores}

    def abandon(self, id: CheckpointId) -> None:
        """Remove what the upload of *id* left, whole or half."""
        name = ImageName(id, self._writer)
        for store in stores_in(self._root):
            shelf = Shelf.of(self._root, store)
            shelf.remove_staging(name)
            shelf.remove(name)

    def cleanup(self, retained: Sequence[Checkpoint]) -> None:
        """Remove what no checkpoint in *retained* needs; looks only where there may be something."""
        if self._unsettled is None:
            self._unsettled = set(stores_in(self._root))
        keep, last = needed(retained, self._task.backend), newest(retained)
        others = self._task.job.clock.monotonic() - self._claimed >= self._grace.total_seconds()
        for store in sorted(self._unsettled):
            if self._tidy(Shelf.of(self._root, store), keep.get(store, frozenset()), last, others):
                self._unsettled.discard(store)

    def _tidy(self, shelf: Shelf, keep: frozenset[str], last: CheckpointId | None, others: bool) -> bool:
        """Tidy one shelf; say whether it will stay tidy until the next upload."""
        for place in shelf.doomed():
            remove_tree(place)
        for name in removable(shelf.images(), keep, last, self._writer, others=others):
            shelf.remove(name)
        for name in removable(shelf.staged(), (), last, self._writer, others=others):
            if name.writer == self._writer or self._is_left(shelf.staging(name)):
                shelf.remove_staging(name)
        left = [str(name) for name in shelf.images()]
        return len(left) <= 1 and keep.issuperset(left) and not shelf.staged()

    def _is_left(self, staging: Path) -> bool:
        """Tell a staging that a dead writer left from one that is being filled."""
        age_s = self._task.job.clock.millis() / 1000 - newest_change(staging)
        return age_s >= self._grace.total_seconds()

    def _note(self, store: str) -> None:
        if self._unsettled is not None:
            self._unsettled.add(store)

    @property
    def _writer(self) -> str:
        if self._task.claim is None:
            raise ConfigError(f"task {self._task.task!r} is open for reading only: it has no claim to write under")
        return self._task.claim.writer

    def _upload_store(self, snapshot: Snapshot, store: str, name: ImageName) -> None:
        shelf = Shelf.of(self._root, store)
        staging = shelf.stage(name)
        entries = snapshot.directory(store)
        files = [_piece(entry, staging) for entry in entries if entry.name != MANIFEST]
        manifest = [_piece(entry, staging) for entry in entries if entry.name == MANIFEST]
        if len(manifest) != 1:
            raise StateCorruptError(f"the image of store {store!r} has no {MANIFEST}: it is not complete")
        held = self._held(shelf, snapshot, store)
        _make_subfolders(files)
        with explained("back up", staging):
            copied = self._bring(files, held, snapshot)
            reached("rocksdb-local.files-brought")
            self._bring(manifest, held, snapshot)  # last: it says that the others are there
        self._tell(copied > 0)
        snapshot.check()
        shelf.publish(name)

    def _bring(self, pieces: Sequence[Piece], held: Held, snapshot: Snapshot) -> int:
        """Link what can be linked, right here, and copy the rest, several at once; say how many were copied."""
        to_copy = [piece for piece in pieces if not link(piece, held)]
        self._task.job.transfers.map(lambda piece: copy(piece, snapshot.check, durable=True), to_copy, snapshot.check)
        return len(to_copy)

    def _held(self, shelf: Shelf, snapshot: Snapshot, store: str) -> Held:
        """Give the files of the last published image of this store, by content."""
        base = snapshot.base(store)
        marker = self._markers.get(store) if base is None else base[1]
        name = None if marker is None else ImageName.parse(marker)
        if name is None:
            return {}
        image = shelf.image(name)
        try:
            files = read_manifest(image).files
        except (StateNotFoundError, StateCorruptError):  # only a short cut: the file is copied instead
            return {}
        return {(file.digest, file.size): image / file.name for file in files}

    def _tell(self, copied: bool) -> None:
        if copied and not self._told:
            self._told = True
            log.info("%s is on another device than the state: new files are copied, not linked", self._root)


def _piece(entry: FileEntry, staging: Path) -> Piece:
    name = entry.name if entry.name == MANIFEST else check_name(entry.name)
    return Piece(entry.path, staging / name, entry.size, entry.digest)


def _make_subfolders(pieces: Sequence[Piece]) -> None:
    for folder in sorted({piece.target.parent for piece in pieces}):
        with explained("make the folder", folder):
            folder.mkdir(parents=True, exist_ok=True)


class LocalRestore(TaskRestoreManager):
    """Links or copies images back."""

    def __init__(self, task: TaskContext, root: Path) -> None:
        self._task, self._root = task, root
        self._images: Markers = {}

    def init(self, checkpoint: Checkpoint) -> None:
        """Note which image of each store the checkpoint was made of."""
        self._images = checkpoint.images

    def restore(self, target: RestoreTarget) -> None:
        """Give one store's image back; its files are verified while they are copied, or by ``adopt``."""
        target.check()
        name = ImageName.parse(target.marker)
        if name is None:
            raise StateNotFoundError(f"{target.marker[:80]!r} names no image: expected <checkpoint id>-<writer>")
        image = Shelf.of(self._root, target.store).image(name)
        if image.is_symlink():
            raise StateCorruptError(f"{image} is a symbolic link: an image is a folder")
        try:
            target.adopt(verified=self._fill(image, target))
        except FileNotFoundError as error:
            if image.is_dir():
                raise StateCorruptError(f"the image {image} lacks {error.filename}") from error
            raise StateNotFoundError(f"there is no image at {image} any more") from error

    def _fill(self, image: Path, target: RestoreTarget) -> bool:
        """Bring all files, the manifest last; say whether all were copied, and so verified."""
        manifest = read_manifest(image)
        self._refuse_another(image, manifest, target.store)
        pieces = [Piece(image / f.name, target.directory / f.name, f.size, f.digest) for f in manifest.files]
        _make_subfolders(pieces)
        to_copy = [piece for piece in pieces if not link(piece, {})]
        target.progress(size=manifest.size - sum(piece.size for piece in to_copy), total_size=manifest.size)
        self._copy_all(to_copy, target)
        with explained("write", target.directory / MANIFEST):
            (target.directory / MANIFEST).write_bytes((image / MANIFEST).read_bytes())
        return len(to_copy) == len(pieces)

    def _refuse_another(self, image: Path, manifest: ImageManifest, store: str) -> None:
        """
        Refuse an image that was put where this one should be, though it is whole.

        A record of Samza's names no images; then only the store can be compared.
        """
        made = str(ImageName(manifest.id, manifest.writer))
        wanted = self._images.get(store, made)
        if manifest.store != store or made != wanted:
            raise StateCorruptError(
                f"the image {image} is another one: its {MANIFEST} says {made} of store {manifest.store!r}, and the "
                f"checkpoint was made of {wanted} of store {store!r}"
            )

    def _copy_all(self, pieces: Sequence[Piece], target: RestoreTarget) -> None:
        telling = threading.Lock()

        def fetch(piece: Piece) -> None:
            copy(piece, target.check, durable=False)  # the core syncs what it adopts
            with telling:
                target.progress(size=piece.size)

        self._task.job.transfers.map(fetch, pieces, target.check)
