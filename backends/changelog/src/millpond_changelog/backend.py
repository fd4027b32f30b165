"""The state backend over a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from millpond.errors import ConfigError
from millpond.formats.changelog_marker import FACTORY
from millpond.log import Log
from millpond.spi import (
    SPI_VERSION,
    Capabilities,
    Facet,
    JobContext,
    StateBackendAdmin,
    StateBackendFactory,
    StoreSpec,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)
from millpond_changelog.admin import ChangelogAdmin
from millpond_changelog.backup import ChangelogBackup
from millpond_changelog.lease import SharedLog
from millpond_changelog.opening import open_log
from millpond_changelog.restore import ChangelogRestore
from millpond_changelog.settings import ChangelogSettings


class ChangelogBackend(StateBackendFactory):
    """Backs stores up to topics of a log: Kafka's, or a folder's. One section a job, since its markers are Samza's."""

    spi_version: ClassVar[tuple[int, int]] = SPI_VERSION
    config_class: ClassVar[type] = ChangelogSettings
    marker_key: ClassVar[str | None] = FACTORY
    config: ChangelogSettings

    def __init__(self, name: str, config: object) -> None:
        """Keep *name* and *config*, an instance of ``config_class``; no I/O."""
        super().__init__(name, config)
        if not isinstance(config, ChangelogSettings):
            raise ConfigError(f"backend {name!r}: its settings are no ChangelogSettings: {type(config).__name__}")
        self.capabilities = Capabilities(
            facets=Facet.CHANGES | Facet.ITEMS,
            point_in_time=False,
            checkpoint_v1=True,
            max_record_bytes=config.max_record_bytes,
            record_bytes_setting="max_message_bytes",
        )
        self._shared = SharedLog(self.open_log)

    @staticmethod
    def kit_settings(given: Mapping[str, object]) -> Mapping[str, object]:
        """Let the kit see compaction in a folder, which is this backend's own doing; brokers take their time."""
        return {} if "bootstrap_servers" in given else {"min_compaction_lag": "0s", "segment_bytes": "1MiB"}

    def open_log(self) -> Log:
        """Open the log that the settings name; called by the first manager that needs it."""
        return open_log(self.config)

    def backup_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskBackupManager:
        """Make the manager that backs up *stores*; it becomes the writer of the task's changes at once."""
        lease = self._shared.lease()
        try:
            return ChangelogBackup(task, lease, self.config, stores)
        except BaseException:
            lease.close()
            raise

    def restore_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskRestoreManager:
        """Make the manager that restores *stores*."""
        return ChangelogRestore(task, self._shared.lease(), self.config, stores)

    def admin(self, job: JobContext, stores: Sequence[StoreSpec]) -> StateBackendAdmin:
        """Make what prepares and checks the topics."""
        return ChangelogAdmin(job, self._shared, self.config, stores)
