"""
What coordinator and members say to one another; any of it may be lost, doubled, late or out of order.

*Orders* go to members and name the epoch of the leadership that gives them; *reports* go to the coordinator and name
the member and its incarnation, a text that no other start of this member has. msgspec's structs, since a transport
writes them as they are.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.state import Place, State

_Epoch = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _Order(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An order; *epoch* is that of the leadership that gives it."""

    epoch: _Epoch


class Restore(_Order, frozen=True, kw_only=True, tag=True):
    """
    Go back to a job checkpoint, and wait for ``Start``.

    Attributes:
        incarnation: The start of the member that is meant. One that was long on its way may reach a later start, which
            would otherwise take part in what runs already, with the state of before.
        transaction: Names this restore; an answer to another one counts for nothing.
        checkpoint: The job checkpoint; None: the state before the first one.
        state: This member's part of it; None with *checkpoint* None.
        retained: All job checkpoints that must stay restorable.
    """

    incarnation: str
    transaction: TransactionId
    checkpoint: JobCheckpointId | None
    state: State | None
    retained: tuple[JobCheckpointId, ...]


class Start(_Order, frozen=True, kw_only=True, tag=True):
    """All members are restored by *transaction*: process."""

    transaction: TransactionId


class Begin(_Order, frozen=True, kw_only=True, tag=True):
    """Attempt a job checkpoint: sources save and send their barriers, the others wait for theirs."""

    transaction: TransactionId
    attempt: JobCheckpointId


class Abandoned(_Order, frozen=True, kw_only=True, tag=True):
    """The attempt will never be whole: let go of what waits for it."""

    attempt: JobCheckpointId
    reason: str


class Completed(_Order, frozen=True, kw_only=True, tag=True):
    """
    The attempt is whole and recorded: what waited for that may go out.

    Attributes:
        attempt: The job checkpoint.
        retained: All that must stay restorable; an older one that is not here may go.
    """

    attempt: JobCheckpointId
    retained: tuple[JobCheckpointId, ...]


class Rejoin(_Order, frozen=True, kw_only=True, tag=True):
    """This coordinator does not know you: send ``Joined`` again."""


class Refused(_Order, frozen=True, kw_only=True, tag=True):
    """
    You do not belong here; *incarnation* says who is meant, *reason* what to correct.

    Attributes:
        replaced: A later start of this member has taken its place.
    """

    incarnation: str
    reason: str
    replaced: bool = False


class Here(_Order, frozen=True, kw_only=True, tag=True):
    """I lead and am well; sent regularly, so that a member leaves a coordinator that says nothing any more."""


Order = Here | Restore | Start | Begin | Abandoned | Completed | Rejoin | Refused


class _Report(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A report of one start of one member."""

    member: str
    incarnation: str


class Joined(_Report, frozen=True, kw_only=True, tag=True):
    """I am here, at this place in the topology."""

    place: Place


class Alive(_Report, frozen=True, kw_only=True, tag=True):
    """
    I am well; sent regularly, so that what was lost is sent again.

    Attributes:
        running: The restore after which it processes; None: it does not.
        completed: The newest job checkpoint that it knows to be whole.
        waiting: The attempt that it has begun to save, and of which it has not heard the outcome.
    """

    running: TransactionId | None = None
    completed: JobCheckpointId | None = None
    waiting: JobCheckpointId | None = None


class Saved(_Report, frozen=True, kw_only=True, tag=True):
    """My part of the attempt is durable."""

    transaction: TransactionId
    attempt: JobCheckpointId
    state: State


class Declined(_Report, frozen=True, kw_only=True, tag=True):
    """I cannot save my part of the attempt; *reason* says why. I go on processing."""

    transaction: TransactionId
    attempt: JobCheckpointId
    reason: str


class Restored(_Report, frozen=True, kw_only=True, tag=True):
    """I am as *transaction* said, and wait."""

    transaction: TransactionId


class Unrestorable(_Report, frozen=True, kw_only=True, tag=True):
    """
    I cannot go where *transaction* says.

    Attributes:
        damaged: My part is missing or damaged, so that only another job checkpoint helps; else trying again may.
    """

    transaction: TransactionId
    reason: str
    damaged: bool


class Reset(_Report, frozen=True, kw_only=True, tag=True):
    """Restore all of us: what ran since *transaction* cannot go on, e.g. since a peer's records were lost."""

    transaction: TransactionId
    reason: str


class Left(_Report, frozen=True, kw_only=True, tag=True):
    """I end, or whoever watches me saw me die."""

    reason: str = ""


Report = Joined | Alive | Saved | Declined | Restored | Unrestorable | Reset | Left
