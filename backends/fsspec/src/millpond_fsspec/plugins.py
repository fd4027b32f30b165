"""The classes that the entry points name; nothing here imports fsspec."""

from __future__ import annotations

from typing import ClassVar

from attrs import evolve

from millpond.blob import BlobBackend, BlobCheckpoints, BlobStore
from millpond.spi import JobContext, VersionPolicy
from millpond_fsspec.settings import FsspecBackendConfig, FsspecCheckpointsConfig


class FsspecBackend(BlobBackend):
    """Makes the managers of one ``fsspec`` section."""

    config_class: ClassVar[type] = FsspecBackendConfig
    config: FsspecBackendConfig

    def __init__(self, name: str, config: object) -> None:
        """Keep *name* and *config*; no I/O. What lies in memory is not durable."""
        super().__init__(name, config)
        if _in_memory(self.config.url):
            self.capabilities = evolve(self.capabilities, durable=False)

    def open_store(self, job: JobContext) -> BlobStore:
        """Open the file system; ConfigError if its implementation is missing or the URL cannot be right."""
        return _open(self.config)


class FsspecCheckpoints(BlobCheckpoints):
    """Keeps records in a file system that creates a name exclusively; refuses every other one by name."""

    config_class: ClassVar[type] = FsspecCheckpointsConfig
    config: FsspecCheckpointsConfig

    def __init__(self, config: object, job: JobContext, versions: VersionPolicy) -> None:
        """Keep what is given; the file system is opened by the first call."""
        super().__init__(config, job, versions)
        if _in_memory(self.config.url):
            self.capabilities = evolve(self.capabilities, durable=False)

    def open_store(self, job: JobContext) -> BlobStore:
        """Open the file system; ConfigError if its implementation is missing or the URL cannot be right."""
        return _open(self.config)


def _in_memory(url: str) -> bool:
    return url.startswith("memory:")


def _open(config: FsspecBackendConfig | FsspecCheckpointsConfig) -> BlobStore:
    from millpond_fsspec.opening import open_store

    return open_store(config.url, config.options, prefix=config.prefix, timeout_s=config.timeout.total_seconds())
