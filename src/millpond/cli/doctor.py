"""``millpond doctor``: what a job relies on, tried step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from millpond.cli.asking import config_option, debug_option, json_option, open_reader
from millpond.cli.exits import NOT_OK, TRANSIENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.reading.attempts import Tried


@click.command("doctor")
@click.option("--create", is_flag=True, help="First make what is missing, as a job does when it opens a task.")
@config_option
@json_option
@debug_option
def command(create: bool, config_file: str | None, as_json: bool) -> None:
    """
    Try what the job relies on: plugins, disk, permissions, conditional writes, listings, clocks.

    Changes nothing but probes, which are removed. Exit code 1 if something has to be corrected, 5 if all that is
    wrong is that something did not answer.
    """
    from itertools import groupby

    from millpond.cli.tables import print_json
    from millpond.reading.doctor import examine

    tried: list[Tried] = []
    with open_reader(config_file) as reader:
        for part, steps in groupby(examine(reader, create=create), key=lambda each: _section(each.part)):
            found = list(steps)
            if not as_json:
                _print(part, found, first=not tried)
            tried.extend(found)
        if as_json:
            ok = all(each.good for each in tried)
            print_json({"job": reader.config.name, "ok": ok, "steps": [_as_json(each) for each in tried]})
        else:
            click.echo(f"\n{conclusion(tried)}")
    if code := _verdict(tried):
        click.get_current_context().exit(code)


def _section(part: str) -> str:
    return "versions" if part == "millpond" or part.startswith("plugin ") else part


def _print(part: str, steps: Sequence[Tried], *, first: bool) -> None:
    from millpond.cli.tables import Column, print_table
    from millpond.progress.words import duration_text

    if not first:
        click.echo()
    if part == "versions":
        rows = [[each.part.removeprefix("plugin "), each.state, each.detail] for each in steps]
        print_table((Column("plugin"), Column("state"), Column("version", folds=True)), rows)
        return
    click.echo(part)
    columns = (Column("tried"), Column("state"), Column("took", 1, right=True), Column("detail", folds=True))
    took = [duration_text(each.duration_s) if each.duration_s else "" for each in steps]
    rows = [[each.name, each.state, time, each.detail] for each, time in zip(steps, took, strict=True)]
    print_table(columns, rows)


def conclusion(tried: Sequence[Tried]) -> str:
    """Say in one line what the steps come to."""
    from millpond.progress.words import count_text

    bad = [each for each in tried if each.state in ("failed", "unreachable")]
    if not bad:
        return f"all {count_text(len(tried), 'step')} hold"
    parts = ", ".join(dict.fromkeys(each.part for each in bad))
    return f"{len(bad)} of {count_text(len(tried), 'step')} did not hold: {parts}"


def _verdict(tried: Sequence[Tried]) -> int:
    bad = {each.state for each in tried} & {"failed", "unreachable"}
    if not bad:
        return 0
    return NOT_OK if "failed" in bad else TRANSIENT


def _as_json(each: Tried) -> dict[str, object]:
    return {
        "part": each.part,
        "step": each.name,
        "state": each.state,
        "detail": each.detail or None,
        "duration_s": round(each.duration_s, 6),
    }
