"""
The sections of a configuration as an operator writes them, before any name in them is resolved.

A key that is missing is None here, and takes its default from :mod:`millpond.config.model`, or a store's from
``[defaults.stores]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Literal

import attrs
from attrs import AttrsInstance, field, frozen

from millpond.config.model import CommitConfig, RestoreConfig
from millpond.spi import Size


@frozen(kw_only=True)
class JobSection:
    """``[job]``."""

    name: str | None = None
    id: str | None = None
    tasks: tuple[str, ...] | None = None
    partitioner: str | None = None
    state_dir: Path | None = None
    buffer_memory: Size | None = None
    put_timeout: timedelta | None = None
    transfer_threads: int | None = None
    transfer_memory: Size | None = None
    digest: Literal["blake3", "sha256"] | None = None


@frozen(kw_only=True)
class CheckpointSection:
    """``[checkpoint]`` without the manager's own settings, which stand in the same table."""

    manager: str | None = None
    retain: int | None = None
    write_versions: tuple[int, ...] | None = None
    read_versions: tuple[int, ...] | None = None
    max_age: timedelta | None = None
    allow_unfenced: bool | None = None


@frozen(kw_only=True)
class BackendSection:
    """``[backends.<name>]`` without the backend's own settings, which stand in the same table."""

    type: str | None = None
    required: bool | None = None


@frozen(kw_only=True)
class StoreSection:
    """``[stores.<name>]``, or what ``[defaults.stores]`` says for all."""

    engine: str | None = None
    key: str | None = None
    value: str | None = None
    backup: tuple[str, ...] | None = None
    restore: tuple[str, ...] | None = None
    ephemeral: bool | None = None
    ttl: Literal["never"] | timedelta | None = None
    options: Mapping[str, object] = field(factory=dict)


def keys_of(cls: type[AttrsInstance]) -> list[str]:
    """Give the keys of a section."""
    return [each.name for each in attrs.fields(cls)]


def given(section: AttrsInstance) -> dict[str, object]:
    """Give what a section sets."""
    values = {each.name: getattr(section, each.name) for each in attrs.fields(type(section))}
    return {name: value for name, value in values.items() if value is not None}


TOP = ("job", "checkpoint", "backends", "stores", "defaults", "engines", "commit", "restore", "hosts")
"""The top-level tables."""

TABLES_BY_NAME = ("backends", "stores", "engines", "hosts")
"""The top-level tables that hold a table for each name."""

_CLASSES: Mapping[str, type[AttrsInstance]] = {
    "job": JobSection,
    "checkpoint": CheckpointSection,
    "backends.<name>": BackendSection,
    "stores.<name>": StoreSection,
    "commit": CommitConfig,
    "restore": RestoreConfig,
}

ELSEWHERE: Mapping[str, str] = {key: section for section, cls in _CLASSES.items() for key in keys_of(cls)}
"""From a key to the section that has it, for one that stands in another."""
