"""
Suites of installed plugins: by name and settings, without a line of code.

Settings come from a mapping. A text in it may hold ``{folder}``, the place of one case. A setting that is a path, is
not given, and has to be or is called ``path``, ``directory`` or ``folder``, gets a place in that folder, unless it does
not go with what is given. What is not given otherwise is as the plugin asks: its class may have a static method
``kit_settings``, which gets what is given, and gives settings under which minutes show what takes hours by defaults.
"""

from __future__ import annotations

import importlib
import json
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin

import attrs

from millpond import plugins
from millpond.blob.store import BlobStore
from millpond.config.mistakes import Vocabulary, mistakes_in
from millpond.config.structure import structure
from millpond.errors import ConfigError, PluginError
from millpond.log import Log
from millpond.spi import CheckpointManager, JobContext, StateBackendFactory, StoreEngine, StoreSpec, VersionPolicy
from millpond.stores.host import HostEngine
from millpond.testing.kit.backend_suite import BackendSuite
from millpond.testing.kit.bench import Profile
from millpond.testing.kit.blob_suite import BlobSuite
from millpond.testing.kit.door import FolderDoor
from millpond.testing.kit.engine_suite import EngineSuite
from millpond.testing.kit.log_suite import LogSuite
from millpond.testing.kit.manager_suite import CheckpointsSuite
from millpond.testing.kit.suite import Suite

KINDS: Mapping[str, str] = {
    "backend": plugins.BACKENDS,
    "checkpoints": plugins.CHECKPOINTS,
    "engine": plugins.ENGINES,
}
"""The kinds of plugins that have an entry-point group."""


def suite_of(name: str, kind: str | None = None, table: Mapping[str, object] | None = None) -> Suite[Any]:
    """
    Give the suite that tries the plugin *name* with the settings *table*.

    Args:
        name: A plugin's name, ``module:Class``, or a suite's class by ``module:Class``; for a blob store and for a log
            ``module:callable``, which is given a folder.
        kind: ``backend``, ``checkpoints``, ``engine``, ``blob`` or ``log``; None: the first of three that has the name.

    Raises:
        PluginError: There is no such plugin, or it is broken.
        ConfigError: The settings are wrong.
    """
    if ":" in name:
        found = _referenced(name)
        if isinstance(found, type) and issubclass(found, Suite):
            return found()
        kind = kind or _kind_of(found)
    kind = kind or next((each for each, group in KINDS.items() if name in plugins.known_names(group)), "backend")
    return _SUITES[kind](name, dict(table or {}))


def remake(recipe: Mapping[str, str]) -> Suite[Any]:
    """Make the suite again in a child process."""
    return _SUITES[recipe["kind"]](recipe["name"], json.loads(recipe["table"]))


def _referenced(reference: str) -> object:
    module, _, path = reference.partition(":")
    try:
        found: object = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:
        raise PluginError(f"{reference} cannot be imported: {type(error).__name__}: {error}") from error
    return found


def _kind_of(found: object) -> str:
    roles = {"backend": StateBackendFactory, "checkpoints": CheckpointManager, "engine": StoreEngine}
    if isinstance(found, type):
        for kind, role in roles.items():
            if issubclass(found, role):
                return kind
    return "log" if isinstance(found, type) and issubclass(found, Log) else "blob"


_PLACES = ("path", "directory", "folder")


