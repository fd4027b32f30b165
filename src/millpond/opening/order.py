"""
How a task is opened: claimed, restored, made ready.

The order is the guarantee: the local folder is owned before anything is claimed, so that a second process on this
machine disturbs nobody; the task is claimed before its record is read; the backup managers fence before anything is
restored; and nothing can be committed before every store is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from millpond.answers import answer, role_answer
from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.commit import Backup, CommitEngine, CommitTask
from millpond.commit.stores import Backed, Committable, CommittedStore
from millpond.config import BackendConfig, JobConfig, StoreConfig
from millpond.errors import ConfigError, MillpondError, StateCorruptError, TransientError
from millpond.events import TaskClaimed, TaskRestored
from millpond.local import TaskDirectory, read_manifest
from millpond.opening.parts import JobParts, TaskParts
from millpond.opening.wiring import (
    commit_policy,
    largest_record,
    marker_keys,
    properties,
    reads_changes,
    restore_policy,
    restore_stores,
)
from millpond.patience import Patience
from millpond.plugins import engine_class
from millpond.points import reached
from millpond.restore import Restored, RestoreEngine, RestoreTask, Source
from millpond.restore.live import open_live
from millpond.spi import (
    Checkpointable,
    Facet,
    StoreEngine,
    StoreSpec,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)
from millpond.stores.buffer import BufferedStore
from millpond.stores.host import HostDatabase, HostEngine
from millpond.stores.images import Image
from millpond.stores.keyvalue import KeyValueStore
from millpond.stores.serdes import serde_named
from millpond.task import Task


def open_task(
    job: JobParts,
    name: str,
    at: CheckpointId | str | None,
    patience: Patience,
    databases: Mapping[str, Checkpointable],
    keep: Callable[[Task, TaskParts], None],
) -> Task:
    """
    Claim the task *name*, restore it, and give it ready; *patience* waits for what may hang.

    *keep* takes it over, to close it some day; whatever it raises closes it now.

    Raises:
        TransientError: Another process owns its folder, or the opening did not end in time.
        MillpondError: Whatever the restore or a plugin says; nothing is left open.
    """
    config = job.config
    _check_databases(config, databases)
    begun = job.context.clock.monotonic()
    directory = TaskDirectory.open(config.state_dir, config.name, config.id, name)
    hosted = {store: HostDatabase(store, database) for store, database in databases.items()}
    parts = TaskParts(job, name, directory, patience, hosted=hosted)
    try:
        task = _opened(parts, at, begun)
        keep(task, parts)
        return task
    except BaseException as error:
        if isinstance(error, MillpondError):
            error.add_note(f"while opening task {name!r} of job {config.name!r}")
        try:
            parts.close(timeout_s=5.0)
        except TransientError as late:
            error.add_note(str(late))
        raise


def _check_databases(config: JobConfig, databases: Mapping[str, Checkpointable]) -> None:
    """Refuse a host's database without its store, a store without its database, and backends that would read keys."""
    hosted = {name: store for name, store in config.stores.items() if issubclass(store.engine_class, HostEngine)}
    for name in sorted(databases.keys() - hosted.keys()):
        raise ConfigError(
            f'databases names {name!r}, and the configuration has no store of that name with engine = "host"'
        )
    for name in sorted(hosted.keys() - databases.keys()):
        raise ConfigError(
            f'store {name!r} has engine = "host": give its database to open_task(databases={{{name!r}: ...}})'
        )
    for name, store in hosted.items():
        for backend in store.backup:
            if Facet.DIRECTORY not in config.backends[backend].factory.capabilities.facets:
                raise ConfigError(
                    f'store {name!r} has engine = "host", so it is backed up as a folder, and backend {backend!r} '
                    f"reads no folders: choose another backend for it"
                )


def _opened(parts: TaskParts, at: CheckpointId | str | None, begun: float) -> Task:
    job, patience = parts.job, parts.patience
    given = patience.ask(lambda: job.manager.claim(parts.name), "claiming it")
    parts.claim = claim = answer(given, Claim, "the checkpoint manager", "claim")
    parts.tell(TaskClaimed(job=job.context.job, task=parts.name, claim=claim))
    reached("restore.claimed")
    _make_managers(parts)
    task, policy = _restore_task(parts), restore_policy(job.config)
    parts.restoring = RestoreEngine(task, policy, patience.left(), patience.ask)
    parts.lanes = [job.apply_workers.lane(), job.commit_workers.lane()]
    restored = _restored_and_opened(parts, parts.restoring, at)
    engine = _commit_engine(parts, restored)
    engine.begin(patience.ask)
    duration_s = job.context.clock.monotonic() - begun
    last = None if restored.checkpoint is None else restored.checkpoint.id
    parts.tell(TaskRestored(job=job.context.job, task=parts.name, checkpoint=last, duration_s=duration_s))
    interval = job.config.commit.interval
    return Task(
        parts.name,
        engine,
        _key_value_stores(parts),
        parts.images,
        tuple(parts.buffered.values()),
        job.context.clock,
        None if interval is None else interval.total_seconds(),
        parts.close,
        job.config.commit.timeout.total_seconds(),
    )


