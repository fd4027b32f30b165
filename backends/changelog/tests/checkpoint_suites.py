"""Checkpoint managers over each log, for the kit; a child process imports them again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from attrs import evolve, frozen

from millpond.formats import log_key
from millpond.formats.digest import digest_bytes
from millpond.log import Log
from millpond.spi import CheckpointManager, JobContext, VersionPolicy
from millpond.testing.kit.door import SideDoor
from millpond.testing.kit.manager_suite import CheckpointsSuite
from millpond_changelog.checkpoints.manager import KafkaCheckpoints
from millpond_changelog.checkpoints.settings import KafkaCheckpointsSettings
from millpond_changelog.opening import open_log
from millpond_changelog.settings import LogSettings

ADDRESS = "MILLPOND_KAFKA_OF_THIS_RUN"
"""The environment variable by which a child process finds the session's broker."""


@frozen
class LogDoor(SideDoor):
    """
    Damages the newest record of each key of each checkpoint topic, by a later record of that key.

    Attributes:
        settings: Where the log is.
        topics: The names of the topics, which grow.
    """

    settings: LogSettings
    topics: set[str]

    def names(self) -> list[str]:
        """Give topic, task and type of each key that has a value."""
        return sorted(self._all())

    def read(self, name: str) -> bytes:
        """Give the value of a key."""
        return self._all()[name][1]

    def write(self, name: str, data: bytes) -> None:
        """Put a value under a key."""
        self._put(name, data)

    def delete(self, name: str) -> None:
        """Put a tombstone under a key."""
        self._put(name, None)

    def _put(self, name: str, value: bytes | None) -> None:
        topic = name.partition("/")[0]
        key, _, headers = self._all()[name]
        # To become a transactional writer takes a tenth of a second, and nobody fences here.
        with closing(open_log(evolve(self.settings, transactions=False))) as log:
            writer = log.writer("the side door")
            with writer.append() as append:
                append.add(topic, 0, [(key, value)], headers=headers)
                append.flush()
                append.commit()

    def _all(self) -> dict[str, tuple[bytes, bytes, dict[str, bytes]]]:
        with closing(open_log(self.settings)) as log:
            return {
                f"{topic}/{read.task}/{read.type}": (key, *found)
                for topic in sorted(self.topics)
                for key, found in _newest(log, topic)
                for read in (log_key.decode(key),)
            }


def _newest(log: Log, topic: str) -> Iterator[tuple[bytes, tuple[bytes, dict[str, bytes]]]]:
    extent = log.extent(topic, 0)
    found: dict[bytes, tuple[bytes | None, dict[str, bytes]]] = {}
    for batch in log.read(topic, 0, extent.start, extent.end):
        for index, (key, value) in enumerate(batch.changes()):
            found[key] = (value, dict(batch.headers(index)))
    return ((key, (value, headers)) for key, (value, headers) in found.items() if value is not None)


class EmbeddedCheckpointsSuite(CheckpointsSuite):
    """The manager over a log in a folder."""

    name = "checkpoints, embedded log"

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> CheckpointManager:
        """Make a manager."""
        made = KafkaCheckpoints(self.settings(folder), job, versions)
        self.topics.add(made.topic)
        return made

    @property
    def topics(self) -> set[str]:
        """The topics of all managers that were made."""
        found: set[str] = self.__dict__.setdefault("_topics", set())
        return found

    def side_door(self, folder: Path) -> SideDoor:
        """Give the way into the topics of what was made last."""
        self.topics.clear()
        return LogDoor(self.settings(folder), self.topics)

    def settings(self, folder: Path) -> KafkaCheckpointsSettings:
        """Give the settings for what is kept in *folder*."""
        return KafkaCheckpointsSettings(directory=folder / "log")


class KafkaCheckpointsSuite(EmbeddedCheckpointsSuite):
    """The manager over Kafka; jobs have the folder in their names, since a broker is shared."""

    name = "checkpoints, Kafka"

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> CheckpointManager:
        """Make a manager."""
        unique = digest_bytes(str(folder).encode()).partition(":")[2][:12]
        return super().make(folder, evolve(job, job=f"{unique}-{job.job}"), versions)

    def settings(self, folder: Path) -> KafkaCheckpointsSettings:
        """Give the settings of the session's broker."""
        address = os.environ[ADDRESS]
        return KafkaCheckpointsSettings(bootstrap_servers=address, replication_factor=1, kafka={"linger.ms": "1"})
