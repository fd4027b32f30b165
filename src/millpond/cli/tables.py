"""What commands print: tables by rich on a terminal, aligned text elsewhere, and JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import click

from millpond.progress.words import duration_text

_GAP = "  "
_FOLDED = 40
_STYLES = {
    "ok": "green",
    "first": "green",
    "absent": "yellow",
    "unreachable": "yellow",
    "note": "yellow",
    "skipped": "yellow",
    "failed": "red",
    "missing": "red",
    "corrupt": "red",
    "unreadable": "red",
    "refused": "red",
    "broken": "red",
}


class Column(NamedTuple):
    """
    A column of a table.

    Attributes:
        title: Its title.
        spare: On a terminal that is too narrow, the columns with the largest numbers go first; 0: never.
        right: Numbers stand to the right.
        folds: Its text may go on in the next line.
    """

    title: str
    spare: int = 0
    right: bool = False
    folds: bool = False


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print *rows*; on a terminal without the columns for which it is too narrow, elsewhere whole."""
    if not sys.stdout.isatty():
        click.echo("\n".join(plain_lines(columns, rows)))
        return
    width = shutil.get_terminal_size().columns
    kept = fitting(columns, rows, width)
    _print_rich([columns[at] for at in kept], [[row[at] for at in kept] for row in rows], width)
    if left_out := [column.title for at, column in enumerate(columns) if at not in kept]:
        click.echo(f"(too narrow for {', '.join(left_out)}: use a wider terminal, or --json)")


def plain_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align *rows* under their titles, two blanks between columns."""
    lines = [[column.title.upper() for column in columns], *([" ".join(cell.split()) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    return [
        _GAP.join(
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    ]


def fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Give the places of the columns that fit into *width*: those that can be spared most go first."""
    widths = [max([len(column.title), *(_width(column, row[at]) for row in rows)]) for at, column in enumerate(columns)]
    kept = list(range(len(columns)))
    while sum(widths[at] for at in kept) + len(_GAP) * (len(kept) - 1) > width:
        most = max(kept, key=lambda at: columns[at].spare)
        if not columns[most].spare:
            break
        kept.remove(most)
    return kept


def _width(column: Column, cell: str) -> int:
    """Give the least width at which a cell reads well."""
    return min(_FOLDED, len(cell)) if column.folds else len(cell)


def _print_rich(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console(file=sys.stdout, width=width, highlight=False).print(table)


def print_json(value: object) -> None:
    """Print *value* as JSON on several lines."""
    click.echo(json.dumps(value, indent=2))


def local_time(millis: int) -> str:
    """Write a time, in milliseconds since 1970, by the clock on this wall."""
    try:
        return datetime.fromtimestamp(millis / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{millis} ms"


def utc_time(millis: int) -> str | None:
    """Write a time, in milliseconds since 1970, as ISO 8601 in UTC; None beyond the years that it has."""
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None


def age_text(millis: int, now_millis: int) -> str:
    """Write how long ago *millis* is."""
    seconds = (now_millis - millis) / 1000
    return duration_text(seconds) if seconds >= 0 else "in the future"
