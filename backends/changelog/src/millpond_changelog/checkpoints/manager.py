"""
The checkpoint manager over a log: Samza's topic, which a job of Samza's reads, and which is read from one.

Any log will do; in Kafka the fence is the ``transactional.id`` of a task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from threading import Lock, RLock
from typing import ClassVar

from attrs import define, evolve, field

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import ConfigError, FencedError, StoreClosedError
from millpond.local import escape_name
from millpond.log import Log
from millpond.spi import SPI_VERSION, CheckpointManager, JobContext, ManagerCapabilities, VersionPolicy
from millpond_changelog.checkpoints import topic
from millpond_changelog.checkpoints.following import Follower
from millpond_changelog.checkpoints.keys import Keys
from millpond_changelog.checkpoints.pinning import PinBoard
from millpond_changelog.checkpoints.reading import TaskReader
from millpond_changelog.checkpoints.settings import KafkaCheckpointsSettings
from millpond_changelog.checkpoints.view import TaskView, TopicView
from millpond_changelog.checkpoints.writing import TaskWriter
from millpond_changelog.opening import open_log


@define
class _Task:
    reader: TaskReader
    writer: TaskWriter
    pins: PinBoard
    lock: RLock = field(factory=RLock)


class KafkaCheckpoints(CheckpointManager):
    """Keeps the records of a job's tasks in one topic of a log."""

    spi_version: ClassVar[tuple[int, int]] = SPI_VERSION
    config_class: ClassVar[type] = KafkaCheckpointsSettings
    capabilities = ManagerCapabilities(versions=frozenset({1, 2}))
    config: KafkaCheckpointsSettings

    def __init__(self, config: object, job: JobContext, versions: VersionPolicy) -> None:
        """Keep what is given; the log is opened by the first call."""
        super().__init__(config, job, versions)
        self.capabilities = self.capabilities_of(config)
        self.topic = self.config.topic or topic.topic_name(job.job, job.job_id)
        self._log: Log | None = None
        self._follower: Follower | None = None
        self._tasks: dict[str, _Task] = {}
        self._lock = Lock()
        self._closed = False

    @classmethod
    def capabilities_of(cls, config: object) -> ManagerCapabilities:
        """Give what it can do with *config*: without transactions nobody is fenced, and versions come one by one."""
        if getattr(config, "transactions", True):
            return cls.capabilities
        return evolve(cls.capabilities, fencing=False, atomic_versions=False)

    def open_log(self) -> Log:
        """Open the log that the settings name."""
        return open_log(self.config)

    def create_resources(self) -> None:
        """Make the topic."""
        self._opened()[0].create(self.topic, 1, self.config.for_topic())

    def validate_resources(self) -> None:
        """See that checkpoints are safe in the topic, and that a replaced writer is refused."""
        log, _ = self._opened()
        topic.validate(log.describe(self.topic), self.config)
        if log.capabilities.fencing:
            self._try_the_fence(log)

    def _try_the_fence(self, log: Log) -> None:
        owner = self._owner("", "probe")
        first = log.writer(owner)
        second = log.writer(owner)
        try:
            with first.append() as append:
                # Of a type that Samza skips, and it never gets there.
                append.add(self.topic, 0, [(Keys("", self.config.grouper).pin("probe"), None)])
                append.flush()
        except FencedError:
            return
        finally:
            first.close()
            second.close()
        raise ConfigError(
            f"the log with the topic {self.topic!r} does not refuse a replaced writer: two owners of a task could both "
            "write; use Apache Kafka 2.5 or later, or set checkpoint.transactions = false and accept that"
        )

    def tasks(self) -> Sequence[str]:
        """Give the names of the tasks that have a record here, sorted."""
        return self._opened()[1].tasks()

    def claim(self, task: str) -> Claim:
        """Take the right to write."""
        found = self._of(task)
        with found.lock:
            return found.writer.claim()

    def read_last(self, task: str) -> Checkpoint | None:
        """Give the newest checkpoint."""
        found = self._of(task)
        return found.reader.newest(self._look(found))

    def read(self, task: str, id: CheckpointId) -> Checkpoint:
        """Give the checkpoint *id*."""
        found = self._of(task)
        return found.reader.find(self._look(found), id)

    def ids(self, task: str) -> Sequence[CheckpointId]:
        """Give the ids of the checkpoints that are kept, newest first."""
        found = self._of(task)
        return found.reader.ids(self._look(found))

    def write(self, claim: Claim, checkpoint: Checkpoint, *, after: CheckpointId | None) -> None:
        """Publish *checkpoint*."""
        found = self._of(claim.task)
        with found.lock:
            found.writer.write(claim, checkpoint, after)

    def delete(self, claim: Claim, ids: Collection[CheckpointId]) -> None:
        """Remove the records *ids*."""
        found = self._of(claim.task)
        with found.lock:
            found.writer.delete(claim, ids)

    def pin(self, task: str, id: CheckpointId, name: str) -> None:
        """Keep a copy of the record *id* under *name*."""
        self._of(task).pins.pin(id, name)

    def unpin(self, task: str, name: str) -> None:
        """Remove the pin *name*."""
        self._of(task).pins.unpin(name)

    def pins(self, task: str) -> Mapping[str, CheckpointId]:
        """Give the pins: name to id."""
        reader = self._of(task).reader
        return {name: pinned.id for name, pinned in reader.pinned(reader.look()).items()}

    def close(self) -> None:
        """Let go of the log."""
        with self._lock:
            self._closed = True
            log, self._log, self._follower = self._log, None, None
            tasks, self._tasks = list(self._tasks.values()), {}
        for each in tasks:
            each.writer.close()
        if log is not None:
            log.close()

    def _look(self, found: _Task) -> TaskView:
        """Look, after it was found out what became of a commit without an answer; strictly, where we are the owner."""
        with found.lock:
            found.writer.settle()
            owns = found.writer.has_claim()
        return found.writer.look() if owns else found.reader.look()

    def _opened(self) -> tuple[Log, Follower]:
        with self._lock:
            if self._closed:
                raise StoreClosedError("this checkpoint manager is closed: reopen the job")
            if self._log is None or self._follower is None:
                self._log = self.open_log()
                self._follower = Follower(self._log, self.topic, self._fresh_view)
            return self._log, self._follower

    def _fresh_view(self) -> TopicView:
        return TopicView(self.config.grouper, self.versions.read, self.versions.max_age)

    def _of(self, task: str) -> _Task:
        if not task:
            raise ConfigError("a task needs a name of at least one character")
        log, follower = self._opened()
        with self._lock:
            found = self._tasks.get(task)
            if found is None:
                found = self._tasks[task] = self._made(task, log, follower)
        return found

    def _made(self, task: str, log: Log, follower: Follower) -> _Task:
        keys, reader = Keys(task, self.config.grouper), TaskReader(task, follower)
        job = f"{self.job.job!r} with id {self.job.job_id!r}"
        stated = self.job.layout.tasks if self.job.layout is not None else ()
        writer = TaskWriter(log, self._owners, stated, job, keys, self.versions, reader, self.job.clock)
        return _Task(reader, writer, PinBoard(log, self._owner(task, "pins"), keys, reader))

    def _owners(self, task: str) -> tuple[str, str]:
        return self._owner(task, "checkpoints"), self._owner(task, "pins")

    def _owner(self, task: str, what: str) -> str:
        """Give the log's owner: Kafka's transactional id, which is the cluster's, so the job is in it."""
        return "/".join(
            ("millpond", *map(escape_name, (self.job.job, self.job.job_id)), escape_name(task or what), what)
        )
