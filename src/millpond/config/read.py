"""Reads the sections and finds the plugins of a configuration; what is wrong is kept, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from attrs import AttrsInstance, define, field

from millpond.config.draft import Draft, StoreDraft, draft_store
from millpond.config.mistakes import Vocabulary, mistakes_in, unknown_key_text
from millpond.config.model import BackendConfig, CheckpointConfig, CommitConfig, KeyPath, RestoreConfig
from millpond.config.plugin_settings import anchor_paths, make_backend, secrets_of
from millpond.config.problems import Problem
from millpond.config.sections import (
    ELSEWHERE,
    TABLES_BY_NAME,
    TOP,
    BackendSection,
    CheckpointSection,
    JobSection,
    StoreSection,
    given,
    keys_of,
)
from millpond.config.sources import Gathered
from millpond.config.structure import kind_of, structure
from millpond.errors import ConfigError, PluginError
from millpond.plugins import BACKENDS, CHECKPOINTS, ENGINES, resolve
from millpond.spi import VersionPolicy

C = TypeVar("C", bound=AttrsInstance)
T = TypeVar("T")

DEFAULT_STATE_DIR = "state"
"""Under the folder that the process was started in, as in Samza."""


@define
class Reader:
    """
    Reads one gathered configuration.

    Attributes:
        found: What the sources say.
        problems: What is wrong.
        secrets: Texts that no message may show.
    """

    found: Gathered
    problems: list[Problem] = field(factory=list)
    secrets: set[str] = field(factory=set)

    def draft(self) -> Draft:
        """Read everything."""
        self.secrets |= self.found.tree.secrets()
        self.top()
        self.names_hold_tables()
        job = self.section(("job",), JobSection)
        backends = {name: self.backend(name) for name in self.named("backends")}
        stores = self.stores(backends)
        engines = {
            store.engine: self.plugin(ENGINES, store.engine, self.engine_path(store))
            for store in stores
            if store.engine
        }
        state_dir = Path.cwd() / (job.state_dir or DEFAULT_STATE_DIR)
        return Draft(
            job=job,
            checkpoint=self.checkpoint(),
            backends=backends,
            stores={store.name: store for store in stores},
            engines=engines,
            engine_sections=tuple(self.named("engines")),
            settings=self.engine_settings(engines),
            hosts=self.named("hosts"),
            commit=self.section(("commit",), CommitConfig),
            restore=self.section(("restore",), RestoreConfig),
            state_dir=state_dir,
            state_dir_given=job.state_dir is not None,
        )

    def top(self) -> None:
        """Report top-level keys that are no sections, and sections that are no tables."""
        values = self.found.tree.values
        for key in values.keys() - set(TOP):
            self.problems.append(Problem((key,), unknown_key_text(key, TOP, ELSEWHERE)))
        for section in TOP:
            if not isinstance(values.get(section, {}), Mapping):
                self.not_a_table((section,), values[section])

    def not_a_table(self, path: KeyPath, value: object) -> None:
        """Report something else where a table belongs."""
        self.problems.append(Problem(path, f"expected a table, found {kind_of(value)}"))

    def named(self, section: str) -> dict[str, Mapping[str, object]]:
        """Give the tables in a section that holds one for each name."""
        tables = self.found.tree.table(section).items()
        return {name: table for name, table in tables if isinstance(table, Mapping)}

    def names_hold_tables(self) -> None:
        """Report what is no table in a section that holds one for each name."""
        for section in TABLES_BY_NAME:
            for name, table in self.found.tree.table(section).items():
                if not isinstance(table, Mapping):
                    self.not_a_table((section, name), table)

    def section(self, path: KeyPath, cls: type[C], table: Mapping[str, object] | None = None) -> C:
        """Read a section of our own; wrong keys are reported and left out. All its keys have defaults."""
        table = self.found.tree.table(*map(str, path)) if table is None else table
        table = anchor_paths(table, cls, path, self.found.tree, self.found.folder)
        while True:
            try:
                return structure(table, cls)
            except Exception as error:  # noqa: BLE001  # cattrs gathers whatever was raised
                mistakes = list(mistakes_in(error, path, Vocabulary(elsewhere=ELSEWHERE)))
                self.problems += mistakes
                wrong = {mistake.path[len(path)] for mistake in mistakes if len(mistake.path) > len(path)}
                table = {key: value for key, value in table.items() if key not in wrong} if wrong else {}

    def settings(self, path: KeyPath, table: Mapping[str, object], cls: type[Any], here: list[str]) -> object:
        """Read a plugin's own keys, which share their table with ours in *here*; None if something is wrong."""
        self.secrets |= secrets_of(table, cls)
        table = anchor_paths(table, cls, path, self.found.tree, self.found.folder)
        try:
            return structure(table, cls)
        except Exception as error:  # noqa: BLE001  # a plugin's validators may raise anything
            self.problems += mistakes_in(error, path, Vocabulary(tuple(here), ELSEWHERE))
            return None

    def attempt(self, path: KeyPath, work: Callable[[], T]) -> T | None:
        """Do *work*; what it raises is a problem at *path*."""
        try:
            return work()
        except PluginError as error:
            self.problems.append(Problem(path, str(error), error=error))
        except ConfigError as error:
            self.problems.append(Problem(path, str(error)))
        return None

    def plugin(self, group: str, name: str, path: KeyPath) -> Any:
        """Find a plugin's class; None if there is none."""
        return self.attempt(path, lambda: resolve(group, name))

    def checkpoint(self) -> CheckpointConfig | None:
        """Read ``[checkpoint]``, which holds our keys and the manager's."""
        path, ours = ("checkpoint",), keys_of(CheckpointSection)
        own, rest = _split(self.found.tree.table("checkpoint"), ours)
        section = self.section(path, CheckpointSection, own)
        if section.manager is None:
            if "manager" not in own:
                self.problems.append(Problem((*path, "manager"), 'missing: name one, such as "directory"'))
            return None
        cls = self.plugin(CHECKPOINTS, section.manager, (*path, "manager"))
        if cls is None:
            return None
        settings = self.settings(path, rest, cls.config_class, ours)
        return CheckpointConfig(manager=section.manager, factory=cls, settings=settings, **_policies(section))

    def backend(self, name: str) -> BackendConfig | None:
        """Read ``[backends.<name>]``, which holds our keys and the backend's."""
        path, ours = ("backends", name), keys_of(BackendSection)
        own, rest = _split(self.found.tree.table(*path), ours)
        section = self.section(path, BackendSection, own)
        if section.type is None:
            if "type" not in own:
                self.problems.append(Problem((*path, "type"), 'missing: name a backend, such as "rocksdb-local"'))
            return None
        cls = self.plugin(BACKENDS, section.type, (*path, "type"))
        settings = None if cls is None else self.settings(path, rest, cls.config_class, ours)
        if settings is None:
            return None
        factory = self.attempt(path, lambda: make_backend(cls, name, settings))
        if factory is None:
            return None
        required = True if section.required is None else section.required
        return BackendConfig(name=name, type=section.type, factory=factory, settings=settings, required=required)

    def stores(self, backends: Mapping[str, BackendConfig | None]) -> list[StoreDraft]:
        """Read ``[defaults.stores]`` and every ``[stores.<name>]``."""
        for key in self.found.tree.table("defaults").keys() - {"stores"}:
            self.problems.append(Problem(("defaults", key), unknown_key_text(key, ["stores"], {})))
        defaults = self.section(("defaults", "stores"), StoreSection)
        for engine, options in defaults.options.items():
            if not isinstance(options, Mapping):
                self.not_a_table(("defaults", "stores", "options", engine), options)
        sections = {name: self.section(("stores", name), StoreSection) for name in self.named("stores")}
        return [draft_store(name, section, defaults, backends) for name, section in sections.items()]

    def engine_path(self, store: StoreDraft) -> KeyPath:
        """Give the key that says a store's engine."""
        own = self.found.tree.has("stores", store.name, "engine")
        return ("stores", store.name, "engine") if own else ("defaults", "stores", "engine")

    def engine_settings(self, engines: dict[str, Any]) -> dict[str, object]:
        """Read the settings of every engine that is used or has a section."""
        settings: dict[str, object] = {}
        sections = self.named("engines")
        for name in {*engines, *sections}:
            cls = engines[name] if name in engines else self.plugin(ENGINES, name, ("engines", name))
            if cls is not None:
                made = self.settings(("engines", name), sections.get(name, {}), cls.config_class, [])
                settings[name] = _defaults_of(cls.config_class) if made is None else made
        return settings


def _defaults_of(cls: type[Any]) -> object:
    """Give settings to check the stores' options with, when the operator's are wrong; None if there are none."""
    try:
        return structure({}, cls)
    except Exception:  # noqa: BLE001  # what is wrong is reported for the operator's own
        return None


def _split(table: Mapping[str, object], ours: list[str]) -> tuple[dict[str, object], dict[str, object]]:
    """Split a table into our keys and a plugin's."""
    own = {key: value for key, value in table.items() if key in ours}
    return own, {key: value for key, value in table.items() if key not in ours}


def _policies(section: CheckpointSection) -> dict[str, Any]:
    """Give what ``[checkpoint]`` says beside the manager; what it leaves out has its default."""
    said = given(section)
    versions = {"write_versions": "write", "read_versions": "read", "max_age": "max_age"}
    policy = VersionPolicy(**{field: said.pop(key) for key, field in versions.items() if key in said})  # type: ignore[arg-type]
    del said["manager"]
    return {**said, "versions": policy}
