"""
The memory backend: state lives in the process, by job, and dies with it.

For tests and for state that may be lost; a job that is opened again in the same process finds what it left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from threading import Lock
from typing import ClassVar

from attrs import define, field, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Markers
from millpond.errors import ConfigError, StateNotFoundError
from millpond.spi import (
    BATCH,
    SPI_VERSION,
    Capabilities,
    Change,
    Facet,
    RestoreTarget,
    Snapshot,
    StateBackendFactory,
    StoreSpec,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)

_MOST_LAYERS = 16


@frozen
class MemoryBackendConfig:
    """The memory backend has no settings."""


@frozen(eq=False)
class _Kept:
    """
    One store as of one commit: sorted layers of changes, oldest first, the lowest complete. Layers are shared.

    Attributes:
        epoch: Of the claim under which it was made.
        layers: What to lay over one another.
    """

    epoch: int
    layers: tuple[tuple[Change, ...], ...]

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Give every live key and its value, sorted."""
        return ((key, value) for key, value in _newest_of(self.layers) if value is not None)


def _newest_of(layers: Sequence[Iterable[Change]]) -> Iterator[Change]:
    """Merge sorted *layers*, oldest first; of one key's changes the last layer's wins."""
    pending: Change | None = None
    for change in merge(*layers, key=itemgetter(0)):  # stable: of equal keys the older layer's comes first
        if pending is not None and pending[0] != change[0]:
            yield pending
        pending = change
    if pending is not None:
        yield pending


@define
class _Shelf:
    """What one backend keeps for one task: by store and marker. Any thread may use it."""

    kept: dict[tuple[str, str], _Kept] = field(factory=dict)
    lock: Lock = field(factory=Lock)

    def get(self, store: str, marker: str | None) -> _Kept | None:
        """Give what *marker* names, or None."""
        with self.lock:
            return None if marker is None else self.kept.get((store, marker))


_SHELVES: dict[tuple[str, str, str, str], _Shelf] = {}
_LOCK = Lock()


def _shelf_of(task: TaskContext) -> _Shelf:
    key = (task.job.job, task.job.job_id, task.task, task.backend)
    with _LOCK:
        return _SHELVES.setdefault(key, _Shelf())


class MemoryBackend(StateBackendFactory):
    """Keeps every retained checkpoint's state in this process; another process sees none of it."""

    spi_version: ClassVar[tuple[int, int]] = SPI_VERSION
    config_class: ClassVar[type] = MemoryBackendConfig
    capabilities = Capabilities(facets=Facet.CHANGES | Facet.ITEMS, durable=False)

    def backup_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskBackupManager:
        """Make the manager that backs up *stores*."""
        if task.claim is None:
            raise ConfigError(f"the task {task.task!r} is not claimed: only a claimed task is backed up")
        return _MemoryBackup(task, task.claim, [store.name for store in stores])

    def restore_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskRestoreManager:
        """Make the manager that restores *stores*."""
        return _MemoryRestore(task)


class _MemoryBackup(TaskBackupManager):
    def __init__(self, task: TaskContext, claim: Claim, stores: Sequence[str]) -> None:
        self._backend = task.backend
        self._claim = claim
        self._stores = stores
        self._shelf = _shelf_of(task)

    def init(self, last: Checkpoint | None) -> Collection[str]:
        """Name the stores whose last marker another process made: its state died with it."""
        markers = last.markers.get(self._backend, {}) if last is not None else {}
        return [s for s in self._stores if s in markers and self._shelf.get(s, markers[s]) is None]

    def upload(self, snapshot: Snapshot, markers: Markers) -> Markers:
        """Keep the snapshot."""
        marker = f"{snapshot.id}-{self._claim.writer}"
        kept = {(store, marker): self._keep(snapshot, store) for store in snapshot.stores}
        with self._shelf.lock:
            self._shelf.kept.update(kept)
        return dict.fromkeys(snapshot.stores, marker)

    def _keep(self, snapshot: Snapshot, store: str) -> _Kept:
        base = snapshot.base(store)
        below = self._shelf.get(store, base[1]) if base is not None else None
        if below is None:
            return _Kept(self._claim.epoch, (_collect(snapshot, snapshot.items(store)),))
        layers = (*below.layers, _collect(snapshot, snapshot.changes(store)))
        if len(layers) > _MOST_LAYERS:
            layers = (_collect(snapshot, _Kept(self._claim.epoch, layers).items()),)
        return _Kept(self._claim.epoch, layers)

    def abandon(self, id: CheckpointId) -> None:
        """Drop what the upload of *id* kept."""
        self._drop({key for key in self._shelf.kept.copy() if key[1] == f"{id}-{self._claim.writer}"})

    def cleanup(self, retained: Sequence[Checkpoint]) -> None:
        """Drop what this claim and earlier ones kept for no checkpoint in *retained*; a later one's is not ours."""
        needed = {item for checkpoint in retained for item in checkpoint.markers.get(self._backend, {}).items()}
        kept = self._shelf.kept.copy()
        self._drop({key for key, state in kept.items() if key not in needed and state.epoch <= self._claim.epoch})

    def _drop(self, keys: Collection[tuple[str, str]]) -> None:
        with self._shelf.lock:
            for key in keys:
                self._shelf.kept.pop(key, None)


def _collect(snapshot: Snapshot, changes: Iterable[Change]) -> tuple[Change, ...]:
    collected: list[Change] = []
    source = iter(changes)
    while batch := list(islice(source, BATCH)):
        snapshot.check()
        collected += batch
    return tuple(collected)


class _MemoryRestore(TaskRestoreManager):
    def __init__(self, task: TaskContext) -> None:
        self._shelf = _shelf_of(task)

    def restore(self, target: RestoreTarget) -> None:
        """Write what the marker names."""
        kept = self._shelf.get(target.store, target.marker)
        if kept is None:
            raise StateNotFoundError(
                f"the memory backend holds no {target.marker} of store {target.store!r}: it was kept by a process that "
                "has ended, or was removed"
            )
        target.write(_watched(kept.items(), target))


def _watched(items: Iterator[tuple[bytes, bytes]], target: RestoreTarget) -> Iterator[Change]:
    while batch := list(islice(items, BATCH)):
        target.check()
        yield from batch
        target.progress(records=len(batch), size=sum(len(key) + len(value) for key, value in batch))
