"""
How a task is opened: claimed, restored, made ready; and how all of it is let go.

The order is the guarantee: the local folder is owned before anything is claimed, so that a second process on this
machine disturbs nobody; the task is claimed before its record is read; the backup managers fence before anything is
restored; and nothing can be committed before every store is whole.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.commit import Backup, CommitEngine, CommitPolicy, CommitTask
from millpond.commit.stores import Backed, CommittedStore
from millpond.config import BackendConfig, JobConfig, StoreConfig
from millpond.errors import MillpondError, StoreClosedError, TransientError
from millpond.events import Event, TaskClaimed, TaskClosed, TaskRestored
from millpond.lanes import Lane, Workers
from millpond.local import TaskDirectory
from millpond.plugins import engine_class
from millpond.points import reached
from millpond.restore import Restored, RestoreEngine, RestorePolicy, RestoreTask, Source
from millpond.restore.engine import RestoreStore
from millpond.restore.live import open_live
from millpond.restore.plan import StoreWants
from millpond.spi import CheckpointManager, Facet, JobContext, TaskContext
from millpond.stores.budget import BufferBudget
from millpond.stores.buffer import BufferedStore
from millpond.stores.keyvalue import KeyValueStore
from millpond.stores.serdes import serde_named
from millpond.task import Task


@frozen(kw_only=True)
class JobParts:
    """
    What a job has for its tasks.

    Attributes:
        config: The configuration.
        context: What plugins may know.
        manager: Keeps the records.
        budget: Bounds the buffers of all stores.
        apply_workers: Serve the tasks' apply lanes.
        commit_workers: Serve the tasks' commit lanes.
        upload_workers: Serve the backends of one commit side by side.
    """

    config: JobConfig
    context: JobContext
    manager: CheckpointManager
    budget: BufferBudget
    apply_workers: Workers
    commit_workers: Workers
    upload_workers: Workers


@define(eq=False)
class TaskParts:
    """Everything that a task holds and must let go, as far as it has come."""

    job: JobParts
    name: str
    directory: TaskDirectory
    claim: Claim | None = None
    backups: list[Backup] = field(factory=list)
    sources: list[Source] = field(factory=list)
    live: Path | None = None
    buffered: dict[str, BufferedStore] = field(factory=dict)
    engine: CommitEngine | None = None

    def close(self, timeout_s: float) -> None:
        """
        Let go of everything, whatever fails on the way.

        Raises:
            TransientError: Something was still at work when the time was over.
        """
        deadline = time.monotonic() + timeout_s
        late = self._close_commits(timeout_s)
        late += self._close_each(
            [(f"store {name!r}", lambda s=store: s.close(_left(deadline))) for name, store in self.buffered.items()]
            + [(f"backend {backup.name!r}", backup.manager.close) for backup in self.backups]
            + [(f"backend {source.name!r}", source.manager.close) for source in self.sources]
        )
        if self.live is not None and not late:
            shutil.rmtree(self.live, ignore_errors=True)  # the next opening removes what is left of it
        self.directory.close()
        last = self.engine.last.id if self.engine is not None and self.engine.last is not None else None
        self.tell(TaskClosed(job=self.job.context.job, task=self.name, last=last))
        if late:
            raise TransientError(f"task {self.name!r} is closed, but not all of it ended: {'; '.join(late)}")

    def _close_commits(self, timeout_s: float) -> list[str]:
        if self.engine is None or self.engine.close(timeout_s):
            return []
        return [f"commit {self.engine.in_flight} is still at work after {timeout_s:g} s"]

    @staticmethod
    def _close_each(closings: Sequence[tuple[str, Callable[[], None]]]) -> list[str]:
        failed = []
        for what, close in closings:
            try:
                close()
            except Exception as error:  # noqa: BLE001 - told below; the rest has to be closed all the same
                failed.append(f"{what}: {error}")
        return failed

    def end_in_child(self) -> None:
        """Make every use raise, in a forked child: the threads stayed behind. Takes no lock: the parent may hold it."""
        if self.engine is not None:
            self.engine.over = StoreClosedError(f"task {self.name!r} was opened before a fork: open it in the child")
        for store in self.buffered.values():
            store.end_in_child()

    def tell(self, event: Event) -> None:
        """Tell the job's listener."""
        self.job.context.listener(event)


