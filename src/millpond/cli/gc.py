"""``millpond gc``: what no checkpoint needs any more, shown with its reason, and removed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from millpond.cli.asking import config_option, debug_option, json_option, open_reader
from millpond.cli.exits import changing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.reading import JobReader
    from millpond.reading.garbage import Found

_HOUR = timedelta(hours=1)


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option(
    "--grace",
    metavar="DURATION",
    help="Leave alone what is younger, such as 90m or 2d. Default: 1h, or twice commit.timeout if that is longer.",
)
@click.option("-b", "--backend", "backends", multiple=True, metavar="NAME", help="A backend's section. Default: all.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@config_option
@json_option
@debug_option
def command(
    dry_run: bool, grace: str | None, backends: tuple[str, ...], yes: bool, config_file: str | None, as_json: bool
) -> None:
    """
    Remove what backends hold and no checkpoint or pin needs.

    That is what failed commits, earlier owners, unfinished uploads and dead tasks left behind. Live jobs are not
    disturbed. Nothing outside the job's own place is looked at.
    """
    from millpond.reading.garbage import find_garbage

    if as_json and not (dry_run or yes):
        raise click.UsageError("with --json nobody is asked: add --yes or --dry-run")
    with open_reader(config_file) as reader:
        names = list(dict.fromkeys(backends)) or list(reader.config.backends)
        period = _grace(grace, reader)
        found = list(find_garbage(reader, period, names))
        shown = bool(found)
        if not as_json:
            _show(found, reader, period)
        if found and not dry_run and not yes:
            found = _confirmed(found, list(names), reader, period)
        removed = [] if dry_run else _remove(found)
        if as_json:
            _print_json(found, removed, reader, period, dry_run=dry_run)
        elif shown:
            click.echo(f"would remove {_sum(found)}" if dry_run else f"removed {_sum(removed)}")


def _grace(given: str | None, reader: JobReader) -> timedelta:
    """Read the grace period; one that a live job could be harmed by is a wrong usage."""
    from millpond.config.values import parse_duration, show_duration
    from millpond.reading.garbage import shortest_grace

    least = shortest_grace(reader.config.commit)
    if given is None:
        return max(_HOUR, least)
    try:
        grace = parse_duration(given)
    except ValueError as error:
        raise click.UsageError(f"--grace {given}: {error}") from error
    if grace < least:
        raise click.UsageError(
            f"--grace {given} is too short: what a live job is about to publish may be {show_duration(least)} old "
            f"(twice commit.timeout)"
        )
    return grace


def _confirmed(found: Sequence[Found], names: Sequence[str], reader: JobReader, grace: timedelta) -> list[Found]:
    """Ask; then look again, for somebody may have thought for a day: give what was shown and may still go."""
    from millpond.reading.garbage import find_garbage

    try:
        agreed = click.confirm(f"Remove {_sum(found)}?", err=True)
    except click.Abort:
        raise click.UsageError("nobody answered, and nothing was removed: add --yes or --dry-run") from None
    if not agreed:
        return []
    shown = {(each.backend, each.garbage.name) for each in found}
    again = find_garbage(reader, grace, names)
    return [each for each in again if (each.backend, each.garbage.name) in shown]


def _remove(found: Sequence[Found]) -> list[Found]:
    """Remove all of *found*; an error, or an interruption, tells how much went before it."""
    from millpond.reading.garbage import remove_garbage

    removed: list[Found] = []

    def note(part: Sequence[Found]) -> None:
        removed.extend(part)
        changing(f"removed {_sum(removed)}")

    try:
        remove_garbage(found, note)
    except Exception as error:
        error.add_note(f"removed {_sum(removed)} of {_sum(found)}; run it again for the rest")
        raise
    return removed


def _show(found: Sequence[Found], reader: JobReader, grace: timedelta) -> None:
    """Print the objects by backend, reason and folder."""
    from millpond.config.values import show_duration

    if not found:
        click.echo(f"job {reader.config.name}: nothing to remove that is older than {show_duration(grace)}")
        return
    groups: dict[tuple[str, str], dict[str, list[Found]]] = {}
    for each in found:
        folder = each.garbage.name.rpartition("/")[0]
        groups.setdefault((each.backend, each.garbage.reason), {}).setdefault(folder, []).append(each)
    for (backend, reason), folders in groups.items():
        members = [each for inner in folders.values() for each in inner]
        click.echo(f"backend {backend}: {_sum(members)}")
        click.echo(click.wrap_text(reason, initial_indent="  ", subsequent_indent="  "))
        for folder, inner in folders.items():
            if folder:
                click.echo(f"  in {folder}/")
            for each in inner:
                click.echo(f"  {_size(each):>10}  {each.garbage.name.removeprefix(f'{folder}/')}")


def _size(each: Found) -> str:
    from millpond.progress.words import size_text

    return "?" if each.garbage.size is None else size_text(each.garbage.size)


def _sum(found: Sequence[Found]) -> str:
    from millpond.progress.words import count_text, size_text

    return f"{count_text(len(found), 'object')}, {size_text(_bytes(found))}"


def _bytes(found: Sequence[Found]) -> int:
    return sum(each.garbage.size or 0 for each in found)


def _print_json(
    found: Sequence[Found], removed: Sequence[Found], reader: JobReader, grace: timedelta, *, dry_run: bool
) -> None:
    from millpond.cli.tables import print_json

    objects = [
        {
            "backend": each.backend,
            "name": each.garbage.name,
            "reason": each.garbage.reason,
            "size": each.garbage.size,
        }
        for each in found
    ]
    print_json(
        {
            "job": reader.config.name,
            "dry_run": dry_run,
            "grace_s": grace.total_seconds(),
            "size": _bytes(found),
            "removed": len(removed),
            "objects": objects,
        }
    )
