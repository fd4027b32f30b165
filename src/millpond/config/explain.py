"""Every effective value of a configuration, where it came from, and what it would be otherwise; secrets hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import attrs
from attrs import frozen

from millpond.config.model import (
    BackendConfig,
    CheckpointConfig,
    CommitConfig,
    JobConfig,
    KeyPath,
    Origin,
    RestoreConfig,
    StoreConfig,
)
from millpond.config.problems import hide_user_info, is_secret_key, show_path
from millpond.config.structure import is_size
from millpond.config.tree import leaves
from millpond.config.values import HIDDEN, show_duration, show_size
from millpond.spi import VersionPolicy

DEFAULT = "default"


@frozen
class Row:
    """
    One effective value.

    Attributes:
        key: Its key, as an operator writes it.
        value: The value as text; ``***`` for a secret.
        source: Where it was set, or ``default``.
        default: What it would be if nobody set it; empty where it has none, or where that depends on other keys.
    """

    key: str
    value: str
    source: str
    default: str


def explain(config: JobConfig) -> list[Row]:
    """Give a row for every value of *config*, section by section."""
    return list(_rows(config))


def _rows(config: JobConfig) -> Iterator[Row]:
    sections = ("checkpoint", "backends", "stores", "engines", "hosts", "commit", "restore", "notes", "origins")
    yield from _fields(config, ("job",), config, JobConfig, leave_out=sections)
    yield from _checkpoint(config, config.checkpoint)
    for name, backend in config.backends.items():
        path = ("backends", name)
        yield from _fields(config, path, backend, BackendConfig, leave_out=("name", "factory", "settings"))
        yield from _settings(config, path, backend.settings)
    for name, store in config.stores.items():
        yield from _store(config, name, store)
    for name, settings in config.engines.items():
        yield from _settings(config, ("engines", name), settings)
    yield from _fields(config, ("commit",), config.commit, CommitConfig)
    yield from _fields(config, ("restore",), config.restore, RestoreConfig)
    for name, table in config.hosts.items():
        for key, value in leaves(table, ("hosts", name)):
            hidden = any(map(is_secret_key, key))
            yield _row(config, key, HIDDEN if hidden else _show(value), "")


def _checkpoint(config: JobConfig, checkpoint: CheckpointConfig) -> Iterator[Row]:
    """Explain ``[checkpoint]``, where the versions have keys of their own."""
    path = ("checkpoint",)
    yield from _fields(config, path, checkpoint, CheckpointConfig, leave_out=("factory", "settings", "versions"))
    names = {"write_versions": "write", "read_versions": "read", "max_age": "max_age"}
    for key, name in names.items():
        value, usual = getattr(checkpoint.versions, name), getattr(VersionPolicy(), name)
        yield _row(config, (*path, key), _show(value), _show(usual))
    yield from _settings(config, path, checkpoint.settings)


def _store(config: JobConfig, name: str, store: StoreConfig) -> Iterator[Row]:
    """Explain one store, whose values may come from the job's defaults."""
    path: KeyPath = ("stores", name)
    yield from _fields(config, path, store, StoreConfig, leave_out=("name", "engine_class", "options", "settings"))
    for option, value in store.options.items():
        usual = ("defaults", "stores", "options", store.engine, option)
        yield _row(config, (*path, "options", option), _show_named(option, value), "", usual)


def _fields(
    config: JobConfig, path: KeyPath, section: object, cls: type[Any], leave_out: tuple[str, ...] = ()
) -> Iterator[Row]:
    """Explain the fields of one of our sections."""
    for each in attrs.fields(cls):
        if each.name not in leave_out:
            key = (*path, each.name)
            usual = ("defaults", *key[:1], *key[2:]) if path[0] == "stores" else None
            value = _show_field(each, getattr(section, each.name))
            follows = each.name in ("backup", "restore")  # from the sections that there are, and from one another
            yield _row(config, key, value, "" if follows else _show_default(each), usual)


def _settings(config: JobConfig, path: KeyPath, settings: object) -> Iterator[Row]:
    """Explain a plugin's own settings."""
    cls: Any = type(settings)
    for each in attrs.fields(cls) if attrs.has(cls) else ():
        key, value = (*path, each.alias or each.name), getattr(settings, each.name)
        if isinstance(value, Mapping):
            for inner, found in value.items():
                hidden = is_secret_key(each.name)
                yield _row(config, (*key, str(inner)), HIDDEN if hidden else _show_named(str(inner), found), "")
        else:
            yield _row(config, key, _show_field(each, value), _show_default(each))


def _row(config: JobConfig, key: KeyPath, value: str, default: str, usual: KeyPath | None = None) -> Row:
    """Make a row; *usual* is the key of the job's default for it."""
    origin = config.origins.get(key)
    if origin is None and usual is not None and (found := config.origins.get(usual)) is not None:
        origin = Origin(str(found), key=show_path(usual))
    return Row(show_path(key), value, DEFAULT if origin is None else str(origin), default)


def _show_field(each: attrs.Attribute[Any], value: object) -> str:
    """Show a field's value by its name and type."""
    if is_size(each.name, each.type) and isinstance(value, int):
        return show_size(value)
    return _show_named(each.name, value)


def _show_default(each: attrs.Attribute[Any]) -> str:
    """Show what a field is when nobody sets it."""
    if each.default is attrs.NOTHING or isinstance(each.default, attrs.Factory):  # type: ignore[arg-type]
        return ""
    return _show_field(each, each.default)


def _show_named(name: str, value: object) -> str:
    """Show a value, unless its name says that it is a secret."""
    return HIDDEN if is_secret_key(name) and value is not None else _show(value)


def _show(value: object) -> str:
    """Write a value as an operator would."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return show_duration(value)
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ", ".join(_show(each) for each in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_show_named(str(key), inner)}" for key, inner in value.items()) + "}"
    return hide_user_info(str(value))
