"""The log line of each of the coordinator's events, for somebody who was woken up by it."""

from __future__ import annotations

import logging

from millpond.coordinator import events
from millpond.coordinator.ids import JobCheckpointId
from millpond.progress import LogListener
from millpond.progress.lines import Line, line
from millpond.progress.words import count_text, duration_text, error_text, listed, size_text

__all__ = ["LogListener"]  # with it the lines below are known


def _place(checkpoint: JobCheckpointId | None) -> str:
    return "the state before the first job checkpoint" if checkpoint is None else f"job checkpoint {checkpoint}"


@line.register
def _(event: events.CoordinatorElected) -> Line:
    found = "there is no job checkpoint yet" if event.newest is None else f"the newest job checkpoint is {event.newest}"
    return Line(logging.INFO, f"coordinator {event.candidate} leads with epoch {event.epoch}; {found}")


@line.register
def _(event: events.CoordinatorFenced) -> Line:
    return Line(
        logging.WARNING,
        f"coordinator {event.candidate} (epoch {event.epoch}) decides nothing any more, and stands for election again: "
        f"{error_text(event.error)}",
    )


@line.register
def _(event: events.MemberJoined) -> Line:
    return Line(logging.INFO, "has started again, in place of an earlier start" if event.replaced else "is here")


@line.register
def _(event: events.MemberLost) -> Line:
    return Line(logging.WARNING, f"is lost: {event.reason}; nothing is checkpointed or restored before it is back")


@line.register
def _(event: events.MembersMissing) -> Line:
    return Line(
        logging.WARNING,
        f"waiting for {count_text(len(event.members), 'member')} before all are restored: {listed(event.members)}",
    )


@line.register
def _(event: events.MemberRefused) -> Line:
    return Line(logging.ERROR, f"was refused: {event.reason}", repeats=True)


@line.register
def _(event: events.JobRestoreStarted) -> Line:
    return Line(
        logging.INFO, f"all members go to {_place(event.checkpoint)} (restore {event.transaction}): {event.reason}"
    )


@line.register
def _(event: events.JobRestoreFailed) -> Line:
    follows = "all go to an older one" if event.damaged else "the same is tried again"
    return Line(logging.WARNING, f"cannot be restored to {_place(event.checkpoint)}, so {follows}: {event.reason}")


@line.register
def _(event: events.OlderJobCheckpointChosen) -> Line:
    return Line(
        logging.ERROR,
        f"job checkpoint {event.damaged} cannot be restored: all members go back to {_place(event.chosen)}, and what "
        f"came after that is processed again",
    )


@line.register
def _(event: events.JobRestored) -> Line:
    took = duration_text(event.duration_s)
    return Line(logging.INFO, f"all members are at {_place(event.checkpoint)} and process, after {took}")


@line.register
def _(event: events.JobCheckpointStarted) -> Line:
    return Line(logging.DEBUG, f"job checkpoint {event.attempt} began with {count_text(event.members, 'member')}")


@line.register
def _(event: events.JobCheckpointSkipped) -> Line:
    return Line(
        logging.WARNING,
        f"a job checkpoint is due, and {event.in_flight} is still in flight after {duration_text(event.age_s)}: "
        f"{count_text(event.missing, 'member')} missing; raise interval_s if that goes on",
        repeats=True,
    )


@line.register
def _(event: events.JobCheckpointAbandoned) -> Line:
    missing = count_text(event.missing, "member")
    return Line(logging.WARNING, f"job checkpoint {event.attempt} is given up, {missing} missing: {event.reason}")


@line.register
def _(event: events.JobCheckpointCompleted) -> Line:
    return Line(
        logging.INFO,
        f"job checkpoint {event.id} is whole: {count_text(event.members, 'member')} in "
        f"{duration_text(event.duration_s)}; {len(event.retained)} retained",
    )


@line.register
def _(event: events.JobRecordUncertain) -> Line:
    return Line(
        logging.WARNING,
        f"nobody knows yet whether the record with job checkpoint {event.id} was written; it is looked for and written "
        f"until that is known: {error_text(event.error)}",
        repeats=True,
    )


@line.register
def _(event: events.BarriersAligned) -> Line:
    held = f", {size_text(event.held_size)} held" if event.held_size else ""
    spilled = f", {size_text(event.spilled_size)} on disk" if event.spilled_size else ""
    took = duration_text(event.duration_s)
    return Line(logging.DEBUG, f"barriers of {event.attempt} aligned in {took}{held}{spilled}")


@line.register
def _(event: events.SavedStateRemovalFailed) -> Line:
    return Line(
        logging.WARNING,
        f"superseded state could not be removed; the next job checkpoint tries again: {error_text(event.error)}",
        repeats=True,
    )
