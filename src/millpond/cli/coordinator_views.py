"""A coordinator's record as tables and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from millpond.cli.tables import Column, age_text, local_time, print_table, utc_time
from millpond.coordinator.state import InlineState, LocatedState, NoState, TaskState
from millpond.progress.words import size_text

if TYPE_CHECKING:
    from millpond.coordinator.record import JobCheckpoint, JobRecord
    from millpond.coordinator.state import State

_LIST = (
    Column("job checkpoint"),
    Column("time", 2),
    Column("age"),
    Column("members", right=True),
    Column("state", 3, folds=True),
    Column("name", folds=True),
    Column("based on", 1),
)
_MEMBERS = (Column("member"), Column("place"), Column("state", folds=True))


def print_record(leader: tuple[int, str] | None, record: JobRecord | None, now_millis: int) -> None:
    """Print who leads, and a line for each job checkpoint."""
    click.echo("nobody has led yet" if leader is None else f"last elected: {leader[1]} with epoch {leader[0]}")
    if record is None or record.newest is None:
        click.echo("there is no job checkpoint")
        return
    print_table(_LIST, [_row(each, now_millis) for each in record.checkpoints])


def print_members(record: JobRecord) -> None:
    """Print each member's part of the newest job checkpoint."""
    newest = record.newest
    if newest is not None:
        click.echo(f"\nmembers of {newest.id}:")
        rows = [[name, str(part.place), _state_text(part.state)] for name, part in sorted(newest.members.items())]
        print_table(_MEMBERS, rows)


def as_json(leader: tuple[int, str] | None, record: JobRecord | None, now_millis: int) -> dict[str, object]:
    """Give the same for programs."""
    checkpoints = () if record is None else record.checkpoints
    return {
        "leader": None if leader is None else {"candidate": leader[1], "epoch": leader[0]},
        "job_checkpoints": [_checkpoint_json(each, now_millis) for each in checkpoints],
    }


def _row(each: JobCheckpoint, now_millis: int) -> list[str]:
    kinds = Counter(_kind(part.state) for part in each.members.values())
    return [
        str(each.id),
        local_time(each.millis),
        age_text(each.millis, now_millis),
        str(len(each.members)),
        ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
        each.name,
        "the beginning" if each.based_on is None else str(each.based_on),
    ]


def _checkpoint_json(each: JobCheckpoint, now_millis: int) -> dict[str, object]:
    return {
        "id": str(each.id),
        "time": utc_time(each.millis),
        "age_s": max(0, now_millis - each.millis) / 1000,
        "name": each.name or None,
        "based_on": None if each.based_on is None else str(each.based_on),
        "members": {
            name: {"place": str(part.place), "kind": _kind(part.state), "state": _state_text(part.state)}
            for name, part in sorted(each.members.items())
        },
    }


def _kind(state: State) -> str:
    """Say in a word where a state lies."""
    match state:
        case TaskState():
            return "task checkpoint"
        case InlineState():
            return "inline"
        case LocatedState():
            return "elsewhere"
        case NoState():
            return "none"


def _state_text(state: State) -> str:
    """Say where a state lies; never what it is."""
    match state:
        case TaskState(checkpoint):
            return f"checkpoint {checkpoint}"
        case InlineState(data):
            return f"{size_text(len(data))} in the record"
        case LocatedState(location, size, digest):
            return f"{size_text(size)} at {location}, {digest}"
        case NoState():
            return "none"