# ------------------------------------------------------------------------------------------------------------- managers


def _make_managers(parts: TaskParts) -> None:
    stores = parts.job.config.stores.values()
    for backend in parts.job.config.backends.values():
        backed_up = [store.spec for store in stores if backend.name in store.backup]
        if backed_up:
            manager = parts.patience.make(
                partial(backend.factory.backup_manager, _context(parts, backend), backed_up),
                f"backend {backend.name!r} makes its backup manager",
                lambda late: late.close(),
            )
            role_answer(manager, TaskBackupManager, f"backend {backend.name!r}", "backup_manager")
            parts.backups.append(
                Backup(backend.name, backend.marker_key, backend.factory.capabilities, backend.required, manager)
            )
    for backend, restored in restoring_backends(parts.job.config):
        asked = partial(source_of, backend, _context(parts, backend), restored)
        doing = f"backend {backend.name!r} makes its restore manager"
        parts.sources.append(parts.patience.make(asked, doing, lambda source: source.manager.close()))


def restoring_backends(config: JobConfig) -> Iterator[tuple[BackendConfig, list[StoreSpec]]]:
    """Give each backend that some store's restore list names, and those stores."""
    for backend in config.backends.values():
        restored = [store.spec for store in config.stores.values() if backend.name in store.restore]
        if restored:
            yield backend, restored


def source_of(backend: BackendConfig, context: TaskContext, stores: Sequence[StoreSpec]) -> Source:
    """Make the restore manager of *backend* for *stores*."""
    manager = backend.factory.restore_manager(context, stores)
    role_answer(manager, TaskRestoreManager, f"backend {backend.name!r}", "restore_manager")
    return Source(backend.name, backend.marker_key, manager)


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


# -------------------------------------------------------------------------------------------------------------- restore


def _restore_task(parts: TaskParts) -> RestoreTask:
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
        closing=parts.patience.closing,
        engine_named=engine_class,
    )


# --------------------------------------------------------------------------------------------------------------- stores


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
        image = restored.images.get(store.name)
        if store.name in parts.hosted:
            if image is not None:
                parts.images[store.name] = image.path
            continue
        database = _live_database(parts, store, image, live)
        parts.buffered[store.name] = BufferedStore(
            store.name,
            database,
            parts.lanes[0],
            parts.job.budget,
            keep_changes=reads_changes(parts.job.config, store),
            spill_directory=parts.directory.spill(),
            put_timeout_s=parts.job.config.put_timeout.total_seconds(),
            max_record_bytes=largest_record(parts.job.config, store),
        )
        reached("restore.store-opened")


def _live_database(parts: TaskParts, store: StoreConfig, image: Image | None, live: Path) -> StoreEngine:
    scratch = parts.directory.clones()
    opening = partial(open_live, image, store.spec, store.engine_class, live, scratch, engine_class)
    try:
        return parts.patience.make(opening, f"the engine opens store {store.name!r}", lambda late: late.close())
    except StateCorruptError as error:
        if image is None:
            raise
        raise _DamagedImageError(image, error) from error


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
        if store.name in parts.buffered
    }


# -------------------------------------------------------------------------------------------------------------- commits


def _commit_engine(parts: TaskParts, restored: Restored) -> CommitEngine:
    job, claim = parts.job, parts.claim
    if claim is None:
        raise AssertionError("a task that only reads makes no commits")
    stores = [_committed(store, parts, restored) for store in job.config.stores.values() if store.backup]
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
    committable: Committable = parts.hosted[store.name] if store.name in parts.hosted else parts.buffered[store.name]
    return CommittedStore(
        store.spec,
        store.engine_class,
        committable,
        keys,
        # An image of another engine is not gone on with: the first commit makes one of the configured engine.
        image if image is not None and read_manifest(image.path).engine == store.engine else None,
        backed=backed,
        unsent=set(keys) - set(backed),
        hosted=store.name in parts.hosted,
    )


def _backed(store: str, keys: Sequence[str], checkpoint: Checkpoint | None) -> dict[str, Backed]:
    """Give what the restored checkpoint says of a store's backends: changes since are all at hand, from run 0 on."""
    if checkpoint is None:
        return {}
    markers = {key: checkpoint.markers.get(key, {}).get(store) for key in keys}
    return {key: Backed(checkpoint.id, marker, 0) for key, marker in markers.items() if marker is not None}