def open_task(job: JobParts, name: str, at: CheckpointId | str | None, timeout_s: float | None) -> tuple[Task, TaskParts]:
    """
    Claim the task *name*, restore it, and give it ready.

    Raises:
        TransientError: Another process owns its folder, or the restore did not end within *timeout_s* seconds.
        MillpondError: Whatever the restore or a plugin says; nothing is left open.
    """
    config = job.config
    begun = job.context.clock.monotonic()
    directory = TaskDirectory.open(config.state_dir, config.name, config.id, name)
    parts = TaskParts(job, name, directory)
    try:
        return _opened(parts, at, timeout_s, begun), parts
    except BaseException as error:
        if isinstance(error, MillpondError):
            error.add_note(f"while opening task {name!r} of job {config.name!r}")
        try:
            parts.close(timeout_s=5.0)
        except TransientError as late:
            error.add_note(str(late))
        raise


def _opened(parts: TaskParts, at: CheckpointId | str | None, timeout_s: float | None, begun: float) -> Task:
    job = parts.job
    parts.claim = claim = job.manager.claim(parts.name)
    parts.tell(TaskClaimed(job=job.context.job, task=parts.name, claim=claim))
    reached("restore.claimed")
    _make_managers(parts)
    restored = RestoreEngine(restore_task(parts), restore_policy(job.config), timeout_s).restore(at)
    lane = job.apply_workers.lane()
    _open_stores(parts, restored, lane)
    engine = _commit_engine(parts, restored, lane)
    engine.begin()
    duration_s = job.context.clock.monotonic() - begun
    last = None if restored.checkpoint is None else restored.checkpoint.id
    parts.tell(TaskRestored(job=job.context.job, task=parts.name, checkpoint=last, duration_s=duration_s))
    interval = job.config.commit.interval
    return Task(
        parts.name,
        engine,
        _key_value_stores(parts),
        tuple(parts.buffered.values()),
        job.context.clock,
        None if interval is None else interval.total_seconds(),
        parts.close,
        job.config.commit.timeout.total_seconds(),
    )


# ------------------------------------------------------------------------------------------------------ managers


def _make_managers(parts: TaskParts) -> None:
    stores = parts.job.config.stores.values()
    for backend in parts.job.config.backends.values():
        backed_up = [store.spec for store in stores if backend.name in store.backup]
        if backed_up:
            manager = backend.factory.backup_manager(_context(parts, backend), backed_up)
            parts.backups.append(
                Backup(backend.name, backend.marker_key, backend.factory.capabilities, backend.required, manager)
            )
    parts.sources.extend(make_sources(parts.job.config, lambda backend: _context(parts, backend)))


def make_sources(config: JobConfig, context: Callable[[BackendConfig], TaskContext]) -> list[Source]:
    """Make a restore manager of each backend that some store's restore list names."""
    sources = []
    for backend in config.backends.values():
        restored = [store.spec for store in config.stores.values() if backend.name in store.restore]
        if restored:
            manager = backend.factory.restore_manager(context(backend), restored)
            sources.append(Source(backend.name, backend.marker_key, manager))
    return sources


def _context(parts: TaskParts, backend: BackendConfig) -> TaskContext:
    directory = parts.directory
    return TaskContext(
        parts.job.context,
        parts.name,
        parts.claim,
        backend.marker_key,
        directory.backend(backend.name),
        directory.scratch(backend.name),
    )


# ------------------------------------------------------------------------------------------------------- restore


def restore_task(parts: TaskParts) -> RestoreTask:
    """Give what the restore engine needs of a task."""
    config = parts.job.config
    return RestoreTask(
        job=parts.job.context,
        task=parts.name,
        claim=parts.claim,
        manager=parts.job.manager,
        sources=parts.sources,
        directory=parts.directory,
        stores=restore_stores(config),
        backends=marker_keys(config),
    )


def restore_stores(config: JobConfig) -> list[RestoreStore]:
    """Give what the restore engine needs of each configured store."""
    return [
        RestoreStore(store.spec, store.engine_class, _wants(config, store), properties(store))
        for store in config.stores.values()
    ]


def marker_keys(config: JobConfig) -> dict[str, str]:
    """Give the marker key of each configured backend, and its name."""
    return {backend.marker_key: backend.name for backend in config.backends.values()}


def _wants(config: JobConfig, store: StoreConfig) -> StoreWants:
    restore = tuple((name, config.backends[name].marker_key) for name in store.restore)
    return StoreWants(store.name, restore, store.ephemeral)


