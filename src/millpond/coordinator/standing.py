"""What a coordinator's state machine holds: the job's phase, an attempt, a restore, a record on its way, counts."""

from __future__ import annotations

from enum import Enum, auto

from attrs import define, field, frozen

from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.record import JobCheckpoint, JobRecord
from millpond.coordinator.state import MemberState


class Phase(Enum):
    """What the job is doing, as a whole."""

    GATHERING = auto()
    RESTORING = auto()
    RUNNING = auto()
    STUCK = auto()


@define
class Attempt:
    """
    An attempt at a job checkpoint; times are monotonic seconds.

    Attributes:
        id: Its number.
        begun: When it began.
        asked: When members were told last.
        waiting: Those that have not saved; it shrinks.
        name: Of the savepoint that it makes; empty: none.
        states: What was saved so far.
    """

    id: JobCheckpointId
    begun: float
    asked: float
    waiting: set[str]
    name: str
    states: dict[str, MemberState] = field(factory=dict)


@define
class Restoring:
    """
    A restore that is under way; times are monotonic seconds.

    Attributes:
        transaction: Its number.
        checkpoint: Where it goes; None: the state before the first job checkpoint.
        begun: When it began.
        asked: When members were told last.
        waiting: Those that have not answered; it shrinks.
    """

    transaction: TransactionId
    checkpoint: JobCheckpoint | None
    begun: float
    asked: float
    waiting: set[str]


@frozen
class Writing:
    """
    A record on its way, and what follows when it is durable.

    Attributes:
        record: The record.
        attempt: This one is complete then.
        restoring: After this one the members may start then.
    """

    record: JobRecord
    attempt: Attempt | None = None
    restoring: Restoring | None = None


@define
class Counts:
    """
    What was counted since this leadership began, for metrics.

    Attributes:
        attempts: Attempts that began.
        completed: Attempts that became whole and recorded.
        abandoned: Attempts that never will.
        skipped: Times when one was due while another was in flight.
        saved: Reports of a saved state that counted.
        ignored: Reports that counted for nothing: late, doubled, of another attempt, restore or start.
        restores: Restores that were ordered.
        restored: Restores that were complete.
        resent: Orders that were sent again.
    """

    attempts: int = 0
    completed: int = 0
    abandoned: int = 0
    skipped: int = 0
    saved: int = 0
    ignored: int = 0
    restores: int = 0
    restored: int = 0
    resent: int = 0
