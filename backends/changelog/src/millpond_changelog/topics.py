"""
Which topic and partition a store's changes go to, how topics are made, and what is wrong with one; functions of values.

Names and settings follow Samza's ``StorageConfig`` and ``KafkaConfig``: one topic a store, one partition a task,
compacted. Where nobody says how many tasks there are, a task has topics of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta

from attrs import frozen

from millpond.checkpoint import Layout
from millpond.errors import ConfigError
from millpond.log import Topic
from millpond_changelog.settings import ChangelogSettings

LONGEST = 180
"""Characters of a topic's name before it is shortened; Kafka takes 249, and a folder's name some less."""

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION = re.compile(r"Partition (0|[1-9][0-9]{0,8})")
_MILLIS = timedelta(milliseconds=1)


@frozen
class Place:
    """
    Where one store of one task has its changes.

    Attributes:
        topic: The topic.
        partition: Its partition.
        partitions: How many the topic has to have; None: as many as it has.
    """

    topic: str
    partition: int
    partitions: int | None


@frozen
class Topics:
    """
    The topics of one job.

    Attributes:
        settings: The backend's.
        job: The job's name.
        job_id: Its id.
        layout: Its tasks, where they are stated.
    """

    settings: ChangelogSettings
    job: str
    job_id: str
    layout: Layout | None

    @property
    def partitions(self) -> int | None:
        """How many partitions a topic of all tasks has; None: nobody says."""
        if self.settings.partitions is not None:
            return self.settings.partitions
        return None if self.layout is None else len(self.layout.tasks)

    def is_shared(self, store: str) -> bool:
        """Tell whether all tasks have their partitions in one topic."""
        return store in self.settings.topics or self.partitions is not None

    def shared(self, store: str) -> str:
        """Give the topic of *store* for all tasks."""
        named = self.settings.topics.get(store)
        return _legal(named, store) if named is not None else topic_name(self.job, self.job_id, store)

    def place(self, store: str, task: str) -> Place:
        """
        Give where *task* has the changes of *store*.

        Raises:
            ConfigError: Nobody says which partition is the task's.
        """
        if not self.is_shared(store):
            return Place(topic_name(self.job, self.job_id, store, task), 0, 1)
        return Place(self.shared(store), self._partition(task), self.partitions)

    def _partition(self, task: str) -> int:
        """Give a task's partition: its place among the tasks, else the number in a name as Samza's."""
        number = _number_of(task, self.layout)
        if number is None:
            raise ConfigError(
                f"nobody says which partition of a changelog is task {task!r}'s: state all tasks by job.tasks, or call "
                'them "Partition 0", "Partition 1" and so on'
            )
        if self.partitions is not None and number >= self.partitions:
            raise ConfigError(
                f"task {task!r} is number {number}, and the changelogs have {self.partitions} partitions: state all "
                "tasks by job.tasks, or raise partitions"
            )
        return number

    def wanted(self) -> dict[str, str]:
        """Give the settings with which a topic is made."""
        settings = self.settings
        replicas = settings.replication_factor
        wanted = {
            "cleanup.policy": "compact",
            "replication.factor": str(replicas),
            "min.insync.replicas": str(settings.min_insync_replicas or max(1, replicas - 1)),
            "max.message.bytes": str(settings.max_message_bytes),
            "segment.bytes": str(settings.segment_bytes),
            "delete.retention.ms": str(settings.delete_retention // _MILLIS),
            "min.compaction.lag.ms": str(settings.min_compaction_lag // _MILLIS),
        }
        return {**wanted, **settings.topic_settings}


def _number_of(task: str, layout: Layout | None) -> int | None:
    if layout is not None and task in layout.tasks:
        return layout.tasks.index(task)
    match = _PARTITION.fullmatch(task)
    return None if match is None else int(match[1])


# ---------------------------------------------------------------------------------------------------------------- names


def topic_name(job: str, job_id: str, store: str, task: str | None = None) -> str:
    """
    Give a topic's name that no other job, store or task has; a long one ends in a digest.

    It has no dot and no bare underscore of its own, since Kafka takes two names that differ in these alone for one.
    """
    parts = [job, job_id, store] + ([] if task is None else [task])
    name = "--".join(map(_escape, [*parts, "changelog"]))
    if len(name) + sum(map(str.isupper, name)) <= LONGEST:
        return name
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return f"{name[: LONGEST // 2].rstrip('-')}---{digest}"


def _escape(part: str) -> str:
    """Give *part* of letters, digits and single inner dashes; each byte of anything else is ``_`` and two digits."""
    escaped = "".join(
        c if (c.isascii() and c.isalnum()) or c == "-" else "".join(f"_{byte:02x}" for byte in c.encode()) for c in part
    )
    return re.sub(r"^-|-$|(?<=-)-", "_2d", escaped)


def _legal(topic: str, store: str) -> str:
    if _LEGAL.fullmatch(topic) is None or topic in (".", ".."):
        raise ConfigError(
            f"topics.{store} is {topic!r}: a topic's name has up to 249 letters, digits, dots, dashes and underscores"
        )
    return topic


# ------------------------------------------------------------------------------------------------------------- problems


def problems(topic: Topic, partitions: int | None, settings: ChangelogSettings) -> Iterator[str]:
    """Give what is wrong with a topic, a sentence each that says what to alter."""
    name = topic.name
    if partitions is not None and topic.partitions != partitions:
        yield (
            f"topic {name} has {topic.partitions} partitions, and the job has {partitions} tasks: "
            + (f"raise it to {partitions} partitions" if topic.partitions < partitions else "state all tasks")
            + ", or name another topic"
        )
    yield from _policy_problems(topic)
    yield from _too_low(topic, "max.message.bytes", settings.max_message_bytes, "max_message_bytes")
    yield from _too_low(topic, "min.compaction.lag.ms", settings.min_compaction_lag // _MILLIS, "min_compaction_lag")
    yield from _too_low(topic, "delete.retention.ms", settings.delete_retention // _MILLIS, "delete_retention")
    if settings.min_insync_replicas is not None:
        yield from _too_low(topic, "min.insync.replicas", settings.min_insync_replicas, "min_insync_replicas")


def _policy_problems(topic: Topic) -> Iterator[str]:
    policies = {part.strip() for part in topic.settings.get("cleanup.policy", "delete").split(",")}
    if "compact" not in policies:
        yield (
            f"topic {topic.name} has cleanup.policy = {','.join(sorted(policies))}, which removes state that is still "
            "needed: set it to compact"
        )
    elif "delete" in policies:
        for name in ("retention.ms", "retention.bytes"):
            if number(topic.settings, name, -1) != -1:
                yield (
                    f"topic {topic.name} has cleanup.policy = compact,delete with {name} = {topic.settings[name]}, "
                    "which removes state that is still needed: set cleanup.policy to compact"
                )


def _too_low(topic: Topic, name: str, least: int, setting: str) -> Iterator[str]:
    found = number(topic.settings, name, least)
    if found < least:
        yield (
            f"topic {topic.name} has {name} = {found}, and {setting} asks for {least}: raise it on the topic, or lower "
            f"{setting}"
        )


def number(settings: Mapping[str, str], name: str, default: int) -> int:
    """Give a setting that is a number; *default* where it is missing or none."""
    try:
        return int(settings.get(name, default))
    except ValueError:
        return default
