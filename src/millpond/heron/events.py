"""What happens in a served checkpoint manager, as events beside the others, and their log lines."""

from __future__ import annotations

import logging

from attrs import frozen

from millpond.events import Event
from millpond.progress.lines import Line, line
from millpond.progress.words import count_text, error_text, listed, size_text

NO_TOPOLOGY = "heron-ckptmgr"
"""The ``job`` of an event about a client that has not said which topology it belongs to."""


def ignore(_event: Event) -> None:
    """Tell nobody."""


@frozen(kw_only=True)
class HeronEvent(Event):
    """Something that happened in a served checkpoint manager; ``job`` is the topology, and *peer* the client."""

    peer: str = ""


@frozen(kw_only=True)
class Connected(HeronEvent):
    """A client has connected."""


@frozen(kw_only=True)
class Disconnected(HeronEvent):
    """A connection has ended; *reason* is empty where the client ended it."""

    reason: str = ""


@frozen(kw_only=True)
class ConnectionRefused(HeronEvent):
    """A client was not let in."""

    reason: str


@frozen(kw_only=True)
class Registered(HeronEvent):
    """A coordinator (*slot* is empty) or a stream manager was let in; *replaced* another one with its name."""

    slot: str
    replaced: bool


@frozen(kw_only=True)
class RegistrationRefused(HeronEvent):
    """A registration was answered with NOTOK."""

    reason: str


@frozen(kw_only=True)
class PlanIgnored(HeronEvent):
    """A stream manager's plan was missing or damaged; it is registered all the same."""

    slot: str


@frozen(kw_only=True)
class SpillRefused(HeronEvent):
    """A plan asks for spilled states in a folder that the operator has not allowed: they travel in packets."""

    location: str


@frozen(kw_only=True)
class StateSaved(HeronEvent):
    """A state is durable, and its save is about to be answered."""

    checkpoint: str
    component: str
    index: int
    size: int
    duration_s: float


@frozen(kw_only=True)
class StateFetched(HeronEvent):
    """A state was read and verified, and is about to be sent."""

    checkpoint: str
    component: str
    index: int
    size: int
    duration_s: float


@frozen(kw_only=True)
class CheckpointsCleaned(HeronEvent):
    """Checkpoints were removed; *duration_s* is what it took."""

    checkpoints: tuple[str, ...]
    duration_s: float


@frozen(kw_only=True)
class RequestFailed(HeronEvent):
    """A request was answered with NOTOK."""

    request: str
    error: BaseException


@frozen(kw_only=True)
class RetentionFailed(HeronEvent):
    """Checkpoints beyond the number to keep could not be removed; the next whole checkpoint tries again."""

    error: BaseException


@line.register
def _connected(event: Connected) -> Line:
    return Line(logging.DEBUG, f"{event.peer} connected")


@line.register
def _disconnected(event: Disconnected) -> Line:
    if event.reason:
        return Line(logging.WARNING, f"the connection of {event.peer} was closed: {event.reason}", repeats=True)
    return Line(logging.DEBUG, f"{event.peer} closed its connection")


@line.register
def _connection_refused(event: ConnectionRefused) -> Line:
    return Line(logging.WARNING, f"{event.peer} was not let in: {event.reason}", repeats=True)


@line.register
def _registered(event: Registered) -> Line:
    who = f"stream manager {event.slot}" if event.slot else "the coordinator"
    how = ", in place of an earlier connection" if event.replaced else ""
    return Line(logging.INFO, f"{who} registered from {event.peer}{how}")


@line.register
def _registration_refused(event: RegistrationRefused) -> Line:
    return Line(logging.WARNING, f"a registration from {event.peer} was refused: {event.reason}", repeats=True)


@line.register
def _plan_ignored(event: PlanIgnored) -> Line:
    text = f"the plan of stream manager {event.slot} is missing or damaged: its checkpoints are not marked as whole"
    return Line(logging.WARNING, text, repeats=True)


@line.register
def _spill_refused(event: SpillRefused) -> Line:
    text = f"states are to pass through {event.location}, which --spill-root does not allow: they travel in packets"
    return Line(logging.WARNING, text)


@line.register
def _saved(event: StateSaved) -> Line:
    place = f"{event.component}/{event.index} of checkpoint {event.checkpoint}"
    return Line(logging.DEBUG, f"{place} was saved, {size_text(event.size)}")


@line.register
def _fetched(event: StateFetched) -> Line:
    place = f"{event.component}/{event.index} of checkpoint {event.checkpoint}"
    return Line(logging.DEBUG, f"{place} was fetched, {size_text(event.size)}")


@line.register
def _cleaned(event: CheckpointsCleaned) -> Line:
    gone = f": {listed(event.checkpoints)}" if event.checkpoints else ""
    return Line(logging.INFO, f"{count_text(len(event.checkpoints), 'checkpoint')} cleaned{gone}")


@line.register
def _failed(event: RequestFailed) -> Line:
    text = f"{event.request} of {event.peer} was answered with NOTOK: {error_text(event.error)}"
    return Line(logging.WARNING, text, repeats=True)


@line.register
def _retention_failed(event: RetentionFailed) -> Line:
    text = f"checkpoints beyond the number to keep could not be removed: {error_text(event.error)}"
    return Line(logging.WARNING, text, repeats=True)
