"""
The Kafka host beside a bare consumer loop on a real broker, in one interleaved run; and what a commit does to its loop.

    python benchmarks/hosts_kafka.py [--records 200000] [--gigabytes 1] [--repetitions 5] [--only loop,pause]

The bare loop consumes the same topic, decodes the same orders (JSON, eight lines of goods, 600 bytes), adds them up
in the same way, and reads and writes each customer's total in a dict, which it forgets at its end. A processor's time
is that of the thread that polls: on a machine with other work the wall clock shows that work, too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from table import Row, at_least, at_most, show

from millpond.events import CommitPublished, Event
from millpond.hosts.kafka import KafkaHost

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from services import kafka

KEYS = 10_000
TOPIC = "orders"
LARGE = 256 << 10
numbers = itertools.count(1)


def add(totals: Any, value: bytes) -> None:
    """Add an order to its customer's total: what both loops do to a record."""
    order = json.loads(value)
    customer = order["customer"]
    cents = sum(line["count"] * line["cents"] for line in order["lines"])
    totals[customer] = (totals.get(customer) or 0) + cents


def order_of(number: int) -> dict[str, Any]:
    """Give an order of eight lines."""
    lines = [
        {"sku": f"{number * 31 + line:08}", "count": line + 1, "cents": number % 1000, "note": "gift"}
        for line in range(8)
    ]
    return {"customer": f"customer-{number * 7919 % KEYS:06}", "at": 1_796_000_000 + number, "lines": lines}


def fill(address: str, count: int) -> None:
    """Write *count* orders."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        order = order_of(number)
        producer.produce(TOPIC, json.dumps(order), key=order["customer"], partition=0)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def feed(address: str, finished: threading.Event, deadline: float) -> None:
    """Go on writing orders, some thousand a second, until *finished* or the deadline."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    for number in itertools.count():
        order = order_of(number)
        producer.produce(TOPIC, json.dumps(order), key=order["customer"], partition=0)
        if number % 500 == 0:
            producer.flush(60)
            if finished.wait(0.1) or time.monotonic() > deadline:
                break
    producer.flush(60)


# ------------------------------------------------------------------------------------------------------------- the loop


@frozen
class Speed:
    """Records a second, by the wall clock and by the polling thread's own processor time, and commits meanwhile."""

    wall: float
    busy: float
    commits: int = 0


def speed(count: int, begun: tuple[float, float], ended: tuple[float, float], commits: int = 0) -> Speed:
    """Give the speed between two readings of both clocks."""
    return Speed(count / (ended[0] - begun[0]), count / (ended[1] - begun[1]), commits)


def clocks() -> tuple[float, float]:
    """Read the wall clock and this thread's."""
    return time.perf_counter(), time.thread_time()


def bare_loop(address: str, count: int) -> Speed:
    """Measure a plain loop without state that outlives it."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": f"bare-{next(numbers)}", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    totals: dict[str, int] = {}
    done, begun = 0, None
    while done < count:
        first = consumer.poll(0.1)
        if first is None:
            continue
        begun = begun or clocks()
        for record in [first, *consumer.consume(499, 0)]:
            add(totals, record.value() or b"")
            done += 1
    assert begun is not None
    measured = speed(count, begun, clocks())
    consumer.close()
    return measured


def config(root: Path, address: str, interval: str) -> dict[str, Any]:
    """Give the configuration of a job with one store of RocksDB."""
    return {
        "job": {"name": f"bench-{next(numbers)}", "state_dir": str(root / "state")},
        "checkpoint": {"manager": "directory", "path": str(root / "records")},
        "backends": {"disk": {"type": "rocksdb-local", "path": str(root / "backup")}},
        "stores": {"totals": {"engine": "rocksdb", "key": "str", "value": "int"}},
        "commit": {"interval": interval, "timeout": "10m"},
        "hosts": {"kafka": {"bootstrap_servers": [address], "topics": [TOPIC]}},
    }


@contextmanager
def hosted(
    settings: dict[str, Any], process: Callable[[Any, Any], object], *told: Callable[[Event], None]
) -> Iterator[KafkaHost]:
    """Run a host on a thread until the block ends."""
    host = KafkaHost(settings, process, listeners=told)
    thread = threading.Thread(target=host.run)
    thread.start()
    try:
        yield host
    finally:
        host.stop()
        thread.join()


def our_loop(root: Path, address: str, count: int, interval: str) -> Speed:
    """Measure the host, from its first record to its last."""
    ended = threading.Event()
    read: list[tuple[float, float]] = []
    commits: list[float] = []
    store: dict[str, Any] = {}

    def process(record: Any, task: Any) -> None:
        if not read:
            read.append(clocks())
            store["totals"] = task.store("totals")
        add(store["totals"], record.value())
        if record.offset() == count - 1:
            read.append(clocks())
            ended.set()

    def listen(event: Event) -> None:
        if isinstance(event, CommitPublished):
            commits.append(time.perf_counter())

    with hosted(config(root, address, interval), process, listen):
        assert ended.wait(600)
    return speed(count, read[0], read[1], sum(read[0][0] < at < read[1][0] for at in commits))


def loops(root: Path, address: str, count: int, repetitions: int) -> list[Row]:
    """Compare the loops, in turn; the first turn warms the broker's cache."""
    bare, ours = [], []
    for number in range(repetitions + 1):
        bare.append(bare_loop(address, count))
        ours.append(our_loop(root / f"loop-{number}", address, count, "1s"))
    bare, ours = bare[1:], ours[1:]
    print(f"commits within a run: {[one.commits for one in ours]}", file=sys.stderr)
    name = "loop with state, commit every second"
    wall, busy = [one.wall for one in ours], [one.busy for one in ours]
    return [
        Row(name, wall, [one.wall for one in bare], "records/s", ">= 0.7x", at_least(0.7)),
        Row(f"{name}: its processor time", busy, [one.busy for one in bare], "records/s", "", at_least(0.7)),
    ]


