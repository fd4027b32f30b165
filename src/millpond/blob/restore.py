"""
Restores the stores of one task from an object store.

One read gives a store's manifest; then all that it names is read in parallel. Changes are merged first and written
once. What a local image holds with the same digest is linked instead of read; a local image that the manifest's chain
continues is only brought forward.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from millpond.blob import chain
from millpond.blob.download import Download
from millpond.blob.fetch import Wanted
from millpond.blob.layout import TaskKeys
from millpond.blob.lease import StoreLease
from millpond.blob.manifests import ManifestReader
from millpond.blob.settings import BlobSettings
from millpond.errors import FormatError, StateCorruptError, StateNotFoundError
from millpond.formats import manifest as image_manifest
from millpond.formats.blob_manifest import BackupManifest, StoredChanges, StoredFile
from millpond.formats.manifest import FILE_NAME as MANIFEST
from millpond.local import explained, links_fail, make_folders
from millpond.spi import BATCH, Change, FileEntry, RestoreTarget, TaskContext, TaskRestoreManager


class BlobRestore(TaskRestoreManager):
    """Reads what markers name. Several stores at once."""

    def __init__(self, task: TaskContext, lease: StoreLease, settings: BlobSettings) -> None:
        self._task, self._lease, self._settings = task, lease, settings
        self._prefix = TaskKeys.of(task.job.job, task.job.job_id, task.task).data(task.backend)
        self._reader = ManifestReader(lease.store, self._prefix)

    def restore(self, target: RestoreTarget) -> None:
        """Leave one store exactly as its marker says."""
        manifest = self._reader.read(target.marker)
        if manifest.store != target.store:
            raise StateCorruptError(
                f"the marker of store {target.store!r} names a backup of store {manifest.store!r}: {target.marker}"
            )
        newer = self._newer_than_local(manifest, target)
        if newer is not None:
            target.use_local()
            self._bring_forward(newer, target)
        else:
            self._restore(manifest, target)

    def close(self) -> None:
        """Let go of the store; idempotent."""
        self._lease.close()

    # ------------------------------------------------------------------------------------------ from a local image

    def _newer_than_local(self, manifest: BackupManifest, target: RestoreTarget) -> Sequence[StoredChanges] | None:
        """Give the changes that the older local image lacks; None if there is none that can be brought forward."""
        local = target.local
        if local is None:
            return None
        try:
            return continuation(self._reader.read(local), manifest)
        except (StateNotFoundError, StateCorruptError):  # only a short cut
            return None

    def _bring_forward(self, changes: Sequence[StoredChanges], target: RestoreTarget) -> None:
        with self._scratch() as scratch:
            total = sum(link.size for link in changes)
            self._download(target, total).run(_wanted_changes(changes, scratch))
            self._write(changes, scratch, target, total)

    # ------------------------------------------------------------------------------------------- from the store

    def _restore(self, manifest: BackupManifest, target: RestoreTarget) -> None:
        with self._scratch() as scratch:
            missing = _take_local(manifest, target)
            total = manifest.base_size + manifest.chain_size
            target.progress(size=manifest.base_size - sum(file.size for file in missing), total_size=total)
            files = [_wanted_file(file, target.directory) for file in missing if file.size]
            self._download(target, total).run([*files, *_wanted_changes(manifest.changes, scratch)])
            _finish_image(manifest, target.directory)
            target.adopt(verified=True)
            if manifest.changes:
                self._write(manifest.changes, scratch, target, total)

    def _download(self, target: RestoreTarget, total: int) -> Download:
        return Download(
            self._lease.store,
            self._prefix,
            self._task.job.transfers,
            target.check,
            lambda size: target.progress(size=size, total_size=total),
        )

    def _write(self, changes: Sequence[StoredChanges], scratch: Path, target: RestoreTarget, total: int) -> None:
        """Merge the chain, and write it once."""
        files = [self._unpacked(number, link, scratch) for number, link in enumerate(changes)]
        if not files:
            return
        try:
            target.write(_watched(chain.merged(files), target, total))
        except FormatError as error:
            raise StateCorruptError(f"the changes of store {target.store!r} cannot be read: {error}") from error

    def _unpacked(self, number: int, link: StoredChanges, scratch: Path) -> Path:
        packed = _packed_path(scratch, number)
        if not link.encoding:
            return packed
        path = scratch / f"{number}.changes"
        name = f"changes {number} in the object {self._lease.store.where(self._prefix + link.object)}"
        chain.unpack(packed, path, link.raw_size, name)
        packed.unlink()
        return path

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        folder = self._task.scratch / f"restore-{secrets.token_hex(8)}"
        make_folders(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def continuation(older: BackupManifest, newer: BackupManifest) -> Sequence[StoredChanges] | None:
    """Give the changes that lead from what *older* describes to *newer*; None if they do not."""
    same_base = (older.store, older.engine, older.files, older.properties) == (
        newer.store,
        newer.engine,
        newer.files,
        newer.properties,
    )
    links = len(older.changes)
    if not same_base or newer.changes[:links] != older.changes:
        return None
    return newer.changes[links:]


def _take_local(manifest: BackupManifest, target: RestoreTarget) -> list[StoredFile]:
    """Link or copy what local images hold; give what they do not."""
    held = {(entry.digest, entry.size): entry for entry in target.local_files()}
    missing = []
    for file in manifest.files:
        entry = held.get((file.digest, file.size))
        if file.size and (entry is None or not _bring(entry, target.directory / file.name)):
            missing.append(file)
    return missing


def _bring(entry: FileEntry, path: Path) -> bool:
    """Link *entry*, or copy it where links fail; False: it is gone, and has to be read."""
    with explained("bring a local file to", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(entry.path, path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as error:
            if not links_fail(error):
                raise
            shutil.copyfile(entry.path, path)
    return True


def _finish_image(manifest: BackupManifest, directory: Path) -> None:
    """Make the files without a byte, and the image's own manifest."""
    for file in manifest.files:
        if not file.size:
            path = directory / file.name
            with explained("write", path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.open("xb").close()
    with explained("write", directory / MANIFEST):
        (directory / MANIFEST).write_bytes(image_manifest.encode(manifest.image()))


def _wanted_file(file: StoredFile, directory: Path) -> Wanted:
    return Wanted(file.object, file.start, file.size, file.digest, directory / file.name, f"the file {file.name!r}")


def _wanted_changes(changes: Sequence[StoredChanges], scratch: Path) -> list[Wanted]:
    return [
        Wanted(link.object, link.start, link.size, link.digest, _packed_path(scratch, number), f"changes {number}")
        for number, link in enumerate(changes)
    ]


def _packed_path(scratch: Path, number: int) -> Path:
    return scratch / f"{number}.packed"


def _watched(changes: Iterator[Change], target: RestoreTarget, total: int) -> Iterator[Change]:
    while batch := list(islice(changes, BATCH)):
        target.check()
        yield from batch
        target.progress(records=len(batch), total_size=total)
