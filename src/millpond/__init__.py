"""
Durable, exactly restorable state for stream processors in Python.

The public names are loaded when they are first used: importing the package costs next to nothing and loads no driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Layout, SystemStreamPartition
    from millpond.config import JobConfig
    from millpond.errors import (
        CommitError,
        CommitFailedError,
        CommitTimeoutError,
        CommitUnknownError,
        ConfigError,
        FencedError,
        FormatError,
        MillpondError,
        PluginError,
        StateCorruptError,
        StateNotFoundError,
        StoreClosedError,
        TransientError,
    )
    from millpond.events import Event, Listener
    from millpond.job import Job, open_job
    from millpond.spi import SPI_VERSION
    from millpond.stores.keyvalue import KeyValueStore
    from millpond.task import Task, TaskHealth

__all__ = [
    "SPI_VERSION",
    "Checkpoint",
    "CheckpointId",
    "Claim",
    "CommitError",
    "CommitFailedError",
    "CommitTimeoutError",
    "CommitUnknownError",
    "ConfigError",
    "Event",
    "FencedError",
    "FormatError",
    "Job",
    "JobConfig",
    "KeyValueStore",
    "Layout",
    "Listener",
    "MillpondError",
    "PluginError",
    "StateCorruptError",
    "StateNotFoundError",
    "StoreClosedError",
    "SystemStreamPartition",
    "Task",
    "TaskHealth",
    "TransientError",
    "open_job",
]

_HOMES = {
    "checkpoint": ("Checkpoint", "CheckpointId", "Claim", "Layout", "SystemStreamPartition"),
    "config": ("JobConfig",),
    "events": ("Event", "Listener"),
    "job": ("Job", "open_job"),
    "spi": ("SPI_VERSION",),
    "stores.keyvalue": ("KeyValueStore",),
    "task": ("Task", "TaskHealth"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
