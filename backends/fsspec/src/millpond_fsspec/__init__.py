"""Every file system that fsspec opens, as a state backend and as a checkpoint manager of Millpond."""

from millpond_fsspec.plugins import FsspecBackend, FsspecCheckpoints
from millpond_fsspec.settings import FsspecBackendConfig, FsspecCheckpointsConfig

__all__ = ["FsspecBackend", "FsspecBackendConfig", "FsspecCheckpoints", "FsspecCheckpointsConfig"]
