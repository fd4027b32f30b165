"""``millpond savepoint``: pins of a whole job, and copies that need nothing of where they came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from millpond.cli.asking import at_option, config_path, job_options, open_reader, tasks_for
from millpond.cli.exits import changing
from millpond.errors import StateNotFoundError

if TYPE_CHECKING:
    from millpond.blob.savepoint import Copied
    from millpond.checkpoint import CheckpointId
    from millpond.reading import JobReader, Listed

_TO = "The configuration whose manager and backends keep the copy."
to_option = click.option("--to", "to", required=True, metavar="FILE", help=_TO)
_TO_WORDS = {"created": ", and copied to job {}", "copied": " to job {}", "moved": " to job {}"}
optional_to_option = click.option("--to", "to", metavar="FILE", help=f"Copy it too. {_TO}")


@click.group("savepoint")
def command() -> None:
    """
    Keep checkpoints under a name, and copy them to another place.

    A savepoint is a pin in each task. A copy needs no object and no record of where it came from. Without --task, all
    tasks are meant.
    """


@command.command("create")
@click.argument("name")
@at_option
@optional_to_option
@job_options
def create(name: str, at: str | None, to: str | None, config_file: str | None, task: str | None, as_json: bool) -> None:
    """Pin the newest checkpoint of each task, or the one that --at names, as NAME; with --to, copy it there."""
    with open_reader(config_file) as reader, _target(to) as target:
        tasks = _with_checkpoint(reader, task, at)
        pinned: dict[str, CheckpointId] = {}
        for each in tasks:
            pinned[each] = reader.pin(each, at, name)
            changing(f"{name} keeps a checkpoint of {', '.join(pinned)}")
        copies = {} if target is None else _copy(reader, target, name, pinned)
        _report("created", name, reader, target, pinned, copies, as_json=as_json)


def _with_checkpoint(reader: JobReader, task: str | None, at: str | None) -> list[str]:
    """Give the tasks that have the checkpoint, before one of them is pinned; a task without any is left out."""
    names = tasks_for(reader, task)
    if at is not None:
        for each in names:
            reader.checkpoint(each, at)
        return names
    found = [each for each in names if reader.manager.read_last(each) is not None]
    if not found:
        raise StateNotFoundError(f"job {reader.config.name!r} has no checkpoint yet: a savepoint needs a commit")
    return found


@command.command("list")
@job_options
def list_(config_file: str | None, task: str | None, as_json: bool) -> None:
    """List the savepoints, by name."""
    from millpond.cli.checkpoint_views import as_json as checkpoint_json
    from millpond.cli.tables import Column, age_text, local_time, print_json, print_table

    with open_reader(config_file) as reader:
        found = _savepoints(reader, task)
        now = reader.context.clock.millis()
        if as_json:
            rows = [{"name": name, **checkpoint_json(each, kept, now)} for name, each, kept in found]
            print_json({"job": reader.config.name, "savepoints": rows})
            return
        if not found:
            click.echo(f"job {reader.config.name}: no savepoint")
            return
        columns = (
            Column("savepoint"),
            Column("task"),
            Column("checkpoint"),
            Column("time", 2),
            Column("age"),
            Column("in", 1, folds=True),
        )
        rows_shown = [
            [name, each, str(kept.checkpoint.id), local_time(kept.checkpoint.id.millis),
             age_text(kept.checkpoint.id.millis, now), ", ".join(sorted(kept.checkpoint.markers))]
            for name, each, kept in found
        ]  # fmt: skip
        print_table(columns, rows_shown)


def _savepoints(reader: JobReader, task: str | None) -> list[tuple[str, str, Listed]]:
    """Give name, task and checkpoint of each savepoint; those of one name together."""
    listed = [(each, kept) for each in tasks_for(reader, task) for kept in reader.checkpoints(each)]
    found = [(name, each, kept) for each, kept in listed for name in kept.pins]
    return sorted(found, key=lambda row: row[:2])


@command.command("delete")
@click.argument("name")
@job_options
def delete(name: str, config_file: str | None, task: str | None, as_json: bool) -> None:
    """Remove the savepoint NAME; the job's next commit removes what only it kept. Copies elsewhere stay."""
    with open_reader(config_file) as reader:
        removed: dict[str, CheckpointId] = {}
        for each in _holding(reader, task, name):
            removed[each] = reader.unpin(each, name)
            changing(f"{name} keeps nothing of {', '.join(removed)} any more")
        _report("deleted", name, reader, None, removed, {}, as_json=as_json)


