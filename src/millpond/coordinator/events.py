"""
What happens to a job's checkpoints, as events; the log shows each with its class and its fields.

They go where a job's other events go. *task* is the member's name, where one is meant.
"""

from __future__ import annotations

from attrs import frozen

from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.events import Event


@frozen(kw_only=True)
class CoordinatorElected(Event):
    """A coordinator leads; *newest* is the job checkpoint that it found."""

    candidate: str
    epoch: int
    newest: JobCheckpointId | None


@frozen(kw_only=True)
class CoordinatorFenced(Event):
    """A coordinator has lost its leadership and decides nothing any more."""

    candidate: str
    epoch: int
    error: BaseException


@frozen(kw_only=True)
class MemberJoined(Event):
    """A member is here; *replaced* says that an earlier start of it was."""

    incarnation: str
    replaced: bool


@frozen(kw_only=True)
class MemberLost(Event):
    """A member has left, or was silent for too long."""

    incarnation: str
    reason: str


@frozen(kw_only=True)
class MembersMissing(Event):
    """The whole job waits for *members*; told again while it does."""

    members: tuple[str, ...]


@frozen(kw_only=True)
class MemberRefused(Event):
    """Somebody who does not belong to the job wanted to join."""

    reason: str


@frozen(kw_only=True)
class JobRestoreStarted(Event):
    """All members go to *checkpoint* (None: the state before the first one)."""

    transaction: TransactionId
    checkpoint: JobCheckpointId | None
    reason: str


@frozen(kw_only=True)
class JobRestoreFailed(Event):
    """A member could not be restored; *damaged* says that an older checkpoint follows, else the same is tried again."""

    transaction: TransactionId
    checkpoint: JobCheckpointId | None
    reason: str
    damaged: bool


@frozen(kw_only=True)
class OlderJobCheckpointChosen(Event):
    """The newest job checkpoint cannot be restored: all members go to an older one, and what came after is lost."""

    damaged: JobCheckpointId
    chosen: JobCheckpointId | None


@frozen(kw_only=True)
class JobRestored(Event):
    """All members are at *checkpoint* and process."""

    transaction: TransactionId
    checkpoint: JobCheckpointId | None
    duration_s: float


@frozen(kw_only=True)
class JobCheckpointStarted(Event):
    """An attempt at a job checkpoint began with so many *members*."""

    attempt: JobCheckpointId
    members: int


@frozen(kw_only=True)
class JobCheckpointSkipped(Event):
    """A job checkpoint was due while another was still in flight."""

    in_flight: JobCheckpointId
    age_s: float
    missing: int


@frozen(kw_only=True)
class JobCheckpointAbandoned(Event):
    """An attempt will never be whole; *missing* members had not saved."""

    attempt: JobCheckpointId
    reason: str
    missing: int


@frozen(kw_only=True)
class JobCheckpointCompleted(Event):
    """A job checkpoint is whole and recorded; older ones but *retained* may be removed."""

    id: JobCheckpointId
    members: int
    duration_s: float
    retained: tuple[JobCheckpointId, ...]


@frozen(kw_only=True)
class JobRecordUncertain(Event):
    """Nobody knows yet whether the record was written; it is looked for and written again until that is known."""

    id: JobCheckpointId
    error: BaseException


@frozen(kw_only=True)
class BarriersAligned(Event):
    """All channels of a member gave their barrier."""

    attempt: JobCheckpointId
    duration_s: float
    held_size: int
    spilled_size: int


@frozen(kw_only=True)
class SavedStateRemovalFailed(Event):
    """A member's superseded state could not be removed; the next job checkpoint tries again."""

    error: BaseException
