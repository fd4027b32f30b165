"""What backends hold that no checkpoint needs; found beside live writers, which notice nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

from attrs import frozen

from millpond.blob.garbage import collect
from millpond.checkpoint import Checkpoint
from millpond.config import CommitConfig
from millpond.errors import ConfigError, StateNotFoundError
from millpond.reading.job import JobReader
from millpond.spi import Garbage


@frozen
class Found:
    """
    Something that may go.

    Attributes:
        backend: The section of the backend that holds it.
        garbage: What it is, why it may go, and how.
    """

    backend: str
    garbage: Garbage


def shortest_grace(commit: CommitConfig) -> timedelta:
    """
    Give the shortest grace period that is safe beside live writers.

    A checkpoint may be published while we look, and what it names was uploaded up to ``commit.timeout`` before.
    """
    return 2 * commit.timeout


def find_garbage(reader: JobReader, grace: timedelta, backends: Sequence[str]) -> Iterator[Found]:
    """
    Find what *backends* hold, no checkpoint or pin needs, and is older than *grace*. Only looks.

    Raises:
        ConfigError: *grace* is shorter than :func:`shortest_grace`, or nobody here can read the records.
        StateNotFoundError: There is no such backend, or no task has a record.
    """
    least = shortest_grace(reader.config.commit)
    if grace < least:
        raise ConfigError(
            f"a grace period of {grace} is too short: what a live job is about to publish may be {least} old "
            f"(twice commit.timeout)"
        )
    if not reader.manager.capabilities.durable:
        raise ConfigError(
            f"the checkpoint manager {reader.config.checkpoint.manager!r} keeps its records in the job's own process: "
            f"from here nobody knows what they need"
        )
    for name in backends:
        admin = reader.admin(name)
        # Read anew for each: a backend before this one may have taken hours.
        yield from (Found(name, each) for each in admin.garbage(_retained(reader), grace))


def _retained(reader: JobReader) -> Mapping[str, Sequence[Checkpoint]]:
    """Give all that must stay; a configured task without any record is left out, for it may be the wrong place."""
    recorded = set(reader.manager.tasks())
    found = {task: [each.checkpoint for each in reader.checkpoints(task)] for task in reader.tasks()}
    retained = {task: kept for task, kept in found.items() if kept or task in recorded}
    if not retained:
        raise StateNotFoundError(
            f"job {reader.config.name!r} has no record at all there, so nothing was looked for: it has never "
            f"committed, or its records are elsewhere"
        )
    return retained


def remove_garbage(found: Sequence[Found], removed: Callable[[Sequence[Found]], None], batch: int = 1_000) -> None:
    """Remove all of *found* with few requests, and tell *removed* after each batch; the first error ends it."""
    for backend in dict.fromkeys(each.backend for each in found):
        own = [each for each in found if each.backend == backend]
        for at in range(0, len(own), batch):
            part = own[at : at + batch]
            collect(each.garbage for each in part)
            removed(part)
