"""Probes a job's place in an object store, and finds there what no checkpoint needs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial

from attrs import frozen

from millpond.blob.layout import AFTER_ALL, TaskKeys, job_prefix
from millpond.blob.lease import SharedStore
from millpond.blob.listing import has_any, task_folders
from millpond.blob.manifests import ManifestReader
from millpond.blob.probe import probe_data
from millpond.blob.retention import markers_of, needed_by, object_of
from millpond.blob.store import BlobEntry, BlobStore, Unfinished
from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.formats.blob_marker import ObjectName
from millpond.spi import Garbage, JobContext, StateBackendAdmin

log = logging.getLogger("millpond.blob")

FAILED = "no retained checkpoint needs it: a commit that failed, or an earlier owner, left it"
DEAD = "no checkpoint of this task is left"
PROBE = "a check of the store left it"
UPLOAD = "an upload was begun and never finished"


@frozen
class BlobGarbage(Garbage):
    """
    An object that may go.

    Attributes:
        key: Its key.
    """

    key: str = ""


class BlobAdmin(StateBackendAdmin):
    """Probes and tidies a job's place in an object store."""

    def __init__(self, job: JobContext, backend: str, shared: SharedStore) -> None:
        self._job, self._backend, self._shared = job, backend, shared
        self._prefix = job_prefix(job.job, job.job_id)

    def validate_resources(self) -> None:
        """Try permissions, ranged reads and listings, and compare clocks."""
        with self._shared.leased(self._job) as store:
            probe_data(store, self._prefix, self._job.clock)

    def garbage(self, retained: Mapping[str, Sequence[Checkpoint]], grace: timedelta) -> Iterator[Garbage]:
        """
        Find objects below the job's prefix that no checkpoint needs and that are older than *grace* by the store's
        clock.

        Only looks. Live writers are not disturbed: what they upload is young, and what they build on is retained.
        Without any task in *retained* nothing is found: then most likely the wrong records were asked.
        """
        if not retained:
            return
        with self._shared.leased(self._job) as store:
            search = Search(store, store.now() - grace // timedelta(milliseconds=1), self._remove_all, self._abort)
            for task in list(task_folders(store, self._prefix)):
                keys = TaskKeys.of(self._job.job, self._job.job_id, task)
                if task in retained:
                    yield from self._of_task(search, keys.data(self._backend), retained[task])
                elif not has_any(store, keys.records) and not has_any(store, keys.pins):
                    yield from search.objects(keys.data(self._backend), (), None, DEAD)
                    yield from search.uploads(keys.data(self._backend))
            yield from search.objects(f"{self._prefix}.probe-", (), None, PROBE)

    def _of_task(self, search: Search, prefix: str, retained: Sequence[Checkpoint]) -> Iterator[Garbage]:
        markers = markers_of(retained, self._backend)
        read = ManifestReader(search.store, prefix).read_many(markers, self._job.transfers)
        needed = {name for marker, manifest in read.found.items() for name in needed_by(marker, manifest)}
        needed |= {name for marker in read.lost if (name := object_of(marker)) is not None}
        after = max((markers[marker] for marker in read.lost), default=None)
        if after is not None:
            log.warning("%s: a manifest of checkpoint %s cannot be read: what is older stays", prefix, after)
        yield from search.objects(prefix, needed, after, FAILED)
        yield from search.uploads(prefix)

    def _abort(self, upload: Unfinished) -> None:
        """Drop an upload, maybe long after it was found: the store that found it may be closed."""
        with self._shared.leased(self._job) as store:
            store.abort(upload)

    def _remove_all(self, garbage: Sequence[Garbage]) -> None:
        keys = [each.key for each in garbage if isinstance(each, BlobGarbage) and each.key.startswith(self._prefix)]
        with self._shared.leased(self._job) as store:
            store.delete(keys)


@frozen
class Search:
    """
    Looks for objects that may go.

    Attributes:
        store: Where.
        before: What was made after this, in milliseconds by the store's clock, is left alone.
        remove_all: Removes what was found.
        abort: Drops an upload that was found.
    """

    store: BlobStore
    before: int
    remove_all: Callable[[Sequence[Garbage]], None]
    abort: Callable[[Unfinished], None]

    def objects(
        self, prefix: str, needed: Collection[str], after: CheckpointId | None, reason: str
    ) -> Iterator[Garbage]:
        """Give old objects below *prefix* that are not *needed*, and are of a commit after *after*."""
        for entry in self.store.list(prefix):
            name = entry.key.removeprefix(prefix)
            strange = not entry.key.startswith(prefix) or entry.key >= prefix + AFTER_ALL
            if strange or entry.millis > self.before or name in needed:
                continue
            parsed = ObjectName.parse(name)
            if reason == PROBE or (parsed is not None and (after is None or parsed.id > after)):
                yield self._garbage(entry, reason)

    def uploads(self, prefix: str) -> Iterator[Garbage]:
        """Give old uploads below *prefix* that nobody has finished."""
        for upload in self.store.unfinished(prefix):
            if upload.key.startswith(prefix) and upload.millis <= self.before:
                yield Garbage(self.store.where(upload.key), UPLOAD, None, partial(self.abort, upload))

    def _garbage(self, entry: BlobEntry, reason: str) -> Garbage:
        found: BlobGarbage

        def remove() -> None:
            self.remove_all([found])

        found = BlobGarbage(self.store.where(entry.key), reason, entry.size, remove, self.remove_all, entry.key)
        return found
