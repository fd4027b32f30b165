"""The checkpoint manager over numbered records; a subclass says where the folders are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import ClassVar

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import ConfigError
from millpond.records.folder import NamedFolder, RecordFolder
from millpond.records.ledger import TaskRecords
from millpond.spi import SPI_VERSION, CheckpointManager, JobContext, ManagerCapabilities, VersionPolicy


class NumberedCheckpoints(CheckpointManager):
    """
    Keeps V2 records under numbers, with claims, history and pins; see :mod:`millpond.records.ledger`.

    A subclass gives the folders, the tasks, and ``config_class``.
    """

    spi_version: ClassVar[tuple[int, int]] = SPI_VERSION
    capabilities = ManagerCapabilities()

    def __init__(self, config: object, job: JobContext, versions: VersionPolicy) -> None:
        """Keep what is given; no I/O here."""
        super().__init__(config, job, versions)
        self._tasks: dict[str, TaskRecords] = {}
        self._lock = Lock()

    @abstractmethod
    def records_folder(self, task: str) -> RecordFolder:
        """Give the place of the task's records; no I/O."""

    @abstractmethod
    def pins_folder(self, task: str) -> NamedFolder:
        """Give the place of the task's pins; no I/O."""

    def claim(self, task: str) -> Claim:
        """Take the right to write."""
        return self._of(task).claim()

    def read_last(self, task: str) -> Checkpoint | None:
        """Give the newest checkpoint."""
        return self._of(task).read_last()

    def read(self, task: str, id: CheckpointId) -> Checkpoint:
        """Give the checkpoint *id*."""
        return self._of(task).read(id)

    def ids(self, task: str) -> Sequence[CheckpointId]:
        """Give the ids of the listed checkpoints, newest first."""
        return self._of(task).ids()

    def write(self, claim: Claim, checkpoint: Checkpoint, *, after: CheckpointId | None) -> None:
        """Publish *checkpoint*."""
        self._of(claim.task).write(claim, checkpoint, after)

    def delete(self, claim: Claim, ids: Collection[CheckpointId]) -> None:
        """Remove the records *ids*."""
        self._of(claim.task).delete(claim, ids)

    def pin(self, task: str, id: CheckpointId, name: str) -> None:
        """Keep a copy of the record *id* under *name*."""
        self._of(task).pin(id, name)

    def unpin(self, task: str, name: str) -> None:
        """Remove the pin *name*."""
        self._of(task).unpin(name)

    def pins(self, task: str) -> Mapping[str, CheckpointId]:
        """Give the pins: name to id."""
        return self._of(task).pins()

    def _of(self, task: str) -> TaskRecords:
        if not task:
            raise ConfigError("a task needs a name of at least one character")
        with self._lock:
            found = self._tasks.get(task)
            if found is None:
                folders = self.records_folder(task), self.pins_folder(task)
                found = self._tasks[task] = TaskRecords.of(task, *folders, self.job.clock)
        return found
