"""From the checked configuration to what the engines take: a function a value."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from millpond.commit import CommitPolicy
from millpond.config import JobConfig, StoreConfig
from millpond.restore import RestorePolicy
from millpond.restore.parts import RestoreStore
from millpond.restore.plan import StoreWants
from millpond.spi import Capabilities, Facet
from millpond.stores.refusals import RecordLimit


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


def properties(store: StoreConfig) -> Mapping[str, str]:
    """Give by which rules a store's bytes are to be read, as its manifest and its checkpoints say it."""
    return _properties(store.key, store.value, store.ttl is not None)


@cache
def _properties(key: str, value: str, expires: bool) -> Mapping[str, str]:
    """Give the same object to all stores that say the same: a checkpoint then has it once for a thousand."""
    return MappingProxyType({"key": key, "value": value, "expiring": "yes" if expires else "no"})


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


def reads_changes(config: JobConfig, store: StoreConfig) -> bool:
    """Say whether some backend of *store* reads its changes, so that they have to be kept."""
    return any(Facet.CHANGES in config.backends[name].factory.capabilities.facets for name in store.backup)


def largest_record(config: JobConfig, store: StoreConfig) -> int | None:
    """Give the largest key and value together that all backends of *store* take; None: any."""
    limits = [_record_limit(name, config.backends[name].factory.capabilities) for name in store.backup]
    return min((limit for limit in limits if limit is not None), default=None)


def _record_limit(backend: str, can: Capabilities) -> RecordLimit | None:
    if can.max_record_bytes is None:
        return None
    setting = can.record_bytes_setting
    return RecordLimit(
        can.max_record_bytes, f"backends.{backend}.{setting}" if setting else f"what backend {backend} takes"
    )
