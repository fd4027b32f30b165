"""Samza's flat keys into our sections, with Samza's defaults; by Samza's rules for texts, lists and booleans."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from attrs import define

from millpond.config import samza_keys
from millpond.config.flat import Entry, Sorted
from millpond.config.model import KeyPath, Origin
from millpond.config.problems import Problem
from millpond.config.tree import Tree
from millpond.config.values import FlatText

_BOTH = frozenset(("job.name", "job.id"))
"""Keys that Samza and we spell alike: they do not make a file Samza's."""

_MANAGERS_BOOTSTRAP = "kafka"
_CHANGELOG = "changelog"
_LONGEST_MILLIS = 1 << 53


def translate(found: Sorted, environ: Mapping[str, str]) -> Tree:
    """
    Give the tree that the keys in *found* stand for: Samza's, and our own over them.

    Problems and notes are added to *found*. Samza's defaults hold as soon as one key is Samza's alone.
    """
    work = _Translation(found, Tree(found.own.base))
    read = [key for key in found.samza if not key.startswith(("systems.", "serializers."))]
    if set(read) - _BOTH or found.stores:
        work.defaults()
        work.base_directory(environ)
    work.simple()
    work.failures()
    work.manager()
    work.factories(("defaults", "stores"), found.samza, "stores.")
    for name, keys in found.stores.items():
        work.store(name, keys)
    work.changelog()
    work.tree.overlay(found.own)
    return work.tree