def properties(store: StoreConfig) -> dict[str, str]:
    """Give what a store's manifest says besides: by which rules its bytes are to be read."""
    return {"key": store.key, "value": store.value, "expiring": "no" if store.ttl is None else "yes"}


def restore_policy(config: JobConfig) -> RestorePolicy:
    """Give the operator's decisions about restores."""
    restore = config.restore
    return RestorePolicy(
        older_on_damage=restore.on_damage == "older",
        parallel=restore.parallel,
        attempts=restore.attempts,
        max_wait_s=restore.max_wait.total_seconds(),
        algorithm=config.digest,
    )


# -------------------------------------------------------------------------------------------------------- stores


def _open_stores(parts: TaskParts, restored: Restored, lane: Lane) -> None:
    parts.live = live = parts.directory.new_live()
    for store in parts.job.config.stores.values():
        database = open_live(
            restored.images.get(store.name),
            store.spec,
            store.engine_class,
            live,
            parts.directory.scratch("images"),
            engine_class,
        )
        parts.buffered[store.name] = BufferedStore(
            store.name,
            database,
            lane,
            parts.job.budget,
            keep_changes=_reads_changes(parts.job.config, store),
            spill_directory=parts.directory.spill(),
            put_timeout_s=parts.job.config.put_timeout.total_seconds(),
            max_record_bytes=_largest_record(parts.job.config, store),
        )
        reached("restore.store-opened")


def _reads_changes(config: JobConfig, store: StoreConfig) -> bool:
    return any(Facet.CHANGES in config.backends[name].factory.capabilities.facets for name in store.backup)


def _largest_record(config: JobConfig, store: StoreConfig) -> int | None:
    limits = [config.backends[name].factory.capabilities.max_record_bytes for name in store.backup]
    return min((limit for limit in limits if limit is not None), default=None)


def _key_value_stores(parts: TaskParts) -> Mapping[str, KeyValueStore[Any, Any]]:
    config, clock = parts.job.config, parts.job.context.clock
    return {
        store.name: KeyValueStore(
            parts.buffered[store.name],
            serde_named(store.key, key=True),
            serde_named(store.value),
            ttl=store.ttl,
            clock=clock,
        )
        for store in config.stores.values()
    }


# ------------------------------------------------------------------------------------------------------- commits


def _commit_engine(parts: TaskParts, restored: Restored, lane: Lane) -> CommitEngine:
    job, claim = parts.job, parts.claim
    if claim is None:
        raise AssertionError("a task that only reads makes no commits")
    stores = [
        _committed(store, parts, restored) for store in job.config.stores.values() if store.backup
    ]
    task = CommitTask(
        job=job.context,
        claim=claim,
        manager=job.manager,
        backups=parts.backups,
        directory=parts.directory,
        properties={store.name: properties(store) for store in job.config.stores.values()},
        apply_lane=lane,
        commit_lane=job.commit_workers.lane(),
        uploads=job.upload_workers,
    )
    parts.engine = CommitEngine(task, commit_policy(job.config), stores, restored.checkpoint, restored.newest)
    return parts.engine


def _committed(store: StoreConfig, parts: TaskParts, restored: Restored) -> CommittedStore:
    keys = tuple(parts.job.config.backends[name].marker_key for name in store.backup)
    image = restored.images.get(store.name)
    backed = {} if image is None else _backed(store.name, keys, restored.checkpoint)
    return CommittedStore(
        store.spec,
        store.engine_class,
        parts.buffered[store.name],
        keys,
        image,
        backed=backed,
        unsent=set(keys) - set(backed),
    )


def _backed(store: str, keys: Sequence[str], checkpoint: Checkpoint | None) -> dict[str, Backed]:
    """Give what the restored checkpoint says of a store's backends: changes since are all at hand, from run 0 on."""
    if checkpoint is None:
        return {}
    markers = {key: checkpoint.markers.get(key, {}).get(store) for key in keys}
    return {key: Backed(checkpoint.id, marker, 0) for key, marker in markers.items() if marker is not None}


def commit_policy(config: JobConfig) -> CommitPolicy:
    """Give the operator's decisions about commits."""
    commit = config.commit
    return CommitPolicy(
        timeout_s=commit.timeout.total_seconds(),
        tolerated_failures=commit.tolerated_failures,
        tolerated_timeouts=commit.tolerated_timeouts,
        retain=config.checkpoint.retain,
        algorithm=config.digest,
        cleanup_wait_s=commit.startup_cleanup_timeout.total_seconds(),
    )


def _left(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


