"""
Backs up the stores of one task to an object store.

A commit sends one pack: small files and change files of all dirty stores, then their manifests. Large files go before
it, in objects of their own. So whoever can read a manifest can read all that it names. A commit names objects of its
own and of the last published manifest only. Nothing that a retained checkpoint needs is removed, and what none needs
stays for a grace period.
"""

from __future__ import annotations

import logging
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from millpond.blob.body import BytesPiece, FilePiece, JoinedBody
from millpond.blob.layout import TaskKeys
from millpond.blob.lease import StoreLease
from millpond.blob.manifests import ManifestReader, Manifests
from millpond.blob.packing import Packer, Place, PlannedObject, worn
from millpond.blob.policy import Limits
from millpond.blob.retention import Superseded, earlier, in_batches, live_bytes, markers_of, needed_by, object_of
from millpond.blob.settings import BlobSettings
from millpond.blob.store import BlobStore, Body, BytesBody, FileBody
from millpond.blob.upload import Base, StoreUpload, describe, place_store, plan_store
from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Markers
from millpond.errors import ConfigError, StateCorruptError, TransientError
from millpond.events import BackupDecided, Event, ObjectsRemoved, ObjectsUploaded
from millpond.formats import blob_manifest
from millpond.formats.blob_manifest import BackupManifest
from millpond.formats.blob_marker import BlobMarker, ObjectName
from millpond.formats.digest import digest_bytes
from millpond.formats.pack import Tail, encode_footer
from millpond.local import explained, make_folders
from millpond.points import reached
from millpond.spi import Snapshot, TaskBackupManager, TaskContext

log = logging.getLogger("millpond.blob")

DELETE_BATCH = 1_000
"""Objects that are removed with one call."""

IN_MEMORY = 8 << 20
"""A body up to this size is held in memory; a larger one is read from its files while it is sent."""

RESERVED = 16 << 20
"""What sending one large object may hold in memory."""


