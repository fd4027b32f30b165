"""Shows a run: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import Self

from attrs import define, field
from ledger import Ledger
from reports import Refused
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from watch import Death, Recovery

EVERY_S = 5.0


@define
class Screen:
    """An audience of a watch; also a context manager, inside of which the bars are shown."""

    console: Console
    rows: dict[str, int]
    _bars: Progress = field(init=False)
    _bar: dict[str, TaskID] = field(factory=dict, init=False)
    _shown: float = field(factory=time.monotonic, init=False)

    def __attrs_post_init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Progress(*columns, console=self.console, disable=not self.console.is_terminal, transient=True)

    def progress(self, ledger: Ledger) -> None:
        """Move the bars; without a terminal, say every few seconds how far each task is."""
        if self.console.is_terminal:
            for task, account in ledger.accounts.items():
                self._bars.update(self._bar[task], completed=account.furthest + 1)
        elif time.monotonic() - self._shown >= EVERY_S:
            self._shown = time.monotonic()
            parts = (f"{task} {(one.furthest + 1) / max(1, one.rows):4.0%}" for task, one in ledger.accounts.items())
            self.say("            " + "   ".join(parts))

    def killed(self, death: Death) -> None:
        """Say what a kill hit."""
        lost = ", state directory wiped" if death.wiped else ""
        commits = f"{death.committing} commit{'s' * (death.committing > 1)} in flight"
        during = f"{death.during}, {commits}" if death.committing else death.during
        self.say(f"kill {death.number:>2}  {during}: {death.uncommitted:,} rows since the last commits{lost}")

    def recovered(self, recovery: Recovery) -> None:
        """Say what a restart cost."""
        came = describe_sources(recovery.sources)
        self.say(f"   back in {recovery.seconds:.1f} s from {came}; {recovery.repeated:,} rows to repeat")

    def refused(self, report: Refused) -> None:
        """Say that a commit is not known to have happened."""
        self.say(f"   a commit of {report.task} failed: {report.error}")

    def say(self, line: str) -> None:
        """Print a line as it is."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar = {task: self._bars.add_task(task, total=count) for task, count in self.rows.items()}
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()


def describe_sources(sources: Counter[str]) -> str:
    """Say where the stores came from."""
    names = {"local": "local images", "new": "nothing"}
    if not sources:
        return "nothing"
    if len(sources) == 1:
        only = next(iter(sources))
        return names.get(only, f"the backend {only!r}")
    return ", ".join(f"{names.get(source, repr(source))} ({count} stores)" for source, count in sources.most_common())
