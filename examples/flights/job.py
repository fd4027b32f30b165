"""
The stream job: one task for each origin airport. It may be killed at any moment.

One thread serves the tasks in turn, as a consumer of several partitions does. A thread for each would not be faster:
one interpreter runs one of them at a time, and Millpond's own threads would wait longer for their turn.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from datetime import date, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import define, field
from flights import ORIGINS, Flight, read_after, stream_file
from reports import Committing, Durable, Finished, Reads, Refused, Report, Restored, Resumed, send
from source_end import SourceEnd

import millpond
from millpond.events import CommitStarted, Event, StoreRestored

SYSTEM = "nycflights13"
BATCH = 50
LAST_COMMIT_S = 60.0
LOOK_EVERY = 15  # minutes

Value = dict[str, Any]
Store = millpond.KeyValueStore[str, Value]
Tell = Callable[[Report], None]


def source_of(origin: str) -> millpond.SystemStreamPartition:
    """Name the input of one task."""
    return millpond.SystemStreamPartition(SYSTEM, origin, ORIGINS.index(origin))


@define
class Tables:
    """The stores of one task, and what happens to them for a flight."""

    origin: str
    by_route: Store
    by_aircraft: Store
    by_day: Store
    every_flight: Store
    in_the_air: Store
    looked: int | None = field(default=None, init=False)  # the last look for landings; losing it costs one long scan

    @classmethod
    def of(cls, task: millpond.Task, origin: str) -> Tables:
        """Take the stores from *task*."""
        names = ("by_route", "by_aircraft", "by_day", "every_flight", "in_the_air")
        return cls(origin, *(task.store(name) for name in names))

    def take(self, flight: Flight) -> None:
        """Let *flight* into every store."""
        self.count_route(flight)
        self.count_aircraft(flight)
        self.count_day(flight)
        self.note(flight)
        self.land(flight.departs)
        self.start(flight)

    def count_route(self, flight: Flight) -> None:
        """Add the flight to its route."""
        key = f"{self.origin}-{flight.dest}"
        seen = self.by_route.get(key) or {"flights": 0, "cancelled": 0, "delay": 0, "miles": 0}
        seen["flights"] += 1
        seen["cancelled"] += flight.cancelled
        seen["delay"] += flight.arr_delay or 0
        seen["miles"] += flight.distance
        self.by_route[key] = seen

    def count_aircraft(self, flight: Flight) -> None:
        """Add the flight to its aircraft, and note where that went."""
        if not flight.tail or flight.cancelled:
            return
        seen = self.by_aircraft.get(flight.tail) or {"flights": 0, "delay": 0, "minutes": 0, "miles": 0}
        seen["flights"] += 1
        seen["delay"] += flight.arr_delay or 0
        seen["minutes"] += flight.air_time or 0
        seen["miles"] += flight.distance
        seen["last"] = flight.dest
        self.by_aircraft[flight.tail] = seen

    def count_day(self, flight: Flight) -> None:
        """Add the flight to its day; a new day looks back at the week before it."""
        seen = self.by_day.get(flight.day)
        if seen is None:
            start = str(date.fromisoformat(flight.day) - timedelta(days=7))
            week = sum(day["flights"] for _, day in self.by_day.scan(start, flight.day))
            seen = {"flights": 0, "cancelled": 0, "delay": 0, "week_before": week}
        seen["flights"] += 1
        seen["cancelled"] += flight.cancelled
        seen["delay"] += flight.dep_delay or 0
        self.by_day[flight.day] = seen

    def note(self, flight: Flight) -> None:
        """Keep the flight itself."""
        self.every_flight[flight.name] = {
            "dest": flight.dest,
            "tail": flight.tail,
            "dep_delay": flight.dep_delay,
            "arr_delay": flight.arr_delay,
            "distance": flight.distance,
        }

    def land(self, now: int) -> None:
        """Strike off whatever landed before this quarter of an hour began."""
        quarter = now - now % LOOK_EVERY
        if quarter == self.looked:
            return
        # From the last look on, since a scan passes over what was deleted before it.
        start = None if self.looked is None else f"{self.looked:09}"
        for key, _ in self.in_the_air.scan(start, f"{quarter:09}"):
            self.in_the_air.delete(key)
        self.looked = quarter

    def start(self, flight: Flight) -> None:
        """Put the flight into the air, under the minute in which it lands."""
        if not flight.cancelled:
            self.in_the_air[f"{flight.lands:09} {flight.name}"] = {"dest": flight.dest, "tail": flight.tail}


def process(task: millpond.Task, origin: str, streams: Path, tell: Tell) -> Iterator[int]:
    """Process one origin's stream from where the task's checkpoint says; give the number of rows after each batch."""
    source = source_of(origin)
    tables = Tables.of(task, origin)
    for batch in batches(read_after(stream_file(streams, origin), resumed_at(task, origin))):
        tell(Reads(origin, batch[0][0], batch[-1][0]))
        for number, flight in batch:
            tables.take(flight)
            task.processed(source, number)
            commit = task.commit_if_due()
            if commit is not None:
                commit.add_done_callback(lambda done: tell(outcome(origin, done)))
        yield len(batch)
    last = task.commit_now(LAST_COMMIT_S)
    if source in last.offsets:  # not if the stream was empty
        tell(Durable(origin, str(last.id), int(last.offsets[source])))
    tell(Finished(origin))


def resumed_at(task: millpond.Task, origin: str) -> int | None:
    """Give the last row that the task's state reflects; None: none."""
    offset = task.offsets.get(source_of(origin))
    return None if offset is None else int(offset)