class BlobBackup(TaskBackupManager):
    """Uploads one pack for a small commit. The engine's calls do not overlap."""

    def __init__(self, task: TaskContext, lease: StoreLease, settings: BlobSettings) -> None:
        self._task, self._lease, self._settings = task, lease, settings
        self._prefix = TaskKeys.of(task.job.job, task.job.job_id, task.task).data(task.backend)
        self._reader = ManifestReader(lease.store, self._prefix)
        self._claimed_s = task.job.clock.monotonic()
        self._uploads: dict[CheckpointId, list[str]] = {}
        self._superseded = Superseded()
        self._current: Mapping[str, BackupManifest] = {}
        self._gone: frozenset[str] = frozenset()
        self._packs_since_removal = 0
        self._swept = False

    # ------------------------------------------------------------------------------------------------ beginning

    def init(self, last: Checkpoint | None) -> Collection[str]:
        """Look whether all that the last checkpoint needs is there still; name the stores for which it is not."""
        if last is None:
            return ()
        markers = last.markers.get(self._task.backend, {})
        try:
            read = self._reader.read_many(set(markers.values()), self._task.job.transfers)
            listed = self._listed() if markers and self._store.capabilities.fresh_listing else None
        except TransientError as error:
            log.warning("task %r: the last backup could not be looked at: %s", self._task.task, error)
            return ()
        self._current = _by_store(markers, read)
        needed = {marker: needed_by(marker, manifest) for marker, manifest in read.found.items()}
        if listed is not None:
            self._gone = frozenset().union(*needed.values()) - listed
        return [
            store
            for store, marker in markers.items()
            if marker in read.lost or not self._gone.isdisjoint(needed[marker])
        ]

    def _listed(self) -> frozenset[str]:
        return frozenset(entry.key.removeprefix(self._prefix) for entry in self._store.list(self._prefix))

    # ------------------------------------------------------------------------------------------------ uploading

    def upload(self, snapshot: Snapshot, markers: Markers) -> Markers:
        """Send what the last published backup lacks, and give a marker for each store."""
        packer = Packer(lambda: self._new_object(snapshot.id), self._settings.alone)
        with self._scratch() as scratch:
            uploads = [self._plan(snapshot, store, scratch) for store in snapshot.stores]
            places: dict[tuple[str, int], Place] = {}
            for upload in uploads:
                places.update(place_store(upload, packer))
            manifests = [describe(upload, places, packer.sizes()) for upload in uploads]
            given = self._end_pack(packer, manifests)
            self._send(snapshot, packer)
        for marker, manifest in zip(given, manifests, strict=True):
            self._reader.keep(marker, manifest)
        return dict(zip(snapshot.stores, given, strict=True))

    def _plan(self, snapshot: Snapshot, store: str, scratch: Path) -> StoreUpload:
        snapshot.check()
        limits = Limits(changes=self._settings.changes, max_links=self._settings.max_links)
        upload = plan_store(snapshot, store, self._base(snapshot, store), limits, scratch)
        self._tell(
            BackupDecided(
                **self._where(),
                id=snapshot.id,
                backend=self._task.backend,
                store=store,
                way=upload.decision.way.value,
                reason=upload.decision.reason,
                size=upload.size,
                links=upload.links,
            )
        )
        return upload

    def _base(self, snapshot: Snapshot, store: str) -> Base:
        """Give what *store* may build on: the last published manifest, never one of a commit that failed."""
        published = snapshot.base(store)
        if published is None:
            return self._base_for_files(store)
        read = self._reader.read_many([published[1]], self._task.job.transfers)
        manifest = read.found.get(published[1])
        if manifest is None:
            return Base(why_not=f"the last manifest is lost: {read.lost[published[1]]}")
        broken = not self._gone.isdisjoint(needed_by(published[1], manifest))
        return Base(manifest=manifest, unfit=self._unfit(store, manifest), broken=broken)

    def _base_for_files(self, store: str) -> Base:
        """Without changes since a marker, files can still be those of the newest retained checkpoint."""
        manifest = self._current.get(store)
        if manifest is None:
            return Base()
        why = "the changes since the last backup are not at hand"
        return Base(manifest=manifest, unfit=self._unfit(store, manifest), no_changes=why)

    def _unfit(self, store: str, manifest: BackupManifest) -> frozenset[str]:
        """Give the objects from which nothing is taken over: those that are gone, and those that are worn."""
        known = {**self._current, store: manifest}
        sizes = {name: size for each in known.values() for name, size in each.objects.items()}
        return self._gone | worn(sizes, live_bytes(known.values()))

    def _end_pack(self, packer: Packer, manifests: Sequence[BackupManifest]) -> list[str]:
        encoded = [blob_manifest.encode(manifest) for manifest in manifests]
        places = packer.end(encoded, lambda start, length: encode_footer(Tail(start, length)))
        return [
            str(BlobMarker(place.object, place.start, len(data), digest_bytes(data)))
            for place, data in zip(places, encoded, strict=True)
        ]

    def _send(self, snapshot: Snapshot, packer: Packer) -> None:
        """Send all objects, the pack with the manifests last."""
        planned = [*packer.objects, packer.pack]
        for each in planned:
            self._refuse_too_large(each)
        self._task.job.transfers.map(self._put, packer.objects, snapshot.check)
        snapshot.check()
        reached("blob.objects-sent")
        self._put(packer.pack)
        self._packs_since_removal += 1
        reached("blob.pack-sent")
        size = sum(each.size for each in planned)
        self._tell(
            ObjectsUploaded(
                **self._where(), id=snapshot.id, backend=self._task.backend, objects=len(planned), size=size
            )
        )

    def _put(self, planned: PlannedObject) -> None:
        with self._task.job.transfers.reserve(min(planned.size, RESERVED)):
            with explained("read for an upload", self._task.scratch):
                body = _body(planned)
            self._store.put(self._prefix + planned.name, body)

    def _refuse_too_large(self, planned: PlannedObject) -> None:
        most = self._store.capabilities.max_object_bytes
        if most is not None and planned.size > most:
            raise ConfigError(
                f"{self._store.where(self._prefix)} takes objects up to {most} bytes, and one of {planned.size} has to "
                "go there: let the engine make smaller files, or use another store"
            )

    def _new_object(self, id: CheckpointId) -> str:
        name = str(ObjectName.new(self._claim.epoch, id))
        self._uploads.setdefault(id, []).append(name)
        self._superseded.known.add(name)
        return name

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        folder = self._task.scratch / f"upload-{secrets.token_hex(8)}"
        make_folders(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    # ------------------------------------------------------------------------------------------------- removing

    def abandon(self, id: CheckpointId) -> None:
        """Remove what the upload of *id* put there; what cannot be removed now goes with a later clean-up."""
        names = self._uploads.get(id, [])
        if names:
            self._remove(names, "their commit was given up")
        self._uploads.pop(id, None)

    def cleanup(self, retained: Sequence[Checkpoint]) -> None:
        """Remove what no checkpoint in *retained* has needed for the grace period; computed anew each time."""
        if not retained:
            return
        markers = markers_of(retained, self._task.backend)
        read = self._reader.read_many(markers, self._task.job.transfers)
        self._reader.forget_all_but(markers)
        needed = _needed(read)
        # A checkpoint that cannot be read may need any object that was there when it was made.
        after = max((markers[marker] for marker in read.lost), default=None)
        now_s, grace_s = self._task.job.clock.monotonic(), self._settings.grace.total_seconds()
        self._superseded.note(needed, now_s)
        self._current = _by_store(retained[0].markers.get(self._task.backend, {}), read)
        self._uploads.clear()
        self._remove_due(self._superseded.due(now_s, grace_s, after))
        if not self._swept and now_s - self._claimed_s >= grace_s:
            self._sweep(needed, after)

    def _remove_due(self, due: Sequence[str]) -> None:
        """Remove many at once, behind one commit of several."""
        if due and (self._packs_since_removal >= self._settings.cleanup_every or len(due) >= DELETE_BATCH):
            self._remove(due, "only superseded checkpoints needed them")
            self._packs_since_removal = 0

    def _sweep(self, needed: Collection[str], after: CheckpointId | None) -> None:
        """Remove what earlier epochs left; once, by a listing made now: what it does not show is left to ``gc``."""
        names = self._listed() - self._superseded.known
        self._remove(earlier(sorted(names), needed, self._claim.epoch, after), "earlier owners left them")
        self._swept = True

    def _remove(self, names: Sequence[str], reason: str) -> None:
        batches = in_batches(names, DELETE_BATCH)
        for batch in batches:
            reached("blob.before-removal")
            self._store.delete([self._prefix + name for name in batch])
            self._superseded.forget(batch)
        if names:
            self._tell(
                ObjectsRemoved(
                    **self._where(),
                    backend=self._task.backend,
                    objects=len(names),
                    requests=len(batches),
                    reason=reason,
                )
            )

    # -------------------------------------------------------------------------------------------------- all else

    def close(self) -> None:
        """Let go of the store; idempotent."""
        self._lease.close()

    @property
    def _store(self) -> BlobStore:
        return self._lease.store

    @property
    def _claim(self) -> Claim:
        if self._task.claim is None:
            raise ConfigError(f"task {self._task.task!r} is open for reading only: it has no claim to write under")
        return self._task.claim

    def _where(self) -> dict[str, str]:
        return {"job": self._task.job.job, "task": self._task.task}

    def _tell(self, event: Event) -> None:
        self._task.job.listener(event)


def _body(planned: PlannedObject) -> Body:
    """Give what is sent: from memory if it is small, else read from its files while it is sent."""
    if planned.size <= IN_MEMORY:
        return BytesBody(_read(planned))
    if len(planned.pieces) == 1 and isinstance(planned.pieces[0], FilePiece):
        return FileBody(planned.pieces[0].path, planned.size)
    return JoinedBody(planned.pieces)


def _read(planned: PlannedObject) -> bytes:
    data = b"".join(
        piece.data if isinstance(piece, BytesPiece) else piece.path.read_bytes() for piece in planned.pieces
    )
    if len(data) != planned.size:
        raise StateCorruptError(f"a file changed its size while it was uploaded: {planned.size} became {len(data)}")
    return data


def _needed(read: Manifests) -> frozenset[str]:
    """Give the objects that must stay; of a manifest that is lost, at least the one that should hold it."""
    names = {name for marker, manifest in read.found.items() for name in needed_by(marker, manifest)}
    names |= {name for marker in read.lost if (name := object_of(marker)) is not None}
    return frozenset(names)


def _by_store(markers: Markers, read: Manifests) -> dict[str, BackupManifest]:
    return {store: read.found[marker] for store, marker in markers.items() if marker in read.found}
