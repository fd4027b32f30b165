"""What the lab's parent loads before it forks, so that no child has to; it starts no thread."""

from __future__ import annotations

import gc
import importlib
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from millpond.blob import BlobCheckpoints, probe
from millpond.blob.admin import BlobAdmin
from millpond.config import JobConfig
from millpond.testing.lab.clients import share_clients
from millpond.testing.lab.forks import refuse_threads
from millpond.testing.lab.places import Place
from millpond.testing.lab.story import story_of

_LAZILY_LOADED = (
    "rocksdict",
    "millpond_rocksdb.database",
    "millpond_fsspec.opening",
    "millpond_fsspec.files",
    "millpond_changelog.kafka.log",
    "millpond_zookeeper.checkpoints",
    "blake3",
)

_ON_SERVERS = ("kafka", "zookeeper")
"""Managers that try whether their servers fence."""


def warm(place: Place) -> None:
    """
    Load what the children will need, so that each of them does not; no thread is started.

    A child that checks its object store does so with one race instead of many: the lab is not about the store.
    """
    config = place.config(story_of(0, place.points(), place.engines), Path(tempfile.gettempdir()), 0)
    for name in _LAZILY_LOADED:
        with suppress(ImportError):  # what is not installed is not needed
            importlib.import_module(name)
    if "s3" in place.plugins():
        share_clients(_settings_of("s3", config))
    probe.RACES = 1
    gc.collect()
    gc.freeze()  # a child that collects garbage would copy all of this
    refuse_threads()


def believe_servers(config: JobConfig) -> None:
    """Let this process open tasks without a check of what its servers promise, which is half of all requests."""
    roles: list[Any] = [BlobAdmin, BlobCheckpoints]
    if config.checkpoint.manager in _ON_SERVERS:
        roles.append(config.checkpoint.factory)
    for role in roles:
        role.validate_resources = lambda self: None


def _settings_of(plugin: str, config: JobConfig) -> Iterator[object]:
    """Give the settings of everything in *config* that *plugin* keeps."""
    if config.checkpoint.manager == plugin:
        yield config.checkpoint.settings
    yield from (backend.settings for backend in config.backends.values() if backend.type == plugin)
