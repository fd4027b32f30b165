"""Restores the stores of one task from an object store."""

from __future__ import annotations

from millpond.blob.lease import StoreLease
from millpond.blob.settings import BlobSettings
from millpond.spi import RestoreTarget, TaskContext, TaskRestoreManager


class BlobRestore(TaskRestoreManager):
    """Reads what a marker names, in parallel ranged reads."""

    def __init__(self, task: TaskContext, lease: StoreLease, settings: BlobSettings) -> None:
        self._task, self._lease, self._settings = task, lease, settings

    def restore(self, target: RestoreTarget) -> None:
        """Leave one store exactly as its marker says."""
        raise NotImplementedError
