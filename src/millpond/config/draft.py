"""A configuration whose sections are read and whose plugins are found as far as they can be, before it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from attrs import field, frozen

from millpond.config.model import BackendConfig, CheckpointConfig, CommitConfig, KeyPath, RestoreConfig
from millpond.config.sections import JobSection, StoreSection
from millpond.spi import StoreEngine


@frozen(kw_only=True)
class StoreDraft:
    """
    A store with the job's defaults filled in.

    Attributes:
        backup_path, restore_path: The keys that say what the two lists are.
        restore_given: Somebody wrote the restore list; otherwise it follows the backup list.
    """

    name: str
    engine: str | None = None
    key: str = "bytes"
    value: str = "bytes"
    backup: tuple[str, ...] = ()
    restore: tuple[str, ...] = ()
    backup_path: KeyPath = ()
    restore_path: KeyPath = ()
    restore_given: bool = False
    ephemeral: bool = False
    ttl: timedelta | None = None
    options: Mapping[str, object] = field(factory=dict)


@frozen(kw_only=True)
class Draft:
    """
    Everything that is known of a job. None stands for what has a problem already.

    Attributes:
        engines: The class of each engine that a store names.
        engine_sections: The names in ``[engines]``.
        settings: The engines' settings for the job.
        hosts: For each name in ``[hosts]`` its table, which the host itself reads.
        state_dir: Absolute.
        state_dir_given: Somebody wrote it.
    """

    job: JobSection = field(factory=JobSection)
    checkpoint: CheckpointConfig | None = None
    backends: Mapping[str, BackendConfig | None] = field(factory=dict)
    stores: Mapping[str, StoreDraft] = field(factory=dict)
    engines: Mapping[str, type[StoreEngine] | None] = field(factory=dict)
    engine_sections: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(factory=dict)
    hosts: Mapping[str, Mapping[str, object]] = field(factory=dict)
    commit: CommitConfig = field(factory=CommitConfig)
    restore: RestoreConfig = field(factory=RestoreConfig)
    state_dir: Path = Path("/")
    state_dir_given: bool = True


def draft_store(
    name: str, own: StoreSection, defaults: StoreSection, backends: Mapping[str, BackendConfig | None]
) -> StoreDraft:
    """Fill in what a store leaves out: the job's default, else ours."""
    engine = own.engine or defaults.engine
    ephemeral = bool(own.ephemeral if own.ephemeral is not None else defaults.ephemeral)
    backup = own.backup if own.backup is not None else _usual_backup(defaults, backends, ephemeral=ephemeral)
    backup_path = ("stores", name, "backup") if own.backup is not None else _usual_path(name, defaults.backup, "backup")
    restore, restore_path = _restore_list(name, own, defaults, backup)
    ttl = own.ttl if own.ttl is not None else defaults.ttl
    return StoreDraft(
        name=name,
        engine=engine,
        key=own.key or defaults.key or "bytes",
        value=own.value or defaults.value or "bytes",
        backup=backup,
        restore=backup if restore is None else restore,
        backup_path=backup_path,
        restore_path=restore_path,
        restore_given=restore is not None,
        ephemeral=ephemeral,
        ttl=None if ttl == "never" else ttl,
        options={**_options_for(engine, defaults), **own.options},
    )


def _usual_path(name: str, default: object, key: str) -> KeyPath:
    """Give the key that decides where the store itself says nothing."""
    return ("stores", name, key) if default is None else ("defaults", "stores", key)


def _usual_backup(
    defaults: StoreSection, backends: Mapping[str, BackendConfig | None], *, ephemeral: bool
) -> tuple[str, ...]:
    """Give the job's default list, else the only backend; of these an ephemeral store takes what is not durable."""
    usual = defaults.backup if defaults.backup is not None else tuple(backends) if len(backends) == 1 else ()
    if not ephemeral:
        return usual
    return tuple(name for name in usual if (found := backends.get(name)) and not found.factory.capabilities.durable)


def _restore_list(
    name: str, own: StoreSection, defaults: StoreSection, backup: tuple[str, ...]
) -> tuple[tuple[str, ...] | None, KeyPath]:
    """Give the restore list that somebody wrote for this store; a store with its own backup list leaves the default."""
    if own.restore is not None:
        return own.restore, ("stores", name, "restore")
    if own.backup is None and backup and defaults.restore is not None:
        return defaults.restore, ("defaults", "stores", "restore")
    return None, ("stores", name, "restore")


def _options_for(engine: str | None, defaults: StoreSection) -> Mapping[str, object]:
    """Give the default options of the store's engine."""
    found = defaults.options.get(engine) if engine else None
    return found if isinstance(found, Mapping) else {}
