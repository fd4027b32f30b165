"""
What a trial's job has in a log: read plainly, as Samza or a consumer would, and removed at the trial's end.

A reader who knows nothing of markers takes the newest record of each key. Once the last owner has ended, that has to be
the state of the last checkpoint, and no open transaction may hide what comes after.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from threading import Event

from attrs import frozen

from millpond.config import BackendConfig, JobConfig
from millpond.formats.changelog_marker import FACTORY
from millpond.log import Log
from millpond.reading import JobReader
from millpond.testing.lab.world import STORES, TASK, Stores

_PATIENCE_S = 5.0
_PAUSE_S = 0.05


@frozen
class Partition:
    """
    One partition of an open log.

    Attributes:
        log: The log.
        topic: Which topic.
        number: Which partition of it.
    """

    log: Log
    topic: str
    number: int


def has_changelog(config: JobConfig) -> bool:
    """Whether the job has one."""
    return any(_changelogs(config))


def plain_reading(config: JobConfig) -> Stores:
    """Give the newest value of each key of each store's topic, in the job's one changelog."""
    (backend,) = _changelogs(config)
    with _partitions(config, backend) as partitions:
        return {store: _read(partition) for store, partition in partitions.items()}


def open_transactions(config: JobConfig) -> list[str]:
    """Give the partitions of the job's changelogs in which a transaction is open, or what it wrote cannot be read."""
    found = []
    for backend in _changelogs(config):
        with _partitions(config, backend) as partitions:
            hidden = [each for each in partitions.values() if _hides_something(each)]
            found += [f"open transaction in {each.topic}, partition {each.number}" for each in hidden]
    return found


def _hides_something(partition: Partition) -> bool:
    """Look again for a while: brokers tell a partition of a commit only after they have decided it."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        extent = partition.log.extent(partition.topic, partition.number)
        if extent.tail is None or extent.tail <= extent.end:
            return False
        if time.monotonic() > until:
            return True
        Event().wait(_PAUSE_S)


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
