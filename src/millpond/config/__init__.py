"""
A job's configuration: TOML, a mapping, the environment or Samza's flat keys, into one checked model.

:func:`load` reports every problem at once, each with where it is, and keeps for each value where it came from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

from millpond.config.model import (
    BackendConfig,
    CheckpointConfig,
    CommitConfig,
    JobConfig,
    Origin,
    RestoreConfig,
    StoreConfig,
)
from millpond.spi import Secret, Size

T = TypeVar("T")

__all__ = [
    "BackendConfig",
    "CheckpointConfig",
    "CommitConfig",
    "JobConfig",
    "Origin",
    "RestoreConfig",
    "Secret",
    "Size",
    "StoreConfig",
    "host_settings",
    "load",
]


def load(
    source: JobConfig | Mapping[str, object] | str | os.PathLike[str],
    environ: Mapping[str, str] | None = None,
) -> JobConfig:
    """
    Give the checked configuration of a job.

    Sources, lowest first: defaults, the TOML file, the environment (``MILLPOND_STORES__ORDERS__ENGINE``), Samza's flat
    keys (a ``.properties`` file, or the dotted keys of a mapping), the mapping.

    Args:
        source: A file, a mapping of sections or of dotted keys, or what an earlier call gave.
        environ: The environment variables; None: the process's own.

    Raises:
        ConfigError: Everything that is wrong, a line each; PluginError if only plugins are at fault.
    """
    if isinstance(source, JobConfig):
        return source
    from millpond.config.build import build
    from millpond.config.sources import gather

    return build(gather(source, os.environ if environ is None else environ))


def host_settings(config: JobConfig, name: str, cls: type[T]) -> T:
    """
    Give what ``[hosts.<name>]`` says, as an instance of *cls*, an attrs class.

    Raises:
        ConfigError: Everything that is wrong there, a line each.
    """
    from millpond.config.hosts import read_host

    return read_host(config, name, cls)