@define
class _Translation:
    """Fills *tree* from the keys in *found*."""

    found: Sorted
    tree: Tree

    def put(self, path: KeyPath, value: object, entry: Entry) -> None:
        """Set a leaf of ours for a key of Samza's."""
        origin = Origin(entry.origin.source, entry.origin.line, entry.key)
        self.tree.put(path, FlatText(value) if isinstance(value, str) else value, origin)

    def refuse(self, path: KeyPath, text: str, entry: Entry) -> None:
        """Report what a key of Samza's says."""
        self.found.problems.append(Problem(path, text, Origin(entry.origin.source, entry.origin.line, entry.key)))

    def get(self, key: str) -> Entry | None:
        """Give a key of Samza's; one with a blank value counts as absent."""
        entry = self.found.samza.get(key)
        return entry if entry is not None and entry.text else None

    def text(self, key: str) -> str:
        """Give the text of a key of Samza's; empty if it is absent."""
        entry = self.get(key)
        return entry.text if entry else ""

    def defaults(self) -> None:
        """Set what Samza takes where nothing is said."""
        for path, value in samza_keys.DEFAULTS.items():
            self.tree.put(path, value, Origin("Samza's default"))

    def base_directory(self, environ: Mapping[str, str]) -> None:
        """Take the folder from Samza's environment variable, which wins over its key."""
        if folder := environ.get("LOGGED_STORE_BASE_DIR", ""):
            self.found.samza.pop("job.logged.store.base.dir", None)
            self.tree.put(("job", "state_dir"), FlatText(folder), Origin("environment", key="LOGGED_STORE_BASE_DIR"))

    def simple(self) -> None:
        """Translate the keys that have one counterpart each."""
        for key, (path, kind) in samza_keys.SIMPLE.items():
            if (entry := self.get(key)) is None:
                continue
            if kind == "text":
                self.put(path, entry.value if isinstance(entry.value, list | tuple) else entry.text, entry)
            elif (millis := self.millis(path, entry)) is not None:
                never = kind == "interval" and millis <= 0
                self.put(path, "never" if never else timedelta(milliseconds=millis), entry)

    def millis(self, path: KeyPath, entry: Entry) -> int | None:
        """Read a whole number of milliseconds."""
        try:
            millis = int(entry.text)
        except ValueError:
            self.refuse(path, "expected a whole number of milliseconds", entry)
            return None
        if abs(millis) > _LONGEST_MILLIS:
            self.refuse(path, "a number of milliseconds beyond all calendars", entry)
            return None
        return millis

    def failures(self) -> None:
        """Translate how many commits may fail: none, unless Samza's switch is on."""
        switch = self.get("task.commit.skip.commit.during.failures.enabled")
        limits = {"tolerated_failures": ("exception", "5"), "tolerated_timeouts": ("timeout", "2")}
        for ours, (theirs, default) in limits.items():
            entry = self.get(f"task.commit.skip.commit.{theirs}.max.limit")
            if switch is not None and switch.text.lower() == "true":
                self.put(("commit", ours), entry.text if entry else default, entry or switch)

    def manager(self) -> None:
        """Translate the checkpoint manager's class."""
        if (entry := self.get("task.checkpoint.factory")) is None:
            return
        name = samza_keys.MANAGERS.get(entry.text, entry.text)
        if _is_java(name):
            self.refuse(("checkpoint", "manager"), f"no counterpart to the class {name}: name a manager of ours", entry)
            return
        self.put(("checkpoint", "manager"), name, entry)
        system = self.text("task.checkpoint.system") or self.text("job.default.system")
        if name == _MANAGERS_BOOTSTRAP and system:
            self.bootstrap(("checkpoint", "bootstrap_servers"), system)

    def bootstrap(self, path: KeyPath, system: str) -> None:
        """Find the brokers of a system of Samza's."""
        for side in ("producer", "consumer"):
            if (entry := self.get(f"systems.{system}.{side}.bootstrap.servers")) is not None:
                self.put(path, entry.text, entry)
                return

    def factories(self, path: KeyPath, keys: Mapping[str, Entry], prefix: str) -> None:
        """Translate a list of backup or restore factories; a blank list counts for one store, and not for the job."""
        for ours in ("backup", "restore"):
            entry = keys.get(f"{prefix}{ours}.factories")
            if entry is not None and (entry.text or not prefix):
                self.put((*path, ours), ",".join(self.sections((*path, ours), entry)), entry)

    def sections(self, path: KeyPath, entry: Entry) -> list[str]:
        """Give the sections that a list of factories names."""
        names = [samza_keys.BACKENDS.get(name, name) for name in _split(entry.text)]
        for name in names:
            if _is_java(name) and not self.found.own.has("backends", name):
                self.refuse(path, f"no counterpart to the class {name}: name a section [backends.<name>]", entry)
            elif name == "blob" and not self.found.own.has("backends", name):
                self.refuse(path, "Samza's blob store needs a section here, such as backends.blob.type=s3", entry)
        return names

    def store(self, name: str, keys: Mapping[str, Entry]) -> None:
        """Translate one store."""
        path = ("stores", name)
        engine = keys["factory"]
        known = samza_keys.ENGINES.get(engine.text, engine.text)
        if _is_java(known):
            self.refuse((*path, "engine"), f"no counterpart to the class {known}: name an engine of ours", engine)
        else:
            self.put((*path, "engine"), known, engine)
        for theirs, ours in (("key.serde", "key"), ("msg.serde", "value")):
            if theirs in keys and keys[theirs].text:
                self.serde((*path, ours), keys[theirs])
        self.factories(path, keys, "")
        self.ttl(path, keys.get("rocksdb.ttl.ms"))
        self.options(path, keys)

    def serde(self, path: KeyPath, entry: Entry) -> None:
        """Translate the name of a serde: what Samza wrote must be read as it was."""
        cls = self.text(f"serializers.registry.{entry.text}.class")
        ours = samza_keys.SERDES.get(cls) if cls else samza_keys.USUAL_SERDES.get(entry.text)
        if ours is not None:
            self.put(path, ours, entry)
        elif not self.found.own.has(*map(str, path)):
            key = f"stores.{path[1]}.{path[2]}"
            text = f'no serde of ours reads what Samza\'s "{entry.text}" wrote: set {key}, bytes if in doubt'
            self.refuse(path, text, entry)

    def ttl(self, path: KeyPath, entry: Entry | None) -> None:
        """Translate a store's time to live: Samza knows no shorter one than a second, and zero is none."""
        if entry is None or not entry.text:
            return
        millis = self.millis((*path, "ttl"), entry)
        if millis is not None and millis > 0:
            self.put((*path, "ttl"), timedelta(milliseconds=max(millis, 1000)), entry)

    def options(self, path: KeyPath, keys: Mapping[str, Entry]) -> None:
        """Translate RocksDB's options."""
        for theirs, ours in samza_keys.ROCKSDB_OPTIONS.items():
            if theirs in keys and (text := keys[theirs].text):
                self.put((*path, "options", ours), samza_keys.COMPRESSIONS.get(text, text), keys[theirs])

    def changelog(self) -> None:
        """Make a section for the changelogs that the stores name, and let a store that says nothing else use it."""
        logs = {name: keys["changelog"] for name, keys in self.found.stores.items() if "changelog" in keys}
        topics: dict[tuple[str, str], str] = {}
        for store, entry in logs.items():
            if not entry.text:
                continue
            system, topic = self.topic(entry)
            if (other := topics.setdefault((system, topic), store)) != store:
                self.refuse(("stores", store), f"has the same changelog as store {other}", entry)
            self.use_changelog(store, topic, entry)
        self.brokers({system for system, _ in topics}, list(logs.values()))

    def topic(self, entry: Entry) -> tuple[str, str]:
        """Give the system and the topic of a changelog."""
        system, topic = _system_and_stream(entry.text)
        return system or self.text("job.changelog.system") or self.text("job.default.system"), topic

    def use_changelog(self, store: str, topic: str, entry: Entry) -> None:
        """Give one store its topic, and back it up there if no list says otherwise."""
        if not self.text("stores.backup.factories") and "backup.factories" not in self.found.stores[store]:
            self.put(("stores", store, "backup"), _CHANGELOG, entry)
        self.put(("backends", _CHANGELOG, "type"), _CHANGELOG, entry)
        self.put(("backends", _CHANGELOG, "topics", store), topic, entry)

    def brokers(self, systems: set[str], entries: list[Entry]) -> None:
        """Give the changelogs their brokers; all are in one system."""
        path = ("backends", _CHANGELOG, "bootstrap_servers")
        if len(systems) > 1:
            self.refuse(
                path, f"changelogs in several systems have no counterpart: {', '.join(sorted(systems))}", entries[0]
            )
        for system in systems - {""}:
            self.bootstrap(path, system)


def _system_and_stream(text: str) -> tuple[str, str]:
    """Split ``system.stream``, where the stream may have dots; a text without a dot is a stream."""
    system, dot, stream = text.partition(".")
    return (system, stream) if dot else ("", text)


def _split(text: str) -> list[str]:
    """Split a list as Samza does."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_java(name: str) -> bool:
    """Tell whether *name* looks like a Java class: dots, and a last part in upper case; not ``module:attr``."""
    return ":" not in name and "." in name and name.rpartition(".")[2][:1].isupper()
