"""Restores as they go: a bar for each store on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from attrs import define, field

from millpond.clock import Clock, SystemClock
from millpond.events import (
    Event,
    RestoreFailedOver,
    RestorePlanned,
    RestoreProgress,
    StoreRestored,
    TaskClosed,
    TaskFailed,
    TaskRestored,
)
from millpond.progress.pace import Pace
from millpond.progress.words import count_text, duration_text, size_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_Chosen = Callable[[tuple[str, str, str]], bool]

QUICK_S = 0.3
"""A store that is restored sooner has no bar: it would only flicker."""

LINE_EVERY_S = 5.0
"""The shortest time between two plain lines about one store."""


@define
class _Row:
    """One store that is being restored."""

    begun: float
    pace: Pace = field(factory=Pace)
    line_at: float | None = None
    bar: TaskID | None = None


class ProgressBar:
    """
    A listener that shows restores on *stream*, by default standard error; any thread may call it.

    On a terminal each store has a bar, with records, bytes, rate and time left; what nobody knows is left out.
    Elsewhere there is a line for each store at most every five seconds, and none for a store that is restored sooner.
    Leave the ``with`` block, or call :meth:`close`, to give the terminal back.
    """

    def __init__(self, stream: TextIO | None = None, clock: Clock | None = None) -> None:
        """Show on *stream*; nothing is written before the first progress."""
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock or SystemClock()
        self._terminal = self._stream.isatty()
        self._rows: dict[tuple[str, str, str], _Row] = {}
        self._progress: Progress | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, event: Event) -> None:
        """Show what *event* says about a restore; all other events pass by."""
        with self._lock:
            match event:
                case RestoreProgress():
                    self._advance(event)
                case StoreRestored(store=store) | RestoreFailedOver(store=store):
                    self._drop(lambda row: row == (event.job, event.task, store))
                case RestorePlanned() | TaskRestored() | TaskFailed() | TaskClosed():
                    self._drop(lambda row: row[:2] == (event.job, event.task))

    def close(self) -> None:
        """Take all bars away; idempotent."""
        with self._lock:
            self._drop(lambda row: True)

    def _advance(self, event: RestoreProgress) -> None:
        now = self._clock.monotonic()
        row = self._rows.setdefault((event.job, event.task, event.store), _Row(now))
        row.pace.note(now, event.records, event.size, event.total_size)
        if not self._terminal:
            self._write(event, row, now)
        elif now - row.begun >= QUICK_S:
            self._draw(event, row, now)

    def _write(self, event: RestoreProgress, row: _Row, now: float) -> None:
        row.line_at = now if row.line_at is None else row.line_at
        if now - row.line_at >= LINE_EVERY_S:
            row.line_at = now
            text = f"{event.task}, {event.store} from {event.backend}: {progress_text(row.pace, now)}\n"
            self._stream.write(text)
            self._stream.flush()

    def _draw(self, event: RestoreProgress, row: _Row, now: float) -> None:
        progress = self._progress or self._start()
        if row.bar is None:
            name = f"{event.task}, {event.store} from {event.backend}"
            row.bar = progress.add_task(name, total=event.total_size, told="")
        progress.update(row.bar, completed=event.size, total=event.total_size, told=progress_text(row.pace, now))

    def _start(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[told]}", markup=False),
            console=Console(file=self._stream),
            transient=True,
        )
        self._progress.start()
        return self._progress

    def _drop(self, chosen: _Chosen) -> None:
        """Take the bars of the *chosen* rows away, and the display with the last of them."""
        for key in [key for key in self._rows if chosen(key)]:
            row = self._rows.pop(key)
            if self._progress is not None and row.bar is not None:
                self._progress.remove_task(row.bar)
        if not self._rows and self._progress is not None:
            self._progress.stop()
            self._progress = None


def progress_text(pace: Pace, now: float) -> str:
    """Write how far a restore is, how fast it goes and what is left; only what is known."""
    size = size_text(pace.size) if pace.size or not pace.records else ""
    total = f" of {size_text(pace.total_size)}" if size and pace.total_size is not None else ""
    rate, left = pace.bytes_per_s(now), pace.left_s(now)
    parts = [
        size + total,
        count_text(pace.records, "record") if pace.records else "",
        _rate_text(pace, now, rate),
        "" if left is None else f"{duration_text(max(1, round(left)))} left",
    ]
    return ", ".join(part for part in parts if part)


def _rate_text(pace: Pace, now: float, rate: float | None) -> str:
    if pace.size:
        return "" if rate is None else f"{size_text(rate)}/s"
    records = pace.records_per_s(now)
    return "" if records is None else f"{count_text(round(records), 'record')}/s"
