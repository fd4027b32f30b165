"""One table for all benchmarks: ours beside the bare part, their ratio, the goal, and whether it is reached."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from attrs import frozen


@frozen
class Row:
    """
    One line.

    Attributes:
        name: What was done.
        ours: What it took with Millpond, one figure a repetition.
        bare: What the bare part took in the same run; empty where the goal is a figure of its own.
        unit: Of both.
        goal: In words; empty where the row is there to compare.
        reached: Says of the ratio of the medians, or of our median where nothing is bare, whether the goal is reached.
    """

    name: str
    ours: Sequence[float]
    bare: Sequence[float]
    unit: str
    goal: str
    reached: Callable[[float], bool]

    @property
    def figure(self) -> float:
        """The ratio of the medians, or our median."""
        ours = statistics.median(self.ours)
        return ours / statistics.median(self.bare) if self.bare else ours

    def cells(self) -> tuple[str, ...]:
        """Give it as text."""
        bare = f"{statistics.median(self.bare):.3f}" if self.bare else ""
        ratio = f"{self.figure:.2f}x" if self.bare else ""
        verdict = "" if not self.goal else "reached" if self.reached(self.figure) else "NOT YET"
        return (self.name, f"{statistics.median(self.ours):.3f}", bare, self.unit, ratio, self.goal, verdict)


HEAD = ("what", "ours", "bare", "unit", "ratio", "goal", "")


def at_most(limit: float) -> Callable[[float], bool]:
    """Give the rule that a figure is no more than *limit*."""
    return lambda figure: figure <= limit


def at_least(limit: float) -> Callable[[float], bool]:
    """Give the rule that a figure is no less than *limit*."""
    return lambda figure: figure >= limit


def show(rows: Sequence[Row]) -> None:
    """Print *rows* as a Markdown table."""
    show_cells([row.cells() for row in rows])


def show_cells(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows of text as a Markdown table."""
    lines = [HEAD, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    for number, line in enumerate(lines):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |", flush=True)
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def cells_in(text: str) -> list[tuple[str, ...]]:
    """Read back the rows of the tables in *text*."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return [row for row in rows if len(row) == len(HEAD) and row != HEAD]
