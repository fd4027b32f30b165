"""A plugin's own part of a configuration: its table, prepared and structured, and what it makes of it."""

from __future__ import annotations

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import attrs

from millpond.config.model import KeyPath
from millpond.config.tree import Tree, texts
from millpond.errors import ConfigError, PluginError
from millpond.spi import Capabilities, Secret, StateBackendFactory


def anchor_paths(
    table: Mapping[str, object], cls: type[Any], path: KeyPath, tree: Tree, folder: Path | None
) -> dict[str, object]:
    """
    Give *table* with each relative path in a file taken from the file's own folder.

    A job that is started from another folder must find the same records.
    """
    if folder is None:
        return dict(table)
    own = {key for key in table if tree.origin((*path, key)).source == tree.base.source}
    return {key: _anchored(value, cls, key, folder) if key in own else value for key, value in table.items()}


def _anchored(value: object, cls: type[Any], key: str, folder: Path) -> object:
    """Give *value*, or the path that it stands for in a file of *folder*."""
    if not isinstance(value, str) or Path not in field_types(cls, key):
        return value
    return value if not value or value.startswith("~") or "\0" in value else folder / value


def secrets_of(table: Mapping[str, object], cls: type[Any]) -> set[str]:
    """Give the texts at the keys that *cls* declares to be secrets."""
    return {text for key, value in table.items() if Secret in field_types(cls, key) for text in texts(value)}


def field_types(cls: type[Any], key: str) -> tuple[object, ...]:
    """Give the type of a field of an attrs class, or each of a union's; nothing if it cannot be told."""
    try:
        attrs.resolve_types(cls)
    except NameError:  # an annotation that only a type checker could read; structuring reports it
        return ()
    for each in attrs.fields(cls):
        if key in (each.name, each.alias):
            union = get_origin(each.type) in (Union, types.UnionType)
            return get_args(each.type) if union else (each.type,)
    return ()


def make_backend(cls: type[StateBackendFactory], name: str, settings: object) -> StateBackendFactory:
    """
    Make a backend's factory.

    Raises:
        ConfigError: The settings are wrong, as the plugin says.
        PluginError: The plugin is broken.
    """
    label = f'state backend "{name}" ({cls.__module__}.{cls.__qualname__})'
    try:
        factory = cls(name, settings)
    except ConfigError:
        raise
    except Exception as error:
        raise PluginError(f"{label} is broken: it cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(getattr(factory, "capabilities", None), Capabilities):
        raise PluginError(f"{label} is broken: it has no capabilities")
    return factory
