"""A member of a group in a process of its own: counts, and tells each event as a line of JSON, until it is ended."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import hosts_kafka

import millpond.hosts.kafka
from millpond.events import CommitPublished, Event
from millpond.hosts.kafka.events import TaskStarted

WAIT = threading.Event()


def tell(**what: Any) -> None:
    """Write one line in one call."""
    os.write(1, json.dumps(what).encode() + b"\n")


def listen(event: Event) -> None:
    """Tell the events that the test waits for."""
    if isinstance(event, CommitPublished):
        offsets = {f"{s.stream} {s.partition}": int(o) for s, o in event.checkpoint.offsets.items()}
        tell(event="CommitPublished", task=event.task, offsets=offsets)
    elif isinstance(event, TaskStarted):
        tell(event="TaskStarted", task=event.task)


def process(record: Any, task: Any) -> None:
    """Count, and tell where it is."""
    hosts_kafka.count(record, task)
    if record.offset() % 100 == 0:
        tell(event="Processed", task=task.name, offset=record.offset())
        WAIT.wait(0.02)  # so that it does not come to its end before anybody looks


if __name__ == "__main__":
    millpond.hosts.kafka.run(json.loads(sys.argv[1]), process, listeners=[listen])
    tell(event="Ended")
