"""One store as one checkpoint has it: restored into a temporary folder, and opened for reading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, cast

from attrs import evolve

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.config import StoreConfig
from millpond.errors import ConfigError, MillpondError, StateCorruptError, StateNotFoundError, TransientError
from millpond.local import TaskDirectory, read_manifest
from millpond.opening import properties, restore_policy
from millpond.plugins import engine_class
from millpond.reading.job import RACES, JobReader
from millpond.restore import RestoreEngine, RestoreTask, Source
from millpond.restore.parts import RestoreStore
from millpond.restore.plan import StoreWants
from millpond.spi import StoreEngine, StoreSpec
from millpond.stores.buffer import BufferedStore
from millpond.stores.images import Image, opened
from millpond.stores.keyvalue import KeyValueStore
from millpond.stores.serdes import serde_named


@contextmanager
def open_store(
    reader: JobReader, task: str, store: str, at: str | None = None
) -> Iterator[tuple[CheckpointId, KeyValueStore[Any, Any]]]:
    """
    Restore *store* of *task* as the newest checkpoint has it, or the one that *at* names, and open it for reading.

    Gives the checkpoint's id and the store, which refuses writes. The store and its files are gone after the block.

    Raises:
        StateNotFoundError: There is no such task, store or checkpoint, or no backend holds the store.
        StateCorruptError: No backend holds it whole.
        ConfigError: The configuration does not fit the checkpoint, e.g. by another serde.
    """
    reader.check_task(task)
    configured = reader.store(store)
    with reader.workplace(task) as workplace, relative_paths(workplace):
        id, image = _restore_newest(reader, task, configured, at, workplace)
        with opened_image(image, configured, workplace) as engine:
            yield id, _key_value_store(reader, configured, engine)


@contextmanager
def relative_paths(workplace: TaskDirectory) -> Iterator[None]:
    """Take the paths of *workplace* out of the block's errors: they are gone when somebody reads of them."""
    try:
        yield
    except (StateCorruptError, StateNotFoundError) as error:
        folder = re.compile(re.escape(str(workplace.root)) + r"/images/[^/]+/[^/]+/")
        for each in (error, error.__cause__):
            if isinstance(each, MillpondError):
                each.args = (folder.sub("", str(each)),)
        raise


def restore_one(
    reader: JobReader,
    task: str,
    store: StoreConfig,
    id: CheckpointId,
    sources: Sequence[Source],
    workplace: TaskDirectory,
) -> Image | None:
    """Restore one store of checkpoint *id* from *sources*, in order; None if the checkpoint does not hold it."""
    wants = StoreWants(store.name, tuple((source.name, source.key) for source in sources), store.ephemeral)
    policy = evolve(restore_policy(reader.config), older_on_damage=False)
    restore = RestoreTask(
        job=reader.context,
        task=task,
        claim=None,
        manager=reader.manager,
        sources=sources,
        directory=workplace,
        stores=[RestoreStore(store.spec, store.engine_class, wants, properties(store))],
        backends={backend.marker_key: backend.name for backend in reader.config.backends.values()},
        engine_named=engine_class,
    )
    return RestoreEngine(restore, policy, None).restore(id).images.get(store.name)


@contextmanager
def opened_image(image: Image, store: StoreConfig, workplace: TaskDirectory) -> Iterator[StoreEngine]:
    """Open a restored image for reading, by the engine that made it."""
    made_by = read_manifest(image.path).engine
    engine, spec = store.engine_class, store.spec
    if made_by != store.engine:
        engine, spec = engine_class(made_by), StoreSpec(store.name, made_by)
    with opened(image.path, engine, spec, workplace.clones()) as database:
        yield database


def _restore_newest(
    reader: JobReader, task: str, store: StoreConfig, at: str | None, workplace: TaskDirectory
) -> tuple[CheckpointId, Image]:
    """Restore the store; a checkpoint that a live job superseded meanwhile gives way to the newer one."""
    checkpoint = reader.checkpoint(task, at)
    with reader.sources(task, store.restore, workplace) as sources:
        for _ in range(RACES):
            try:
                return checkpoint.id, _restored(reader, task, store, checkpoint, sources, workplace)
            except StateNotFoundError:
                newest = reader.checkpoint(task, at)
                if newest.id == checkpoint.id:
                    raise
                checkpoint = newest
    raise TransientError(
        f"task {task!r}: a live job supersedes its checkpoints faster than one can be read: pin one, and read that"
    )


def _restored(
    reader: JobReader,
    task: str,
    store: StoreConfig,
    checkpoint: Checkpoint,
    sources: Sequence[Source],
    workplace: TaskDirectory,
) -> Image:
    image = restore_one(reader, task, store, checkpoint.id, sources, workplace)
    if image is None:
        why = "it is ephemeral" if store.ephemeral else "it was new then"
        raise StateNotFoundError(f"checkpoint {checkpoint.id} of task {task!r} has no store {store.name!r}: {why}")
    return image


def _key_value_store(reader: JobReader, store: StoreConfig, engine: StoreEngine) -> KeyValueStore[Any, Any]:
    # Of a buffered store, KeyValueStore uses these five verbs and the name.
    records = cast(BufferedStore, _ReadOnlyRecords(store.name, engine))
    key, value = serde_named(store.key, key=True), serde_named(store.value)
    return KeyValueStore(records, key, value, ttl=store.ttl, clock=reader.context.clock)


class _ReadOnlyRecords:
    """An engine's records, with the verbs of a buffered store; those that write raise."""

    def __init__(self, name: str, engine: StoreEngine) -> None:
        self.name = name
        self._engine = engine

    def get(self, key: bytes, default: Any = None) -> Any:
        """Give the value of *key*, or *default*."""
        value = self._engine.get(key)
        return default if value is None else value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Give the values of *keys*, in order."""
        return self._engine.get_many(keys)

    def scan(
        self, start: bytes | None = None, stop: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Give the entries from *start* to *stop*, in reverse if so."""
        return self._engine.scan(start, stop, reverse)

    def put(self, key: bytes, value: bytes) -> NoReturn:
        """Refuse."""
        raise ConfigError(f"store {self.name!r} is open for reading only")

    def delete(self, key: bytes) -> NoReturn:
        """Refuse."""
        raise ConfigError(f"store {self.name!r} is open for reading only")
