"""What the coordinator's state machine decides; whoever drives it does so, in order."""

from __future__ import annotations

from attrs import frozen

from millpond.coordinator.messages import Order
from millpond.coordinator.record import JobRecord
from millpond.events import Event


@frozen
class Send:
    """Give *order* to one *member*; it may be lost."""

    member: str
    order: Order


@frozen
class Broadcast:
    """Give *order* to every member that is connected; any of it may be lost."""

    order: Order


@frozen
class Write:
    """Make *record* durable in place of the one before it, and say so; try until that is known."""

    record: JobRecord


@frozen
class Tell:
    """Tell the listeners of *event*."""

    event: Event


@frozen
class Fail:
    """Stop with *error*: only the operator can go on from here."""

    error: Exception


Decision = Send | Broadcast | Write | Tell | Fail
