"""Where trials keep their records and their state: a configuration for each backend, or an author's own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from millpond.blob import BlobBackend
from millpond.config import JobConfig, load
from millpond.errors import ConfigError
from millpond.points import ENGINE_POINTS, ROOM_POINTS
from millpond.testing.lab.story import LOCAL, Pace, Story
from millpond.testing.lab.world import STORES

RETAIN = 2
"""How many checkpoints a trial keeps."""

_AT_ONCE = timedelta(microseconds=1)
_BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    "rocksdb-local": {
        "checkpoint": {"manager": "directory", "path": "{root}/records"},
        "backends": {"main": {"type": "rocksdb-local", "path": "{root}/backup", "grace": "0s"}},
    },
    "changelog": {
        "checkpoint": {"manager": "directory", "path": "{root}/records"},
        "backends": {
            "main": {
                "type": "changelog",
                "directory": "{root}/log",
                "min_compaction_lag": "0s",
                "segment_bytes": "2KiB",
            },
        },
    },
    "fsspec": {
        "checkpoint": {
            "manager": "fsspec",
            "url": "file://{root}/objects",
            "prefix": "records",
            "tidy_every": 1,
        },
        "backends": {
            "main": {
                "type": "fsspec",
                "url": "file://{root}/objects",
                "prefix": "state",
                "cleanup_every": 1,
                "max_links": 3,
            },
        },
    },
}
_EVERYWHERE = ("local.manifest-written", "local.image-unmade", "local.quarantined")
_ROOMS: Mapping[str, Sequence[str]] = {
    "directory": ("records.", "local.file-"),
    "changelog": ("changelog.claimed", "changelog.sent", "changelog.committed"),
    "kafka": ("checkpoints.",),
    "zookeeper": ("records.",),
    "rocksdb-local": ("rocksdb-local.", "gc."),
    "fsspec": ("records.", "local.file-", "fsspec.", "blob.", "gc."),
    "s3": ("records.", "blob.", "gc."),
}
"""For each plugin the beginnings of the names of its own points."""
_OF_A_FOLDER = (
    "changelog.flushed",
    "changelog.before-decision",
    "changelog.decided",
    "changelog.segment-sealed",
)
"""Those of an embedded log."""
_KAFKA = Pace(
    longest_us=2_000_000,
    # Not before the claim is there: who wakes there claims once more, and owns the task rightly.
    sleeps=(*LOCAL.sleeps, "changelog.", "checkpoints.claimed", "checkpoints.before-write", "checkpoints.written"),
    once=("checkpoints.before-claim", "checkpoints.claimed", "changelog.claimed"),
    patience_s=30.0,
)
"""A process on Kafka: it waits for topics and for fences, and may sleep while its transactions are open."""
_ZOOKEEPER = Pace(patience_s=30.0)
_JOB = "lab job"


@frozen
class Place:
    """
    What a backend's trials have in common.

    Attributes:
        name: The backend's.
        sections: The sections ``checkpoint`` and ``backends``, and ``job`` where trials need jobs of different names;
            ``{root}`` in a text is the trial's folder, and ``{trial}`` a name of its own.
        engines: The engines that its stores may have.
    """

    name: str
    sections: Mapping[str, Any]
    engines: Sequence[str] = ("rocksdb", "memory")

    @classmethod
    def named(cls, name: str, template: Path | None, engines: Sequence[str] = ("rocksdb", "memory")) -> Place:
        """
        Give the place of the backend *name*, described by the TOML file *template* if there is one.

        Raises:
            ConfigError: There is neither a template nor a built-in description.
        """
        if template is not None:
            return cls(name, tomllib.loads(template.read_text("utf-8")), engines)
        if name not in _BUILT_IN:
            raise ConfigError(f"the lab knows {', '.join(_BUILT_IN)}: describe {name!r} with --config-template FILE")
        return cls(name, _BUILT_IN[name], engines)

    def points(self) -> list[str]:
        """Give the points that a job here can reach."""
        prefixes = tuple(prefix for plugin in sorted(self.plugins()) for prefix in _ROOMS.get(plugin, ()))
        prefixes += _OF_A_FOLDER if "directory" in self._keys() else ()
        return [*ENGINE_POINTS, *(name for name in ROOM_POINTS if name.startswith(prefixes) or name in _EVERYWHERE)]

    def plugins(self) -> set[str]:
        """Give the names of the plugins that keep records and state."""
        backends = self.sections["backends"].values()
        return {self.sections["checkpoint"]["manager"], *(each["type"] for each in backends)}

    def _keys(self) -> set[str]:
        """Give all keys of all sections."""
        sections = (self.sections["checkpoint"], *self.sections["backends"].values())
        return {key for section in sections for key in section}

    def leaves_topics(self) -> bool:
        """Say whether the trials' topics stay on brokers when their folders are gone."""
        return "bootstrap_servers" in self._keys()

    @property
    def pace(self) -> Pace:
        """How fast its processes are."""
        if self.leaves_topics():
            return _KAFKA
        return _ZOOKEEPER if "zookeeper" in self.plugins() else LOCAL

    def config(self, story: Story, root: Path, disk: int) -> JobConfig:
        """Give the configuration of the job of *story* below *root*, on the disk number *disk*."""
        words = {"{root}": str(root), "{trial}": root.name}
        backends = list(self.sections["backends"])
        store = {
            "engine": story.engine,
            "key": "bytes",
            "value": "bytes",
            "backup": backends,
            "restore": backends,
        }
        job = {"name": _JOB, **_filled(self.sections.get("job", {}), words)}
        config = load(
            {
                **_filled(self.sections, words),
                "checkpoint": {**_filled(self.sections["checkpoint"], words), "retain": RETAIN},
                "job": {**job, "state_dir": str(root / f"disk {disk}")},
                "stores": dict.fromkeys(STORES, store),
                "commit": {"interval": "1h"},
            },
            {},
        )
        _clean_at_once(config)
        return config


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    """Give *value* with *words* in all its texts."""
    if isinstance(value, Mapping):
        return {name: _filled(inner, words) for name, inner in value.items()}
    if isinstance(value, str):
        for word, text in words.items():
            value = value.replace(word, text)
    return value


def _clean_at_once(config: JobConfig) -> None:
    """Let object stores be tidied without a grace period, which no operator may: trials are short."""
    for backend in config.backends.values():
        if isinstance(backend.factory, BlobBackend):
            backend.factory.config = evolve(backend.factory.config, grace=_AT_ONCE)
