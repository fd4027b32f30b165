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
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from attrs import define, field, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.commit import Backup, CommitEngine, CommitPolicy, CommitTask
from millpond.commit.stores import Backed, CommittedStore
from millpond.config import BackendConfig, JobConfig, StoreConfig
from millpond.errors import MillpondError, StateCorruptError, StoreClosedError, TransientError
from millpond.events import Event, TaskClaimed, TaskClosed, TaskRestored
from millpond.lanes import Lane, Workers
from millpond.local import TaskDirectory, read_manifest
from millpond.plugins import engine_class
from millpond.points import reached
from millpond.restore import Restored, RestoreEngine, RestorePolicy, RestoreTask, Source
from millpond.restore.engine import RestoreStore
from millpond.restore.live import open_live
from millpond.restore.plan import StoreWants
from millpond.spi import CheckpointManager, Facet, JobContext, StoreEngine, TaskContext
from millpond.stores.budget import BufferBudget
from millpond.stores.buffer import BufferedStore
from millpond.stores.images import Image
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
        closing: Ends when the job is being closed: restores are then interrupted.
    """

    config: JobConfig
    context: JobContext
    manager: CheckpointManager
    budget: BufferBudget
    apply_workers: Workers
    commit_workers: Workers
    upload_workers: Workers
    closing: Future[None] = field(factory=Future)


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
    restoring: RestoreEngine | None = None
    lanes: list[Lane] = field(factory=list)
    _working: list[Future[Any]] = field(factory=list)

    def close(self, timeout_s: float) -> None:
        """
        Let go of everything, whatever fails on the way.

        The folder is let go last, and never while something still works in it: then it is when that has ended, and
        until then the task cannot be opened again here.

        Raises:
            TransientError: Something was still at work when the time was over.
        """
        deadline = time.monotonic() + timeout_s
        late = self._close_commits(timeout_s) + self._await_restore(deadline)
        late += self.close_stores(max(deadline, time.monotonic() + _SHORT_S))
        late += self._close_managers(max(deadline, time.monotonic() + _SHORT_S))
        if self.live is not None and not late:
            shutil.rmtree(self.live, ignore_errors=True)  # the next opening removes what is left of it
        self._let_go_of_folder(late)
        last = self.engine.last.id if self.engine is not None and self.engine.last is not None else None
        self.tell(TaskClosed(job=self.job.context.job, task=self.name, last=last))
        if late:
            raise TransientError(f"task {self.name!r} is closed, but not all of it ended: {'; '.join(late)}")

    def _close_commits(self, timeout_s: float) -> list[str]:
        if self.engine is None or self.engine.close(timeout_s):
            return []
        at_work = self.engine.in_flight
        what = "the clean-up at the start" if at_work is None else f"commit {at_work}"
        return [f"{what} is still at work after {timeout_s:g} s"]

    def _await_restore(self, deadline: float) -> list[str]:
        working = [] if self.restoring is None else self.restoring.working
        pending = wait(working, _left(deadline)).not_done
        self._working += pending
        return [f"the restore of {len(pending)} stores is still at work"] if pending else []

    def drop_live(self) -> None:
        """Close the stores that were opened so far, and forget them."""
        if late := self.close_stores(time.monotonic() + _STORES_S):
            raise TransientError("; ".join(late))
        self.buffered.clear()
        if self.live is not None:
            shutil.rmtree(self.live, ignore_errors=True)  # the next opening removes what is left of it

    def close_stores(self, deadline: float) -> list[str]:
        """Close the stores; say what did not end in time or failed."""
        failed = []
        for name, store in self.buffered.items():
            try:
                store.close(_left(deadline))
            except Exception as error:  # noqa: BLE001 - told by the caller; the rest has to be closed all the same
                failed.append(f"store {name!r}: {error}")
        return failed

    def _close_managers(self, deadline: float) -> list[str]:
        """Close the managers, side by side since any of them may hang; say what did not end in time or failed."""
        managers = [(backup.name, backup.manager.close) for backup in self.backups]
        managers += [(source.name, source.manager.close) for source in self.sources]
        if not managers:
            return []
        workers = Workers("close", len(managers))
        closing = [(name, workers.submit(close)) for name, close in managers]
        workers.close(_left(deadline))
        self._working += [future for _, future in closing if not future.done()]
        failed = [(name, _failure(future)) for name, future in closing]
        return [f"backend {name!r}: {failure}" for name, failure in failed if failure]

    def _let_go_of_folder(self, late: Sequence[str]) -> None:
        if late:
            with suppress(StoreClosedError):  # the threads of the job have ended
                self._working += [lane.submit(_nothing) for lane in self.lanes]
        _when_all_ended(self._working, self.directory.close)

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
    parts.restoring = RestoreEngine(restore_task(parts), restore_policy(job.config), timeout_s)
    parts.lanes = [job.apply_workers.lane(), job.commit_workers.lane()]
    restored = _restored_and_opened(parts, parts.restoring, at)
    engine = _commit_engine(parts, restored)
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
        closing=parts.job.closing,
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


def _restored_and_opened(parts: TaskParts, engine: RestoreEngine, at: CheckpointId | str | None) -> Restored:
    """
    Restore all stores and open them.

    An image that its engine cannot open is damaged although its names and sizes are right: once for each store, it
    goes to quarantine and the backends are asked.
    """
    distrusted: set[str] = set()
    while True:
        restored = engine.restore(at)
        try:
            _open_stores(parts, restored)
        except _DamagedImageError as damage:
            if damage.image.store in distrusted:
                raise damage.error from None
            distrusted.add(damage.image.store)
            parts.drop_live()
            engine.quarantine(damage.image.store, damage.image.name, damage.error)
        else:
            return restored


class _DamagedImageError(Exception):
    def __init__(self, image: Image, error: StateCorruptError) -> None:
        super().__init__(str(error))
        self.image = image
        self.error = error


def _open_stores(parts: TaskParts, restored: Restored) -> None:
    parts.live = live = parts.directory.new_live()
    for store in parts.job.config.stores.values():
        database = _live_database(parts, store, restored.images.get(store.name), live)
        parts.buffered[store.name] = BufferedStore(
            store.name,
            database,
            parts.lanes[0],
            parts.job.budget,
            keep_changes=_reads_changes(parts.job.config, store),
            spill_directory=parts.directory.spill(),
            put_timeout_s=parts.job.config.put_timeout.total_seconds(),
            max_record_bytes=_largest_record(parts.job.config, store),
        )
        reached("restore.store-opened")


def _live_database(parts: TaskParts, store: StoreConfig, image: Image | None, live: Path) -> StoreEngine:
    scratch = parts.directory.scratch("images")
    try:
        return open_live(image, store.spec, store.engine_class, live, scratch, engine_class)
    except StateCorruptError as error:
        if image is None:
            raise
        raise _DamagedImageError(image, error) from error


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


def _commit_engine(parts: TaskParts, restored: Restored) -> CommitEngine:
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
        apply_lane=parts.lanes[0],
        commit_lane=parts.lanes[1],
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
        # An image of another engine is not gone on with: the first commit makes one of the configured engine.
        image if image is not None and read_manifest(image.path).engine == store.engine else None,
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


# ------------------------------------------------------------------------------------------------------- closing

_SHORT_S = 1.0
"""What is left for the next step of closing when the one before took all the time."""

_STORES_S = 30.0
"""How long stores that were just opened may take to close."""


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _nothing() -> None:
    """Take a turn in a lane, behind all that was there before."""


def _failure(closing: Future[None]) -> str | None:
    """Say what is wrong with a *closing*; None: nothing."""
    if not closing.done():
        return "its close() has not ended"
    error = closing.exception()
    return None if error is None else f"{type(error).__name__}: {error}"


def _when_all_ended(working: Sequence[Future[Any]], then: Callable[[], None]) -> None:
    """Call *then* when all of *working* have ended: right now, or on the thread on which the last one does."""
    left = set(working)
    lock = Lock()

    def ended(one: Future[Any]) -> None:
        with lock:
            left.discard(one)
            last = not left
        if last:
            then()

    for future in working:
        future.add_done_callback(ended)
    if not working:
        then()


