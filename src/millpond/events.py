"""
What happens, as frozen values, and who is told.

Every event names the job and the task; sizes are bytes, durations are seconds. A listener is called on the thread on
which the thing happened, often a worker's, sometimes the processing thread: it must be quick and must not block.
What a listener raises is logged once and changes nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from attrs import frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim

log = logging.getLogger("millpond")


@frozen(kw_only=True)
class Event:
    """Something that happened in a job; the base of all events."""

    job: str
    task: str = ""


@frozen(kw_only=True)
class TaskClaimed(Event):
    """The right to write this task's checkpoints was taken; every earlier owner is shut out."""

    claim: Claim


@frozen(kw_only=True)
class StateNotDurable(Event):
    """A backend or a manager keeps what it is given in this process only."""

    name: str


@frozen(kw_only=True)
class RestorePlanned(Event):
    """Where each store will come from; *sources* is store to ``"local"``, ``"new"`` or the backends in order."""

    checkpoint: CheckpointId | None
    sources: Mapping[str, str]


@frozen(kw_only=True)
class StoreIsNew(Event):
    """The configuration names a store that the checkpoint has never held: it begins empty."""

    store: str


@frozen(kw_only=True)
class MarkerIgnored(Event):
    """The checkpoint holds a store that the configuration does not name: it is left alone."""

    store: str
    backend: str


@frozen(kw_only=True)
class RestoreProgress(Event):
    """How far a store's restore has come; *total_size* is None while nobody knows it."""

    store: str
    backend: str
    records: int
    size: int
    total_size: int | None


@frozen(kw_only=True)
class StoreRestored(Event):
    """A store is exactly as its checkpoint says; *source* is ``"local"``, ``"new"`` or a backend's name."""

    store: str
    source: str
    duration_s: float
    size: int = 0


@frozen(kw_only=True)
class RestoreFailedOver(Event):
    """A source could not give a store back, and the next one is asked."""

    store: str
    source: str
    following: str
    error: BaseException


@frozen(kw_only=True)
class OlderCheckpointChosen(Event):
    """No backend could give the newest checkpoint back: all offsets and stores go to an older one together."""

    damaged: CheckpointId
    chosen: CheckpointId
    error: BaseException


@frozen(kw_only=True)
class Quarantined(Event):
    """Proven damage was moved aside, for somebody to look at."""

    path: Path
    reason: str


@frozen(kw_only=True)
class TaskRestored(Event):
    """All stores are ready and the task may process."""

    checkpoint: CheckpointId | None
    duration_s: float


@frozen(kw_only=True)
class CommitStarted(Event):
    """A commit has frozen its offsets and its changes; *stores* are the dirty ones."""

    id: CheckpointId
    stores: tuple[str, ...]


@frozen(kw_only=True)
class CommitSkipped(Event):
    """A commit was asked for while another was in flight."""

    in_flight: CheckpointId
    age_s: float


@frozen(kw_only=True)
class ImageMade(Event):
    """A dirty store has its image; *new_size* is what earlier images did not hold."""

    id: CheckpointId
    store: str
    files: int
    size: int
    new_files: int
    new_size: int
    duration_s: float


@frozen(kw_only=True)
class Uploaded(Event):
    """A backend says that its part of a commit is durable."""

    id: CheckpointId
    backend: str
    stores: tuple[str, ...]
    duration_s: float


@frozen(kw_only=True)
class BackupDecided(Event):
    """How a backend uploads a store: *way* is ``"files"`` or ``"changes"``; *links* is its chain's new length."""

    id: CheckpointId
    backend: str
    store: str
    way: str
    reason: str
    size: int
    links: int


@frozen(kw_only=True)
class ObjectsUploaded(Event):
    """A backend's part of a commit lies in so many objects of an object store."""

    id: CheckpointId
    backend: str
    objects: int
    size: int


@frozen(kw_only=True)
class ObjectsRemoved(Event):
    """Objects that nobody needs any more were removed from an object store, with so many requests."""

    backend: str
    objects: int
    requests: int
    reason: str


@frozen(kw_only=True)
class OptionalBackendFailed(Event):
    """A backend with ``required = false`` failed: the checkpoint is without its markers."""

    id: CheckpointId
    backend: str
    error: BaseException


@frozen(kw_only=True)
class CommitPublished(Event):
    """A checkpoint is durable; *phases_s* maps ``freeze``, ``image``, ``upload``, ``write`` to seconds."""

    checkpoint: Checkpoint
    stores: tuple[str, ...]
    duration_s: float
    phases_s: Mapping[str, float]


@frozen(kw_only=True)
class CommitFailed(Event):
    """A commit is not known to have happened; *unknown* says that it may have."""

    id: CheckpointId
    error: BaseException
    unknown: bool


@frozen(kw_only=True)
class CommitSettled(Event):
    """A commit whose outcome was unknown turned out to be *published* or not."""

    id: CheckpointId
    published: bool


@frozen(kw_only=True)
class CleanedUp(Event):
    """What only superseded checkpoints held is removed; *dropped* are the records that went."""

    backend: str
    duration_s: float
    dropped: tuple[CheckpointId, ...] = ()


@frozen(kw_only=True)
class CleanupFailed(Event):
    """Something superseded could not be removed; the next commit tries again."""

    backend: str
    error: BaseException


@frozen(kw_only=True)
class TaskFenced(Event):
    """Another process owns this task now: this one is over."""

    error: BaseException


@frozen(kw_only=True)
class TaskFailed(Event):
    """Something that nobody expected ended the task: reopen it."""

    error: BaseException


@frozen(kw_only=True)
class TaskClosed(Event):
    """The task let go of its directories and its stores."""

    last: CheckpointId | None


class Listener(Protocol):
    """Told of every event."""

    def __call__(self, event: Event) -> None:
        """Take *event*; be quick, and raise nothing."""
        ...


@frozen
class Listeners:
    """Passes each event on to several listeners, and keeps their errors to itself."""

    listeners: tuple[Callable[[Event], None], ...] = ()

    @classmethod
    def of(cls, listeners: Iterable[Callable[[Event], None]]) -> Listeners:
        """Gather *listeners*, in order."""
        return cls(tuple(listeners))

    def __call__(self, event: Event) -> None:
        """Tell everybody."""
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:  # a listener is a guest: it may not stop a commit
                log.exception("listener %r failed on %s", listener, type(event).__name__)
