"""``millpond checkpoints``: which points can be restored, what they hold, whether they are whole, and pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from millpond.cli.asking import hex_option, job_options, one_task, open_reader, tasks_for
from millpond.cli.exits import NOT_OK, TRANSIENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.reading import Finding

checkpoint_argument = click.argument("checkpoint", required=False, metavar="[CHECKPOINT]")


@click.group("checkpoints")
def command() -> None:
    """
    List, show, compare, verify and pin the checkpoints of a job.

    CHECKPOINT is an id or the name of a pin; without one, the newest is meant.
    """


@command.command("list")
@job_options
def list_(config_file: str | None, task: str | None, as_json: bool) -> None:
    """List every checkpoint that can be restored, newest first; without --task, of every task."""
    from millpond.cli.checkpoint_views import as_json as checkpoint_json
    from millpond.cli.checkpoint_views import print_list
    from millpond.cli.tables import print_json

    with open_reader(config_file) as reader:
        found = {name: reader.checkpoints(name) for name in tasks_for(reader, task)}
        now = reader.context.clock.millis()
        if as_json:
            tasks = [
                {"task": name, "checkpoints": [checkpoint_json(name, each, now) for each in listed]}
                for name, listed in found.items()
            ]
            print_json({"job": reader.config.name, "tasks": tasks})
        else:
            print_list(found, now)


@command.command("show")
@checkpoint_argument
@job_options
def show(checkpoint: str | None, config_file: str | None, task: str | None, as_json: bool) -> None:
    """Show everything that one checkpoint says: markers of each store and backend, images, offsets."""
    from millpond.cli.checkpoint_views import as_json as checkpoint_json
    from millpond.cli.checkpoint_views import print_one
    from millpond.cli.tables import print_json

    with open_reader(config_file) as reader:
        name = one_task(reader, task)
        found, now = reader.listed(name, checkpoint), reader.context.clock.millis()
        if as_json:
            print_json({"job": reader.config.name, **checkpoint_json(name, found, now)})
        else:
            print_one(name, found, now)


@command.command("verify")
@checkpoint_argument
@job_options
def verify(checkpoint: str | None, config_file: str | None, task: str | None, as_json: bool) -> None:
    """
    Restore every store from every backend that has it, and compare each digest.

    Needs room for the largest store below $TMPDIR. Without --task, a checkpoint of every task is verified. Exit code 1
    if a copy is not whole, 5 if all that is wrong is that a backend did not answer.
    """
    from millpond.cli.checkpoint_views import print_findings
    from millpond.cli.tables import print_json
    from millpond.reading import verify as verify_task

    with open_reader(config_file) as reader:
        names = tasks_for(reader, task)
        if task is None and checkpoint is None:  # a task that has never committed has nothing to be wrong
            names = [name for name in names if reader.manager.read_last(name) is not None] or names
        findings = [finding for name in names for finding in verify_task(reader, name, checkpoint)]
        if as_json:
            ok = all(finding.good for finding in findings)
            print_json({"job": reader.config.name, "ok": ok, "copies": [_finding_json(each) for each in findings]})
        else:
            print_findings(findings)
    if code := _verdict(findings):
        click.get_current_context().exit(code)


def _verdict(findings: Sequence[Finding]) -> int:
    bad = {finding.state for finding in findings if not finding.good}
    if not bad:
        return 0
    return TRANSIENT if bad == {"unreachable"} else NOT_OK


def _finding_json(finding: Finding) -> dict[str, object]:
    return {
        "task": finding.task,
        "checkpoint": finding.checkpoint,
        "store": finding.store,
        "backend": finding.backend,
        "marker": finding.marker,
        "state": finding.state,
        "size": finding.size,
        "duration_s": round(finding.duration_s, 6),
        "detail": finding.detail or None,
    }


@command.command("diff")
@click.argument("earlier", metavar="FROM")
@click.argument("later", required=False, metavar="[TO]")
@click.option("--keys", is_flag=True, help="Restore both, and compare their keys.")
@click.option("--first", type=click.IntRange(min=0), default=10, show_default=True, help="Name so many keys.")
@hex_option
@job_options
def diff(
    earlier: str,
    later: str | None,
    keys: bool,
    first: int,
    as_hex: bool,
    config_file: str | None,
    task: str | None,
    as_json: bool,
) -> None:
    """
    Show what differs between the checkpoints FROM and TO, by store.

    Files are compared as their manifests tell, without reading them. With --keys both checkpoints of each store are
    restored below $TMPDIR, one store after the other.
    """
    from millpond.cli.diff_views import diff_json, print_diff
    from millpond.cli.tables import print_json
    from millpond.reading.diff import diff as differences

    with open_reader(config_file) as reader:
        name = one_task(reader, task)
        before, after, found = differences(reader, name, earlier, later, keys=keys, first=first)
        if as_json:
            print_json(diff_json(reader, name, before, after, found))
        else:
            print_diff(reader, name, before, after, found, as_hex=as_hex)


@command.command("pin")
@click.argument("name")
@checkpoint_argument
@job_options
def pin(name: str, checkpoint: str | None, config_file: str | None, task: str | None, as_json: bool) -> None:
    """Keep CHECKPOINT restorable under NAME, whatever checkpoint.retain says, until it is unpinned."""
    from millpond.cli.tables import print_json

    with open_reader(config_file) as reader:
        which = one_task(reader, task)
        id = reader.pin(which, checkpoint, name)
        if as_json:
            print_json({"job": reader.config.name, "task": which, "pin": name, "checkpoint": str(id)})
        else:
            click.echo(f"pinned checkpoint {id} of task {which} as {name}")


@command.command("unpin")
@click.argument("name")
@job_options
def unpin(name: str, config_file: str | None, task: str | None, as_json: bool) -> None:
    """Remove the pin NAME; the job's next commit removes what only the pin kept."""
    from millpond.cli.tables import print_json

    with open_reader(config_file) as reader:
        which = one_task(reader, task)
        id = reader.unpin(which, name)
        if as_json:
            print_json({"job": reader.config.name, "task": which, "pin": name, "checkpoint": str(id)})
        else:
            click.echo(f"unpinned {name}, which kept checkpoint {id} of task {which}")
