"""The state backend over an object store; a driver's subclass says how the store is opened."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from millpond.blob.admin import BlobAdmin
from millpond.blob.backup import BlobBackup
from millpond.blob.lease import SharedStore
from millpond.blob.restore import BlobRestore
from millpond.blob.settings import BlobSettings
from millpond.blob.store import BlobStore
from millpond.errors import ConfigError
from millpond.spi import (
    SPI_VERSION,
    Capabilities,
    Facet,
    JobContext,
    StateBackendFactory,
    StoreSpec,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)


class BlobBackend(StateBackendFactory):
    """
    Backs stores up to an object store, by files or by changes.

    A driver's subclass gives ``config_class``, derived from :class:`~millpond.blob.settings.BlobSettings`, and
    :meth:`open_store`, and nothing else.
    """

    spi_version: ClassVar[tuple[int, int]] = SPI_VERSION
    config: BlobSettings

    def __init__(self, name: str, config: object) -> None:
        """Keep *name* and *config*, an instance of ``config_class``; no I/O."""
        super().__init__(name, config)
        if not isinstance(config, BlobSettings):
            raise ConfigError(f"backend {name!r}: its settings are no BlobSettings: {type(config).__name__}")
        self.capabilities = Capabilities(facets=Facet.CHANGES | Facet.DIRECTORY, grace=config.grace)
        self._shared = SharedStore(self.open_store)

    @abstractmethod
    def open_store(self, job: JobContext) -> BlobStore:
        """
        Open the store that ``self.config`` names; ConfigError if that cannot be right.

        Called by the first manager that needs it; closed after the last one. Managers of all tasks share it.
        """

    def backup_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskBackupManager:
        """Make the manager that backs up *stores*. Nothing to fence: an object's name holds its writer's epoch."""
        return BlobBackup(task, self._shared.lease(task.job), self.config)

    def restore_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskRestoreManager:
        """Make the manager that restores *stores*."""
        return BlobRestore(task, self._shared.lease(task.job), self.config)

    def admin(self, job: JobContext, stores: Sequence[StoreSpec]) -> BlobAdmin:
        """Make what prepares, probes and tidies the job's place in the store."""
        return BlobAdmin(job, self.name if self.marker_key is None else self.marker_key, self._shared)
