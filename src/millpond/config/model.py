"""The checked configuration of a job, as frozen values: every name in it is resolved, every value has its type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from attrs import field, frozen

from millpond.checkpoint import Layout
from millpond.spi import CheckpointManager, StateBackendFactory, StoreEngine, StoreSpec, VersionPolicy

KeyPath = tuple[str | int, ...]
"""A place in a configuration: the keys from the top down, and the index within a list."""


def _frozen_map(mapping: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Copy *mapping* into a read-only view in the same order. A generic converter would be lost on mypy."""
    return MappingProxyType(dict(mapping))


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    """Copy *values* into a tuple."""
    return tuple(values)


@frozen
class Origin:
    """
    Where a value came from.

    Attributes:
        source: A file as the operator named it, ``environment``, ``mapping``, ``default``, ``Samza's default``, or
            another key that it follows from.
        line: The line in that file, from 1; None where there is none.
        key: The key as that source spells it, where it differs from ours: a Samza key, an environment variable.
    """

    source: str
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return place if self.key is None else f"{place} ({self.key})"


@frozen(kw_only=True)
class CheckpointConfig:
    """
    Where the records live, ``[checkpoint]``.

    Attributes:
        manager: The plugin's name, as the operator wrote it.
        factory: The plugin itself.
        settings: An instance of the plugin's ``config_class``.
        retain: How many checkpoints of each task stay restorable, at least 1.
        versions: Which checkpoint versions are written and read.
        allow_unfenced: The operator accepts a manager that cannot refuse a replaced writer.
    """

    manager: str
    factory: type[CheckpointManager]
    settings: object
    retain: int = 1
    versions: VersionPolicy = field(factory=VersionPolicy)
    allow_unfenced: bool = False


@frozen(kw_only=True)
class BackendConfig:
    """
    One state backend, ``[backends.<name>]``.

    Attributes:
        name: The section's name.
        type: The plugin's name, as the operator wrote it.
        factory: The plugin, made with its settings; it has done no I/O.
        settings: An instance of the plugin's ``config_class``.
        required: False: its failure is an event, and the commit goes on without it.
    """

    name: str
    type: str
    factory: StateBackendFactory
    settings: object = None
    required: bool = True

    @property
    def marker_key(self) -> str:
        """The key of its markers in a checkpoint."""
        return self.factory.marker_key or self.name


@frozen(kw_only=True)
class StoreConfig:
    """
    One store, ``[stores.<name>]``, with the job's defaults filled in.

    Attributes:
        name: Its name.
        engine: The engine's name, as the operator wrote it.
        engine_class: The engine itself.
        key: The name of the keys' serde.
        value: The name of the values' serde.
        backup: The sections of the backends that it is backed up to.
        restore: The sections of the backends that it is restored from, the first that still holds it.
        ephemeral: The operator accepts that it may begin empty after any restart.
        ttl: How long after its last write a value is visible; None: for ever.
        options: Its own options, in the engine's words.
        settings: The engine's settings for the job: an instance of its ``config_class``.
    """

    name: str
    engine: str
    engine_class: type[StoreEngine]
    key: str = "bytes"
    value: str = "bytes"
    backup: tuple[str, ...] = field(converter=_texts, default=())
    restore: tuple[str, ...] = field(converter=_texts, default=())
    ephemeral: bool = False
    ttl: timedelta | None = None
    options: Mapping[str, object] = field(converter=_frozen_map, factory=dict)
    settings: object = None

    @property
    def spec(self) -> StoreSpec:
        """The store as a plugin sees it."""
        return StoreSpec(name=self.name, engine=self.engine, options=self.options, settings=self.settings)


@frozen(kw_only=True)
class CommitConfig:
    """
    When commits happen and what they may cost, ``[commit]``.

    Attributes:
        interval: From one commit's start until the next is due; None: only when the host asks.
        timeout: From this age on a commit in flight is given up.
        tolerated_failures: How many commits in a row may fail before the host is told by an exception.
        tolerated_timeouts: How many commits in a row may time out before the host is told by an exception.
        startup_cleanup_timeout: How long opening a task waits for the clean-up of what earlier owners left.
    """

    interval: timedelta | None = timedelta(seconds=10)
    timeout: timedelta = timedelta(minutes=5)
    tolerated_failures: int = 0
    tolerated_timeouts: int = 0
    startup_cleanup_timeout: timedelta = timedelta(seconds=30)


@frozen(kw_only=True)
class RestoreConfig:
    """
    How state is given back, ``[restore]``.

    Attributes:
        on_damage: ``stop``, or ``older``: when no backend can give the newest checkpoint back, take offsets and all
            stores to the next older one together.
        parallel: How many stores of a task are restored at once.
        attempts: How often a backend is asked before a failure that may go away counts as final.
        max_wait: The longest pause between two attempts.
    """

    on_damage: Literal["stop", "older"] = "stop"
    parallel: int = 4
    attempts: int = 5
    max_wait: timedelta = timedelta(seconds=30)


@frozen(kw_only=True)
class JobConfig:
    """
    Everything that a job needs to know. Made by :func:`millpond.config.load`.

    Attributes:
        name: The job's name.
        id: Tells jobs of one name apart; ``"1"`` as in Samza.
        tasks: The names of all tasks, in the order of their partitions; None: not stated, and then not checked.
        partitioner: The name of the rule that sends a key to a task; part of the layout.
        state_dir: Where local state lives. Absolute.
        buffer_memory: Bytes of all writes of the job that are not yet in their engines.
        put_timeout: How long ``put`` waits for room in the buffer.
        transfer_threads: Threads for copying, hashing, uploading, downloading.
        transfer_memory: Bytes that transfers may hold in memory at once.
        digest: The algorithm for the digests of new images.
        checkpoint: Where the records live.
        backends: Section name to backend.
        stores: Store name to store.
        engines: Engine name to its settings for the job.
        hosts: For each ``[hosts.<name>]`` its table as it was written; :func:`millpond.config.host_settings` reads it.
        commit: When commits happen.
        restore: How state is given back.
        notes: Remarks on what was accepted but may surprise, a sentence each.
        origins: From a path of keys to where its value came from; a key that is missing here has its default.
    """

    name: str
    id: str = "1"
    tasks: tuple[str, ...] | None = None
    partitioner: str = "input"
    state_dir: Path
    buffer_memory: int = 256 << 20
    put_timeout: timedelta = timedelta(seconds=60)
    transfer_threads: int = 8
    transfer_memory: int = 128 << 20
    digest: Literal["blake3", "sha256"] = "blake3"
    checkpoint: CheckpointConfig
    backends: Mapping[str, BackendConfig] = field(converter=_frozen_map, factory=dict)
    stores: Mapping[str, StoreConfig] = field(converter=_frozen_map, factory=dict)
    engines: Mapping[str, object] = field(converter=_frozen_map, factory=dict)
    hosts: Mapping[str, Mapping[str, object]] = field(converter=_frozen_map, factory=dict, repr=False)
    commit: CommitConfig = field(factory=CommitConfig)
    restore: RestoreConfig = field(factory=RestoreConfig)
    notes: tuple[str, ...] = field(converter=_texts, default=(), eq=False)
    origins: Mapping[KeyPath, Origin] = field(converter=_frozen_map, factory=dict, eq=False, repr=False)

    @property
    def layout(self) -> Layout | None:
        """The tasks and the partitioner, where the configuration states them."""
        if self.tasks is None:
            return None
        return Layout(tasks=self.tasks, partitioner=self.partitioner)