@command.command("copy")
@click.argument("name")
@to_option
@job_options
def copy(name: str, to: str, config_file: str | None, task: str | None, as_json: bool) -> None:
    """
    Copy the savepoint NAME to where another configuration keeps its records and state.

    Every byte is verified on the way. Only what is in an object store can be copied, to object stores of any kind. The
    task keeps its name there; the job may be called otherwise. Copying the same again is fine.
    """
    _copy_or_move("copied", name, to, config_file, task, as_json=as_json)


@command.command("move")
@click.argument("name")
@to_option
@job_options
def move(name: str, to: str, config_file: str | None, task: str | None, as_json: bool) -> None:
    """Copy the savepoint NAME to another place, as `copy` does, and then delete it here."""
    _copy_or_move("moved", name, to, config_file, task, as_json=as_json)


def _copy_or_move(verb: str, name: str, to: str, config_file: str | None, task: str | None, *, as_json: bool) -> None:
    with open_reader(config_file) as reader, _target(to) as target:
        assert target is not None
        kept = {each: reader.id_of(each, name) for each in _holding(reader, task, name)}
        copies = _copy(reader, target, name, kept)
        if verb == "moved":
            for each in kept:
                reader.unpin(each, name)
        _report(verb, name, reader, target, kept, copies, as_json=as_json)


@contextmanager
def _target(to: str | None) -> Iterator[JobReader | None]:
    """Open the job that takes a copy."""
    if to is None:
        yield None
        return
    from millpond.reading import JobReader

    with JobReader(config_path(to)) as target:
        yield target


def _holding(reader: JobReader, task: str | None, name: str) -> list[str]:
    """Give the tasks that have the savepoint."""
    found = [each for each in tasks_for(reader, task) if name in reader.pins(each)]
    if not found:
        where = f"job {reader.config.name!r}" if task is None else f"task {task!r}"
        raise StateNotFoundError(f"{where} has no savepoint {name!r}: `millpond savepoint list` shows them")
    return found


def _copy(reader: JobReader, target: JobReader, name: str, kept: Mapping[str, CheckpointId]) -> dict[str, Copied]:
    """Copy each task's; what an interruption leaves behind there, the other job's gc finds."""
    from millpond.reading.savepoints import copy_savepoint, left_out

    copied: dict[str, Copied] = {}
    for task, id in kept.items():
        if stores := left_out(reader.manager.read(task, id), target.config):
            click.echo(f"millpond: task {task}: job {target.config.name} has no store {', '.join(stores)}", err=True)
        changing(f"{name} was copied of {', '.join(copied) or 'no task'}; copying again goes on, and is safe")
        copied[task] = copy_savepoint(reader, target, task, name)
    return copied


def _report(
    verb: str,
    name: str,
    reader: JobReader,
    target: JobReader | None,
    ids: Mapping[str, CheckpointId],
    copies: Mapping[str, Copied],
    *,
    as_json: bool,
) -> None:
    from millpond.cli.tables import Column, print_json, print_table
    from millpond.progress.words import size_text

    if as_json:
        to = None if target is None else {"job": target.config.name, "id": target.config.id}
        tasks = [
            {
                "task": task,
                "checkpoint": str(id),
                "objects": copies[task].objects if task in copies else None,
                "size": copies[task].size if task in copies else None,
            }
            for task, id in ids.items()
        ]
        print_json({"job": reader.config.name, "savepoint": name, "to": to, "tasks": tasks})
        return
    click.echo(f"savepoint {name}: {verb}" + ("" if target is None else _TO_WORDS[verb].format(target.config.name)))
    columns = [Column("task"), Column("checkpoint")]
    rows = [[task, str(id)] for task, id in ids.items()]
    if target is not None:
        columns += [Column("objects", right=True), Column("size", right=True)]
        rows = [[*row, f"{copies[row[0]].objects:,}", size_text(copies[row[0]].size)] for row in rows]
    print_table(columns, rows)
