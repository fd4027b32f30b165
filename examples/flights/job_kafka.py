"""The stream job on the Kafka host: a function and a configuration; beside that the watcher is told what happens."""

from __future__ import annotations

import argparse
import csv
import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any

from attrs import define, field
from broker import TOPIC
from flights import ORIGINS, from_row
from job import BATCH, Tables, event_report
from reports import Durable, Finished, Left, Reads, Refused, Report, Resumed, send
from source_end import SourceEnd

import millpond
from millpond.events import CommitFailed, CommitPublished, Event, TaskRestored
from millpond.hosts.kafka import HostedTask, KafkaHost, stopped_by_signals
from millpond.hosts.kafka.events import TaskLeft, TaskStarted


def source_of(origin: str) -> millpond.SystemStreamPartition:
    """Name the input of one task."""
    return millpond.SystemStreamPartition("kafka", TOPIC, ORIGINS.index(origin))


def take(record: Any, task: HostedTask) -> None:
    """Let the flight of one record into every store of its task: this is the job."""
    tables = task.kept.get("tables") or task.kept.setdefault("tables", Tables.of(task.task, task.name))
    (row,) = csv.reader([record.value().decode()])
    tables.take(from_row(row))


@define
class Told:
    """
    What the watcher is told: where tasks resume, what they are about to read, what is durable, and their end.

    Attributes:
        rows: How many records each task has to process.
        end: Where the source ends before that: the host then is not stopped, but waits to be killed.
        host: Is stopped when all tasks have come to their end.
    """

    rows: dict[str, int]
    end: SourceEnd
    host: KafkaHost | None = None
    _positions: dict[str, int] = field(factory=dict)
    _checkpoints: dict[str, str | None] = field(factory=dict)
    _announced: dict[str, int] = field(factory=dict)
    _finished: set[str] = field(factory=set)

    def tell(self, report: Report) -> None:
        """Tell the watcher."""
        send(report, sys.stdout.fileno())

    def read(self, task: str, offset: int) -> None:
        """Tell of a batch of records when the first of it is about to be processed; wait where the source ends."""
        if offset > self._announced[task]:
            last = self._announced[task] = min(offset + BATCH, self.rows[task]) - 1
            self.tell(Reads(task, offset, last))
        self._positions[task] = offset
        self.end.wait_at(sum(self._positions.values()))

    def listen(self, event: Event) -> None:
        """Turn the host's events into reports."""
        match event:
            case TaskRestored():
                self._checkpoints[event.task] = None if event.checkpoint is None else str(event.checkpoint)
            case TaskStarted():
                self._resumed(event.task, event.offsets[TOPIC] - 1)
            case CommitPublished():
                self._durable(
                    event.task, str(event.checkpoint.id), int(event.checkpoint.offsets[source_of(event.task)])
                )
            case TaskLeft():
                self.tell(Left(event.task))
            case CommitFailed():
                self.tell(Refused(event.task, f"{type(event.error).__name__}: {event.error}"))
        if (report := event_report(event)) is not None:
            self.tell(report)

    def _resumed(self, task: str, offset: int) -> None:
        checkpoint = self._checkpoints[task]
        self._announced[task] = offset
        self._positions[task] = offset + 1
        self.tell(Resumed(task, checkpoint, None if offset < 0 else offset))
        if checkpoint is not None:
            self._durable(task, checkpoint, offset)

    def _durable(self, task: str, checkpoint: str, offset: int) -> None:
        self.tell(Durable(task, checkpoint, offset))
        if offset == self.rows[task] - 1:
            self.tell(Finished(task))
            self._finished.add(task)
        if self._finished == set(ORIGINS) and self.end.until is None and self.host is not None:
            self.host.stop()


@define
class Pace:
    """Lets records through no faster than a source would give them; 0: as fast as it goes."""

    rows_per_s: float
    _begun: float = field(factory=time.monotonic)
    _read: int = 0
    _never: threading.Event = field(factory=threading.Event)

    def step(self) -> None:
        """Count a record, and wait if it came too early."""
        self._read += 1
        if self.rows_per_s and self._read % BATCH == 0:
            self._never.wait(max(0.0, self._begun + self._read / self.rows_per_s - time.monotonic()))


def main() -> None:
    """Run all tasks to the end of their partitions. An error ends the job: what was committed is not lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("rows", help="how many each task has to process: EWR=10,JFK=20,LGA=30")
    parser.add_argument("--rows-per-s", type=float, default=0.0, help="of all tasks together; 0: no limit")
    parser.add_argument("--until", type=int, help="of all tasks together: then wait to be killed")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    pace = Pace(chosen.rows_per_s)
    rows = {task: int(count) for task, count in (part.split("=") for part in chosen.rows.split(","))}
    told = Told(rows, SourceEnd(chosen.until))

    def process(record: Any, task: HostedTask) -> None:
        told.read(task.name, record.offset())
        take(record, task)
        pace.step()

    told.host = KafkaHost(chosen.config, process, listeners=[told.listen])
    with stopped_by_signals(told.host.stop):
        told.host.run()


if __name__ == "__main__":
    main()
