"""Backs up the stores of one task to an object store."""

from __future__ import annotations

from millpond.blob.lease import StoreLease
from millpond.blob.settings import BlobSettings
from millpond.checkpoint import Markers
from millpond.spi import Snapshot, TaskBackupManager, TaskContext


class BlobBackup(TaskBackupManager):
    """Uploads one pack for a small commit."""

    def __init__(self, task: TaskContext, lease: StoreLease, settings: BlobSettings) -> None:
        self._task, self._lease, self._settings = task, lease, settings

    def upload(self, snapshot: Snapshot, markers: Markers) -> Markers:
        """Make the snapshot durable."""
        raise NotImplementedError