def outcome(origin: str, commit: Future[millpond.Checkpoint]) -> Report:
    """Say how a commit ended; one that failed is part of the next."""
    error = commit.exception()
    if error is not None:
        return Refused(origin, f"{type(error).__name__}: {error}")
    checkpoint = commit.result()
    return Durable(origin, str(checkpoint.id), int(checkpoint.offsets[source_of(origin)]))


def batches(rows: Iterator[tuple[int, Flight]]) -> Iterator[list[tuple[int, Flight]]]:
    """Cut *rows* into short lists, so that one report serves for many."""
    while batch := list(islice(rows, BATCH)):
        yield batch


def in_turn(parts: Iterable[Iterator[int]]) -> Iterator[int]:
    """Let each of *parts* take a step, again and again, until all have ended."""
    waiting = deque(parts)
    while waiting:
        part = waiting.popleft()
        if (rows := next(part, None)) is not None:
            waiting.append(part)
            yield rows


def pace(rows: Iterable[int], rows_per_s: float, end: SourceEnd, before: int) -> None:
    """
    Go through *rows*, counts of what was read, no faster than a source would give them; 0: as fast as it goes.

    Earlier lives have read the *before* rows that the state reflects.
    """
    begin, read, never = time.monotonic(), 0, threading.Event()
    end.wait_at(before)
    for count in rows:
        read += count
        end.wait_at(before + read)
        if rows_per_s:
            never.wait(max(0.0, begin + read / rows_per_s - time.monotonic()))


def event_report(event: Event) -> Report | None:
    """Give what the watcher wants to know of Millpond's own events."""
    match event:
        case StoreRestored():
            return Restored(event.task, event.store, event.source)
        case CommitStarted():
            return Committing(event.task, str(event.id))
    return None


def main() -> None:
    """Run all tasks to the end of their streams. An error ends the job: what was committed is not lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("streams", type=Path)
    parser.add_argument("--rows-per-s", type=float, default=0.0, help="of all tasks together; 0: no limit")
    parser.add_argument("--until", type=int, help="of all tasks together: then wait to be killed")
    chosen = parser.parse_args()
    end = SourceEnd(chosen.until)

    def tell(report: Report) -> None:
        send(report, sys.stdout.fileno())

    def listen(event: Event) -> None:
        if (report := event_report(event)) is not None:
            tell(report)

    with ExitStack() as closing:
        job = closing.enter_context(millpond.open_job(chosen.config, listeners=[listen]))
        parts, before = [], 0
        for origin in ORIGINS:
            task = closing.enter_context(job.open_task(origin))
            last, at = None if task.last is None else str(task.last.id), resumed_at(task, origin)
            before += 0 if at is None else at + 1
            tell(Resumed(origin, last, at))
            parts.append(process(task, origin, chosen.streams, tell))
        pace(in_turn(parts), chosen.rows_per_s, end, before)


if __name__ == "__main__":
    main()
