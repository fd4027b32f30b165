"""The checkpoint manager that the entry point names; nothing here imports kazoo before it is used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import ConfigError, StoreClosedError
from millpond.spi import SPI_VERSION, CheckpointManager, JobContext, ManagerCapabilities, VersionPolicy
from millpond_zookeeper.settings import ZooKeeperCheckpointsConfig

if TYPE_CHECKING:
    from millpond.coordinator.metadata import CoordinatorMetadata
    from millpond_zookeeper.ledger import TaskLedger
    from millpond_zookeeper.rooms import JobRoom


class ZooKeeperCheckpoints(CheckpointManager):
    """
    Keeps V2 records in ZooKeeper, with claims, history and pins. Any thread may call it; see ``docs/zookeeper.md``.

    Every call ends within ``timeout``, with TransientError if no majority of the servers answers.
    """

    spi_version: ClassVar[tuple[int, int]] = SPI_VERSION
    config_class: ClassVar[type] = ZooKeeperCheckpointsConfig
    capabilities = ManagerCapabilities()
    config: ZooKeeperCheckpointsConfig

    def __init__(self, config: object, job: JobContext, versions: VersionPolicy) -> None:
        """Keep what is given; the first call opens a session."""
        super().__init__(config, job, versions)
        self._tasks: dict[str, TaskLedger] = {}
        self._room: JobRoom | None = None
        self._lock = Lock()
        self._closed = False

    def create_resources(self) -> None:
        """Make the job's node, and those above it."""
        self._opened().create()

    def validate_resources(self) -> None:
        """Try permissions, that a stale version and a second creation are refused, and the largest request."""
        self._opened().probe()

    def tasks(self) -> Sequence[str]:
        """Give the names of the tasks that have a record or a claim here, sorted."""
        return self._opened().tasks()

    def claim(self, task: str) -> Claim:
        """Take the right to write."""
        return self._of(task).claim()

    def read_last(self, task: str) -> Checkpoint | None:
        """Give the newest checkpoint."""
        return self._of(task).history.read_last()

    def read(self, task: str, id: CheckpointId) -> Checkpoint:
        """Give the checkpoint *id*."""
        return self._of(task).history.read(id)

    def ids(self, task: str) -> Sequence[CheckpointId]:
        """Give the ids of the listed checkpoints, newest first."""
        return self._of(task).history.ids()

    def write(self, claim: Claim, checkpoint: Checkpoint, *, after: CheckpointId | None) -> None:
        """Publish *checkpoint*: its record and the task's head in one multi-operation, on condition of the version."""
        self._of(claim.task).write(claim, checkpoint, after)

    def delete(self, claim: Claim, ids: Collection[CheckpointId]) -> None:
        """Remove the records *ids*."""
        self._of(claim.task).delete(claim, ids)

    def pin(self, task: str, id: CheckpointId, name: str) -> None:
        """Keep a copy of the record *id* under *name*."""
        self._of(task).history.pin(id, name)

    def unpin(self, task: str, name: str) -> None:
        """Remove the pin *name*."""
        self._of(task).history.unpin(name)

    def pins(self, task: str) -> Mapping[str, CheckpointId]:
        """Give the pins: name to id."""
        return self._of(task).history.pins()

    def coordinator_metadata(self) -> CoordinatorMetadata:
        """Give the place of the coordinator's record of this job, with a session of its own; the caller closes it."""
        from millpond_zookeeper.metadata import ZooKeeperMetadata

        return ZooKeeperMetadata(self.config, self.job.job, self.job.job_id)

    def close(self) -> None:
        """End the session; idempotent."""
        with self._lock:
            self._closed = True
            room, self._room = self._room, None
            self._tasks.clear()
        if room is not None:
            room.close()

    def _of(self, task: str) -> TaskLedger:
        if not task:
            raise ConfigError("a task needs a name of at least one character")
        room = self._opened()
        with self._lock:
            found = self._tasks.get(task)
            if found is None:
                found = self._tasks[task] = room.ledger(task)
        return found

    def _opened(self) -> JobRoom:
        from millpond_zookeeper.rooms import JobRoom

        with self._lock:
            if self._closed:
                raise StoreClosedError("this checkpoint manager is closed: reopen the job")
            if self._room is None:
                self._room = JobRoom.of(self.config, self.job.job, self.job.job_id)
            return self._room
