"""One attempt at a commit: what it froze, what it made, and whether it is still wanted."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future

from attrs import define, field

from millpond.checkpoint import Checkpoint, CheckpointId, Markers, SystemStreamPartition
from millpond.errors import CommitFailedError
from millpond.stores.images import Image


@define(eq=False)
class Attempt:
    """
    A commit on its way. The processing thread makes it, then it belongs to the lanes.

    Attributes:
        id: The id of the checkpoint that it will be.
        offsets: The input offsets as they were.
        marks: For each dirty store, the newest run that belongs to it.
        unchanged: Dirty stores whose data did not change: some backend lacks a marker.
        started: The monotonic second of its beginning.
        notes: For each backend that is called, what its ``snapshot`` gave.
        images: For each dirty store, its image; staged by the apply lane, sealed by the commit lane.
        phases_s: Seconds by phase.
        error: What went wrong before the commit lane's turn.
    """

    id: CheckpointId
    offsets: Mapping[SystemStreamPartition, str]
    marks: Mapping[str, int]
    unchanged: frozenset[str]
    started: float
    deadline: float
    future: Future[Checkpoint] = field(factory=Future)
    notes: dict[str, Markers] = field(factory=dict)
    images: dict[str, Image] = field(factory=dict)
    failed: set[str] = field(factory=set)
    uploaded: dict[str, Markers] = field(factory=dict)
    phases_s: dict[str, float] = field(factory=dict)
    error: BaseException | None = None
    _lock: threading.Lock = field(factory=threading.Lock)
    _given_up: str | None = None
    _writing: bool = False
    _late: bool = False

    def __attrs_post_init__(self) -> None:
        # Nobody who waits can cancel it: others wait too, and a commit is given up by its task alone.
        self.future.set_running_or_notify_cancel()

    @property
    def is_undone(self) -> bool:
        """Whether it has failed, so that what is left of it is to undo it: the next commit need not wait to begin."""
        return self.future.done() and self.future.exception() is not None

    @property
    def late(self) -> bool:
        """Whether it was given up because it took too long."""
        return self._late

    def give_up(self, reason: str) -> bool:
        """Want this commit no longer; False if its record is already being written."""
        with self._lock:
            if self._writing:
                return False
            self._given_up = self._given_up or reason
            return True

    def give_up_late(self) -> bool:
        """Want this commit no longer since it took too long; False if its record is already being written."""
        given_up = self.give_up(f"it took longer than {self.deadline - self.started:g} s (commit.timeout)")
        self._late = self._late or given_up
        return given_up

    def check(self, now: float) -> None:
        """
        Raise once the commit is no longer wanted, or took too long.

        Raises:
            CommitFailedError: With the reason.
        """
        if now > self.deadline:
            self.give_up_late()
        if self._given_up is not None:
            raise CommitFailedError(f"commit {self.id} was given up: {self._given_up}")

    def begin_write(self, now: float) -> None:
        """Pass the last point at which the commit may be given up."""
        with self._lock:
            self._writing = self._given_up is None and now <= self.deadline
        if not self._writing:
            self.check(now)