# ------------------------------------------------------------------------------------------------------------ the pause


def pauses(root: Path, address: str, size: int, commits: int) -> list[Row]:
    """Measure how long the loop stands still for a commit, on *size* bytes of state with a second's changes."""
    took: list[tuple[float, float]] = []
    finished = threading.Event()

    def process(record: Any, task: Any) -> None:
        if task.task.commit_if_due.__name__ != "timed":
            prepare(task.task, size, took)
        order = json.loads(record.value())
        task.store("totals")[order["customer"]] = record.value().decode()
        if len(took) == commits:
            finished.set()

    settings = config(root, address, "1s")
    settings["stores"]["totals"]["value"] = "str"
    with hosted(settings, process):
        feed(address, finished, time.monotonic() + 900)
    assert finished.is_set(), f"{len(took)} commits in 15 minutes"
    name = f"loop's pause at a commit, state {size / 1e9:.1f} GB"
    return [
        Row(name, [wall * 1e3 for wall, _ in took], [], "ms", "<= 5 ms", at_most(5.0)),
        Row(f"{name}: its processor time", [busy * 1e3 for _, busy in took], [], "ms", "", at_most(5.0)),
        Row(f"{name}: the longest", [max(wall for wall, _ in took) * 1e3], [], "ms", "", at_most(5.0)),
    ]


def prepare(task: Any, size: int, took: list[tuple[float, float]]) -> None:
    """Bring the store to *size* bytes, commit, and from then on note what each commit takes of the loop's time."""
    store, begin = task.store("totals"), task.commit_if_due
    for number in range(size // LARGE):
        store.put(f"fill-{number:08}", os.urandom(LARGE // 2).hex())
    task.commit_now(600)

    def timed() -> Any:
        begun = clocks()
        commit = begin()
        ended = clocks()
        if commit is not None:
            took.append((ended[0] - begun[0], ended[1] - begun[1]))
        return commit

    task.commit_if_due = timed


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--records", type=int, default=200_000)
    words.add_argument("--gigabytes", type=float, default=1.0, help="of state, for the pause")
    words.add_argument("--repetitions", type=int, default=5)
    words.add_argument("--only", default="loop,pause", help="some of %(default)s")
    words.add_argument("--directory", type=Path, default=None, help="where everything is made; on a real disk")
    given = words.parse_args()
    if (reason := kafka.missing()) is not None:
        raise SystemExit(reason)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=given.directory) as folder, kafka.serve(Path(folder) / "kafka") as broker:
        fill(broker.address, given.records)
        if "loop" in given.only:
            rows += loops(Path(folder), broker.address, given.records, given.repetitions)
        if "pause" in given.only:
            rows += pauses(Path(folder) / "pause", broker.address, int(given.gigabytes * 1e9), given.repetitions)
    show(rows)


if __name__ == "__main__":
    main()
