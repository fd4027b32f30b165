"""
What a trial's job has in a log: read plainly, as Samza or a consumer would, and removed at the trial's end.

A reader who knows nothing of markers takes the newest record of each key. Once the last owner has ended, that has to be
the state of the last checkpoint, and no open transaction may hide what comes after.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from attrs import frozen

from millpond.config import BackendConfig, JobConfig
from millpond.formats.changelog_marker import FACTORY
from millpond.log import Log
from millpond.reading import JobReader
from millpond.testing.lab.world import STORES, TASK, Stores


@frozen
class Partition:
    """One partition of an open log."""

    log: Log
    topic: str
    number: int


def plain_reading(config: JobConfig) -> Stores | None:
    """Give the newest value of each key of each store's topic; None: the job has no changelog."""
    for backend in _changelogs(config):
        with _partitions(config, backend) as partitions:
            return {store: _read(partition) for store, partition in partitions.items()}
    return None


def open_transactions(config: JobConfig) -> list[str]:
    """Give the partitions of the job's changelogs in which a transaction is open, or what it wrote cannot be read."""
    found = []
    for backend in _changelogs(config):
        with _partitions(config, backend) as partitions:
            for each in partitions.values():
                extent = each.log.extent(each.topic, each.number)
                if extent.tail is not None and extent.tail > extent.end:
                    found.append(f"open transaction in {each.topic}, partition {each.number}")
    return found


def remove_topics(config: JobConfig) -> int:
    """Remove the topics of the job's changelogs and of its checkpoints; give how many."""
    count = 0
    for backend in _changelogs(config):
        with _partitions(config, backend) as partitions:
            for each in partitions.values():
                each.log.delete(each.topic)
                count += 1
    with JobReader(config) as reader:
        topic = getattr(reader.manager, "topic", None)
        if topic is not None:
            with closing(reader.manager.open_log()) as log:  # type: ignore[attr-defined]  # the one that has a topic
                log.delete(topic)
                count += 1
    return count


def _changelogs(config: JobConfig) -> Iterator[BackendConfig]:
    return (each for each in config.backends.values() if each.marker_key == FACTORY)


@contextmanager
def _partitions(config: JobConfig, backend: BackendConfig) -> Iterator[Mapping[str, Partition]]:
    """Give the partition of each store."""
    with JobReader(config) as reader:
        job = reader.context
    topics = importlib.import_module("millpond_changelog.topics").Topics(
        backend.settings, job.job, job.job_id, job.layout
    )
    with closing(backend.factory.open_log()) as log:  # type: ignore[attr-defined]  # a changelog has it
        places = {store: topics.place(store, TASK) for store in STORES}
        yield {store: Partition(log, place.topic, place.partition) for store, place in places.items()}


def _read(partition: Partition) -> dict[bytes, bytes]:
    extent = partition.log.extent(partition.topic, partition.number)
    newest: dict[bytes, bytes | None] = {}
    for batch in partition.log.read(partition.topic, partition.number, extent.start, extent.end):
        newest.update(batch.changes())
    return {key: value for key, value in newest.items() if value is not None}