class _Named:
    """What the suites of named plugins share."""

    def __init__(self, name: str, table: dict[str, object]) -> None:
        self.name = name
        self.kept: dict[str, Any] = {}
        plugin = self.plugin()
        self.profile = Profile.of(plugin)
        self.table: dict[str, object] = {**getattr(plugin, "kit_settings", dict)(table), **table}
        self.as_it_asks = {key: value for key, value in self.table.items() if key not in table}

    def recipe(self) -> dict[str, str]:
        """Say how a child process makes this suite."""
        function = f"{__name__}:remake"
        return {"function": function, "kind": self.kind, "name": self.name, "table": json.dumps(self.table)}

    kind: str

    def plugin(self) -> object:
        """Give what is tried: a class, or a function."""
        raise NotImplementedError

    def settings(self, cls: type[Any], folder: Path) -> Any:
        """Give the settings for one case."""
        return self._structured(cls, folder)[0]

    def has_files(self, cls: type[Any]) -> bool:
        """Say whether a setting leads into the folder of a case."""
        given = any(str(value).removeprefix("file://").startswith("{folder}") for value in self.table.values())
        return given or self._structured(cls, Path("folder"))[1]

    def _structured(self, cls: type[Any], folder: Path) -> tuple[Any, bool]:
        """Give the settings with places for data in *folder*, if they can be, and whether they have one."""
        given = {key: _placed(value, folder) for key, value in self.table.items()}
        places = {name: str(folder / name) for name in _paths(cls) if name not in given}
        try:
            return structure(given | places, cls), bool(places)
        except Exception as error:
            with suppress(Exception):
                return structure(given, cls), False
            if isinstance(error, ConfigError):
                raise
            mistakes = (
                f"{'.'.join(map(str, each.path))}: {each.text}" for each in mistakes_in(error, (), Vocabulary())
            )
            raise ConfigError(f"the settings of {self.name!r} are wrong: {'; '.join(mistakes)}") from error


def _placed(value: object, folder: Path) -> object:
    return value.replace("{folder}", str(folder)) if isinstance(value, str) else value


def _paths(cls: type[Any]) -> Iterator[str]:
    """Give the fields of *cls* that are places for data: not those for a certificate."""
    attrs.resolve_types(cls)
    for each in attrs.fields(cls):
        kinds = get_args(each.type) if get_origin(each.type) in (Union, types.UnionType) else (each.type,)
        if Path in kinds and (each.default is attrs.NOTHING or each.name in _PLACES):
            yield each.name


class _NamedBackend(_Named, BackendSuite):
    def plugin(self) -> object:
        return plugins.backend_class(self.name)

    def make(self, folder: Path) -> StateBackendFactory:
        cls = plugins.backend_class(self.name)
        return cls("main", self.settings(cls.config_class, folder))

    def side_door(self, folder: Path) -> FolderDoor | None:
        return FolderDoor(folder) if self.has_files(plugins.backend_class(self.name).config_class) else None


class _NamedCheckpoints(_Named, CheckpointsSuite):
    def plugin(self) -> object:
        return plugins.checkpoints_class(self.name)

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> CheckpointManager:
        cls = plugins.checkpoints_class(self.name)
        return cls(self.settings(cls.config_class, folder), job, versions)

    def side_door(self, folder: Path) -> FolderDoor | None:
        return FolderDoor(folder) if self.has_files(plugins.checkpoints_class(self.name).config_class) else None


class _NamedEngine(_Named, EngineSuite):
    def plugin(self) -> object:
        cls = plugins.engine_class(self.name)
        if issubclass(cls, HostEngine):
            raise ConfigError(
                f"engine {self.name!r} opens no database: it stands for a host's own, so there is nothing to try"
            )
        return cls

    def make(self, directory: Path, read_only: bool) -> StoreEngine:
        cls = plugins.engine_class(self.name)
        settings = self.settings(cls.config_class, directory.parent)
        return cls.open(directory, StoreSpec("kit", self.name, settings=settings), read_only=read_only)


class _NamedBlob(_Named, BlobSuite):
    def plugin(self) -> object:
        return _referenced(self.name)

    def make(self, folder: Path) -> BlobStore:
        function = cast("Callable[[Path], BlobStore]", _referenced(self.name))
        return function(folder)


class _NamedLog(_Named, LogSuite):
    def plugin(self) -> object:
        return _referenced(self.name)

    def make(self, folder: Path) -> Log:
        function = cast("Callable[[Path], Log]", _referenced(self.name))
        return function(folder)

    def side_door(self, folder: Path) -> FolderDoor:
        return FolderDoor(folder)


_SUITES: Mapping[str, Callable[[str, dict[str, object]], Suite[Any]]] = {
    "backend": _NamedBackend,
    "checkpoints": _NamedCheckpoints,
    "engine": _NamedEngine,
    "blob": _NamedBlob,
    "log": _NamedLog,
}
