"""What the Kafka host tells an operator, beside the events of its tasks, and the log line of each."""

from __future__ import annotations

import logging

from attrs import frozen

from millpond.checkpoint import CheckpointId
from millpond.events import Event
from millpond.progress.lines import Line, line
from millpond.progress.words import duration_text, error_text, listed

Numbers = tuple[int, ...]


@frozen(kw_only=True)
class Assigned(Event):
    """The group gave partitions to this process; their tasks are opened, and their records wait."""

    partitions: tuple[str, ...]


@frozen(kw_only=True)
class Revoked(Event):
    """The group takes partitions; *lost* says that it has taken them already, so nothing is committed."""

    partitions: tuple[str, ...]
    lost: bool


@frozen(kw_only=True)
class TaskStarted(Event):
    """A task is restored and gets records; *offsets* are those that it reads first, by topic."""

    offsets: dict[str, int]


@frozen(kw_only=True)
class TaskWaits(Event):
    """A task could not be opened, or had to stop, in a way that may go away; it is tried again in *retry_s* seconds."""

    error: BaseException
    retry_s: float


@frozen(kw_only=True)
class TaskLeft(Event):
    """A task was handed over; *error* says why its last commit or its closing did not end well. None: it did."""

    committed: CheckpointId | None
    duration_s: float
    error: BaseException | None


@frozen(kw_only=True)
class TaskHeld(Event):
    """A task's partitions are paused, since a write would wait; they go on by themselves."""


@frozen(kw_only=True)
class ClientTrouble(Event):
    """The Kafka client has something to say that it mends by itself, such as a broker that is away."""

    text: str


@frozen(kw_only=True)
class HostReady(Event):
    """All tasks of this process run (*ready*), or some have to be opened first."""

    ready: bool


@frozen(kw_only=True)
class HostStopping(Event):
    """The host hands its tasks over and leaves the group; *error* is why, None if it was asked to."""

    error: BaseException | None


@line.register
def _(event: Assigned) -> Line:
    return Line(logging.INFO, f"the group gave {listed(event.partitions) or 'nothing'}")


@line.register
def _(event: Revoked) -> Line:
    if event.lost:
        text = f"the group took {listed(event.partitions)} without asking: this process did not answer in time"
        return Line(logging.WARNING, f"{text}; what was not committed is done again by the new owner")
    return Line(logging.INFO, f"the group takes {listed(event.partitions) or 'nothing'}")


@line.register
def _(event: TaskStarted) -> Line:
    return Line(logging.INFO, "reads " + listed(f"{topic} from {offset}" for topic, offset in event.offsets.items()))


@line.register
def _(event: TaskWaits) -> Line:
    return Line(
        logging.WARNING, f"is opened again in {duration_text(event.retry_s)}: {error_text(event.error)}", repeats=True
    )


@line.register
def _(event: TaskLeft) -> Line:
    took = duration_text(event.duration_s)
    if event.error is None:
        said = "without a commit" if event.committed is None else f"with checkpoint {event.committed}"
        return Line(logging.INFO, f"handed over {said} in {took}")
    return Line(logging.WARNING, f"handed over in {took}, not cleanly: {error_text(event.error)}")


@line.register
def _(event: TaskHeld) -> Line:
    return Line(logging.INFO, "its partitions wait: the state engine or the disk does not keep up", repeats=True)


@line.register
def _(event: ClientTrouble) -> Line:
    return Line(logging.WARNING, f"Kafka: {event.text}", repeats=True)


@line.register
def _(event: HostReady) -> Line:
    return Line(logging.INFO, "ready" if event.ready else "not ready: tasks are being opened")


@line.register
def _(event: HostStopping) -> Line:
    if event.error is None:
        return Line(logging.INFO, "stops: hands its tasks over and leaves the group")
    return Line(logging.ERROR, f"stops: {error_text(event.error)}")
