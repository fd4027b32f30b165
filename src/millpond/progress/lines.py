"""The log line of each event: how loud it is, and what it says to somebody who was woken up by it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import singledispatch
from pathlib import Path

import attrs
from attrs import frozen

from millpond import events
from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import MillpondError
from millpond.events import Event
from millpond.progress.words import count_text, duration_text, error_text, listed, size_text

_RENAMED = {"id": "checkpoint", "name": "plugin", "error": "error_text"}
"""Fields of events that a log record calls otherwise: it has a ``name`` of its own."""


@frozen
class Line:
    """
    What an event says.

    Attributes:
        level: Of ``logging``.
        text: One line of plain words.
        repeats: It may come many times a second: it is passed on at *level* now and then, and else at DEBUG.
        trace: The error that nobody expected, for its traceback.
    """

    level: int
    text: str
    repeats: bool = False
    trace: BaseException | None = None


@singledispatch
def line(event: Event) -> Line:
    """Give the line of *event*, without the job and the task; an event of a class that nobody knows is shown whole."""
    shown = ", ".join(
        f"{name} {value}" for name, value in fields(event).items() if name not in ("event", "job", "task")
    )
    return Line(logging.INFO, f"{type(event).__name__}: {shown}" if shown else type(event).__name__)


def where(event: Event) -> str:
    """Give the job and the task of *event*, as a line begins."""
    return f"{event.job}, {event.task}" if event.task else event.job


def fields(event: Event) -> dict[str, object]:
    """
    Give what *event* holds as plain values, for the ``extra`` of a log record; what is None is left out.

    ``event`` is the name of its class, ``checkpoint`` the text of an id, ``error`` the class of an error and
    ``error_text`` its text.
    """
    found: dict[str, object] = {"event": type(event).__name__}
    for field in attrs.fields(type(event)):
        value = getattr(event, field.name)
        found |= _field(_RENAMED.get(field.name, field.name), value)
    return found


def _field(name: str, value: object) -> dict[str, object]:
    match value:
        case None:
            return {}
        case Checkpoint():
            return {name: str(value.id)}
        case Claim():
            return {"epoch": value.epoch, "writer": value.writer}
        case BaseException():
            return {"error": type(value).__name__, name: error_text(value)}
        case _:
            return {name: _plain(value)}


def _plain(value: object) -> object:
    match value:
        case CheckpointId() | Path():
            return str(value)
        case tuple():
            return [_plain(part) for part in value]
        case Mapping():
            return dict(value)
        case _:
            return value


# ---------------------------------------------------------------------------------------------------- opening a task


@line.register
def _(event: events.TaskClaimed) -> Line:
    return Line(logging.INFO, f"claimed with epoch {event.claim.epoch}; every earlier owner is shut out")


@line.register
def _(event: events.StateNotDurable) -> Line:
    return Line(
        logging.WARNING,
        f"{event.name} keeps what it is given in this process only: it is lost when the process ends; "
        f"configure a durable one for anything but tests",
    )


@line.register
def _(event: events.RestorePlanned) -> Line:
    if event.checkpoint is None:
        return Line(logging.INFO, f"no checkpoint yet: {count_text(len(event.sources), 'store')} will begin empty")
    sources = listed(
        f"{store} from {source}" if source != "new" else f"{store} new" for store, source in event.sources.items()
    )
    return Line(logging.INFO, f"restoring checkpoint {event.checkpoint}: {sources or 'no stores'}")


@line.register
def _(event: events.StoreIsNew) -> Line:
    return Line(
        logging.WARNING,
        f"store {event.store} is new and begins empty; if it was renamed, stop and give it its old name back",
    )


@line.register
def _(event: events.MarkerIgnored) -> Line:
    return Line(
        logging.WARNING,
        f"the checkpoint holds store {event.store} in {event.backend}, which is not configured: it is left alone; "
        f"the next checkpoint will be without it",
    )


@line.register
def _(event: events.RestoreProgress) -> Line:
    total = "" if event.total_size is None else f" of {size_text(event.total_size)}"
    return Line(
        logging.INFO,
        f"restoring store {event.store} from {event.backend}: {size_text(event.size)}{total}, "
        f"{count_text(event.records, 'record')}",
        repeats=True,
    )


@line.register
def _(event: events.StoreRestored) -> Line:
    size = f", {size_text(event.size)}" if event.size else ""
    source = "the local image" if event.source == "local" else event.source
    return Line(logging.INFO, f"store {event.store} restored from {source}{size} in {duration_text(event.duration_s)}")


@line.register
def _(event: events.RestoreFailedOver) -> Line:
    told = f"store {event.store}: {event.source} cannot give it back ({error_text(event.error)})"
    if event.following:
        return Line(logging.WARNING, f"{told}; asking {event.following} next")
    return Line(
        logging.ERROR, f"{told}; there is nobody left to ask: see `millpond checkpoints verify` for what is whole"
    )


@line.register
def _(event: events.OlderCheckpointChosen) -> Line:
    return Line(
        logging.ERROR,
        f"checkpoint {event.damaged} cannot be restored ({error_text(event.error)}): going back to {event.chosen}, "
        f"offsets and all stores together; the input since then is processed again",
    )


@line.register
def _(event: events.Quarantined) -> Line:
    return Line(logging.WARNING, f"damage was moved to {event.path} ({event.reason}); check the disk, then remove it")


@line.register
def _(event: events.TaskRestored) -> Line:
    took = duration_text(event.duration_s)
    if event.checkpoint is None:
        return Line(logging.INFO, f"ready after {took}, from the beginning: there is no checkpoint yet")
    return Line(logging.INFO, f"ready after {took}, at checkpoint {event.checkpoint}")


# -------------------------------------------------------------------------------------------------------- committing


@line.register
def _(event: events.CommitStarted) -> Line:
    return Line(logging.DEBUG, f"commit {event.id} started, {count_text(len(event.stores), 'changed store')}")


@line.register
def _(event: events.CommitSkipped) -> Line:
    return Line(
        logging.INFO,
        f"commit skipped: {event.in_flight} is still in flight after {duration_text(event.age_s)}; if this goes on, "
        f"commits take longer than commit.interval",
        repeats=True,
    )


@line.register
def _(event: events.ImageMade) -> Line:
    return Line(
        logging.DEBUG,
        f"commit {event.id}: image of store {event.store} in {duration_text(event.duration_s)}, "
        f"{count_text(event.files, 'file')} of {size_text(event.size)}; new {count_text(event.new_files, 'file')} of "
        f"{size_text(event.new_size)}",
    )


@line.register
def _(event: events.Uploaded) -> Line:
    return Line(
        logging.DEBUG,
        f"commit {event.id}: {event.backend} has {count_text(len(event.stores), 'store')} after "
        f"{duration_text(event.duration_s)}",
    )


@line.register
def _(event: events.BackupDecided) -> Line:
    return Line(
        logging.DEBUG,
        f"commit {event.id}: {event.backend} uploads store {event.store} as {event.way}, {size_text(event.size)}: "
        f"{event.reason}",
    )


@line.register
def _(event: events.ObjectsUploaded) -> Line:
    return Line(
        logging.DEBUG,
        f"commit {event.id}: {event.backend} uploaded {count_text(event.objects, 'object')} of {size_text(event.size)}",
    )


@line.register
def _(event: events.ObjectsRemoved) -> Line:
    return Line(
        logging.DEBUG,
        f"{event.backend} removed {count_text(event.objects, 'object')} with {count_text(event.requests, 'request')}: "
        f"{event.reason}",
    )


@line.register
def _(event: events.OptionalBackendFailed) -> Line:
    return Line(
        logging.WARNING,
        f"commit {event.id} goes on without the optional backend {event.backend} ({error_text(event.error)}); until "
        f"it is mended, it cannot restore this checkpoint",
    )


@line.register
def _(event: events.CommitPublished) -> Line:
    phases = ", ".join(f"{phase} {duration_text(seconds)}" for phase, seconds in event.phases_s.items())
    return Line(
        logging.INFO,
        f"committed {event.checkpoint.id} in {duration_text(event.duration_s)}{f' ({phases})' if phases else ''}, "
        f"{count_text(len(event.stores), 'changed store')}",
    )


@line.register
def _(event: events.CommitFailed) -> Line:
    if event.unknown:
        todo = "it may have been published; the next commit finds out, and no data is removed until then"
    else:
        todo = "nothing was committed and the state is intact; the next commit includes these changes"
    return Line(
        logging.ERROR, f"commit {event.id} failed ({error_text(event.error)}): {todo}", trace=_unexpected(event.error)
    )


@line.register
def _(event: events.CommitSettled) -> Line:
    if event.published:
        return Line(logging.INFO, f"commit {event.id}, whose outcome was unknown, was published: nothing is lost")
    return Line(
        logging.WARNING,
        f"commit {event.id}, whose outcome was unknown, was not published: its changes are part of the next commit",
    )


@line.register
def _(event: events.CleanedUp) -> Line:
    dropped = f", superseded: {listed(map(str, event.dropped))}" if event.dropped else ""
    backend = event.backend or "the records"
    return Line(logging.DEBUG, f"tidied {backend} in {duration_text(event.duration_s)}{dropped}")


@line.register
def _(event: events.CleanupFailed) -> Line:
    backend = event.backend or "the records"
    return Line(
        logging.WARNING,
        f"{backend} could not be tidied ({error_text(event.error)}); nothing is lost, the next commit tries again; "
        f"if this goes on, superseded data piles up",
        trace=_unexpected(event.error),
    )


# ------------------------------------------------------------------------------------------------------------ ending


@line.register
def _(event: events.TaskFenced) -> Line:
    return Line(
        logging.ERROR,
        f"another process owns this task now ({error_text(event.error)}): this one is over and has harmed nothing; "
        f"if two were not meant to run, stop one of them",
    )


@line.register
def _(event: events.TaskFailed) -> Line:
    return Line(
        logging.ERROR,
        f"the task failed ({error_text(event.error)}): nothing after its last checkpoint is kept; open it again",
        trace=event.error,
    )


@line.register
def _(event: events.TaskClosed) -> Line:
    return Line(logging.INFO, f"closed at checkpoint {event.last}" if event.last else "closed before its first commit")


def _unexpected(error: BaseException) -> BaseException | None:
    """Give *error* if nobody raised it on purpose: then its traceback is worth its lines."""
    known = isinstance(error, MillpondError) and (error.__cause__ is None or isinstance(error.__cause__, MillpondError))
    return None if known or isinstance(error, OSError) else error
