"""
The changelog backend beside a bare producer, a bare store and a bare tuned consumer, on a real broker, interleaved.

    python benchmarks/changelog.py [--records 1000000] [--puts 200000] [--repetitions 3] [--only commit,restore,start]
                                   [--directory DIR]

A record has a key of 20 bytes and a value of 100. The bare store is rocksdict in batches of 1,000 without a write-ahead
log; the bare producer and consumer have the client options of the log itself. Both write records that were made before;
the bare producer has no reports of single records: its flush and its commit say that none failed. A restore begins with
an empty disk and ends when the task is ready. A start finds its store on the disk; to become its only writer is a row
apart.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from memory import Watch, resident
from rocksdict import Options, Rdict, WriteBatch, WriteOptions
from table import Row, at_least, at_most, show

import millpond
from millpond import points
from millpond.formats.changelog_marker import FACTORY
from millpond.spi import Change
from millpond_changelog.kafka.log import KafkaLog

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from services import kafka

TASK = "Partition 0"
SOURCE = millpond.SystemStreamPartition("bench", "input", 0)
PIECE = 1_000
MEMORY_MIB = 256 + 192
"""The job's default ``buffer_memory`` and the engine's ``cache_size``."""

numbers = itertools.count(1)


def clocks() -> tuple[float, float]:
    """Read the wall clock, and that of the process's own time on all cores."""
    return time.perf_counter(), time.process_time()


def since(begun: tuple[float, float]) -> tuple[float, float]:
    """Give the seconds that have gone by on both."""
    return time.perf_counter() - begun[0], time.process_time() - begun[1]


def changes(count: int, seed: int = 0) -> Iterator[Change]:
    """Give records in an order that is not sorted; each key once."""
    for number in range(count):
        yield b"%020d" % (number * 7_919 % count + seed), b"%0100d" % number


class Bench:
    """One job on one broker, and bare parts beside it."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self.name = f"bench-{os.getpid()}-{next(numbers)}"

    def job(self) -> millpond.Job:
        """Open the job."""
        return millpond.open_job(
            {
                "job": {"name": self.name, "state_dir": str(self.folder / "state"), "tasks": [TASK]},
                "checkpoint": {"manager": "directory", "path": str(self.folder / "records")},
                "backends": {
                    "log": {"type": "changelog", "bootstrap_servers": [self.address], "replication_factor": 1}
                },
                "stores": {"s": {"engine": "rocksdb", "key": "bytes", "value": "bytes"}},
                "commit": {"interval": "1h", "timeout": "10m"},
            }
        )

    @property
    def topic(self) -> str:
        """The store's topic."""
        return f"{self.name}--1--s--changelog"

    # ---------------------------------------------------------------------------------------------------- writing

    def commit_with_us(self, count: int) -> tuple[float, float]:
        """Give the seconds that puts and a commit of them take, and those of processor time."""
        with self.job() as job, job.open_task(TASK, timeout_s=120) as task:
            store, records = task.store("s"), list(changes(count))
            begun = clocks()
            for key, value in records:
                store.put(key, value)
            task.commit_now(300)
            return since(begun)

    def commit_bare(self, count: int) -> tuple[float, float]:
        """Give the same of the same writes to a bare store and a bare producer, one after the other."""
        options = Options(raw_mode=True)
        without_log = WriteOptions()
        without_log.disable_wal = True  # type: ignore[method-assign, assignment]
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "acks": "all",
                "enable.idempotence": True,
                "transactional.id": f"bare-{next(numbers)}-{os.getpid()}",
                "compression.type": "lz4",
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
            }
        )
        producer.init_transactions(60)
        database = Rdict(str(self.folder / f"bare-{next(numbers)}"), options)
        database.set_write_options(without_log)
        records = list(changes(count))
        begun = clocks()
        stream = iter(records)
        while piece := list(itertools.islice(stream, PIECE)):
            batch = WriteBatch(raw_mode=True)
            for key, value in sorted(piece):
                batch.put(key, value or b"")
            database.write(batch)
        database.flush()
        producer.begin_transaction()
        for key, value in records:
            while True:
                try:
                    producer.produce(f"{self.name}-bare", value, key, 0)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(300)
        producer.commit_transaction(60)
        taken = since(begun)
        database.close()
        return taken

    # ---------------------------------------------------------------------------------------------------- reading

    def fill(self, count: int) -> None:
        """Commit *count* records, in pieces."""
        with self.job() as job, job.open_task(TASK, timeout_s=120) as task:
            for number, (key, value) in enumerate(changes(count)):
                task.store("s").put(key, value)
                if number % 200_000 == 199_999:
                    task.commit_now(300)
            task.commit_now(300)

    def restore(self, count: int) -> tuple[float, float]:
        """Restore to an empty disk; give records a second, and microseconds of CPU a record."""
        shutil.rmtree(self.folder / "state")
        with self.job() as job:
            job.prepare()
            begun = clocks()
            with job.open_task(TASK, timeout_s=600):
                taken, cpu = since(begun)
        return count / taken, cpu / count * 1e6

    def consume(self, count: int) -> tuple[float, float]:
        """Give the same of a bare tuned consumer."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "bare",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.message.max.bytes": 4 << 20,
                "queued.max.messages.kbytes": 32 << 10,
                "queued.min.messages": 100_000,
                "fetch.queue.backoff.ms": 5,
            }
        )
        begun = clocks()
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        done = 0
        while done < count:
            done += len(consumer.consume(200, 1.0))  # larger batches leave the processor's cache, and are slower
        taken, cpu = since(begun)
        consumer.close()
        return count / taken, cpu / count * 1e6

    # --------------------------------------------------------------------------------------------------- starting

    def start(self) -> tuple[float, float]:
        """Open a task whose store is on the disk and current: give the seconds before and after it is its writer."""
        with self.job() as job:
            job.prepare()
            claimed: list[float] = []
            points.arm(lambda step: claimed.append(time.perf_counter()) if step == "changelog.claimed" else None)
            begun = time.perf_counter()
            with job.open_task(TASK, timeout_s=120) as task:
                ready = time.perf_counter()
                points.arm(None)
                task.processed(SOURCE, next(numbers))
                task.commit_now(60)  # a job that works: the next start finds its claim and its checkpoint, and no more
        return claimed[0] - begun, ready - claimed[0]

    def open_bare(self) -> float:
        """Give the seconds that it takes to link the store's image to another folder, and to open it."""
        (image,) = (path for path in (self.folder / "state").rglob("images/s/*") if path.is_dir())
        target = self.folder / f"clone-{next(numbers)}"
        begun = time.perf_counter()
        target.mkdir()
        for path in image.iterdir():
            if path.suffix == ".sst":
                os.link(path, target / path.name)
            else:
                shutil.copy(path, target)
        database = Rdict(str(target), Options(raw_mode=True))
        taken = time.perf_counter() - begun
        database.close()
        return taken

    def unchanged(self) -> None:
        """Commit an offset, and nothing else."""
        with self.job() as job, job.open_task(TASK, timeout_s=120) as task:
            before = task.last
            task.processed(SOURCE, next(numbers))
            after = task.commit_now(60)
            assert before is not None
            assert before.markers[FACTORY] == after.markers[FACTORY]


def repeated(times: int, *measures: Callable[[], Any]) -> list[list[Any]]:
    """Take the measures in turn, so that the machine's moods meet all of them."""
    found: list[list[Any]] = [[] for _ in measures]
    for _ in range(times):
        for column, measure in zip(found, measures, strict=True):
            column.append(measure())
    return found


def commits(bench: Bench, given: argparse.Namespace) -> list[Row]:
    """Measure writing."""
    log = KafkaLog([bench.address])
    log.create(f"{bench.name}-bare", 1, {"cleanup.policy": "compact", "replication.factor": "1"})
    log.close()
    ours, bare = repeated(
        given.repetitions, lambda: bench.commit_with_us(given.puts), lambda: bench.commit_bare(given.puts)
    )
    name = f"put {given.puts:,} records and commit them"
    (wall, cpu), (bare_wall, bare_cpu) = zip(*ours, strict=True), zip(*bare, strict=True)
    return [
        Row(name, wall, bare_wall, "s", "<= 1.1x", at_most(1.1)),
        Row(f"{name}: processor time", cpu, bare_cpu, "s", "", at_most(1.1)),
    ]


def restores(bench: Bench, given: argparse.Namespace) -> list[Row]:
    """Measure reading."""
    bench.fill(given.records)
    ours, bare = repeated(given.repetitions, lambda: bench.restore(given.records), lambda: bench.consume(given.records))
    (rates, cpu), (bare_rates, bare_cpu) = zip(*ours, strict=True), zip(*bare, strict=True)
    name = f"restore {given.records:,} records from empty"
    return [
        Row(name, rates, bare_rates, "1/s", ">= 0.5x of consume", at_least(0.5)),
        Row(f"{name}: processor time", cpu, [], "us a record", "<= 2.2", at_most(2.2)),
        Row(f"{name}: beside consume's", cpu, bare_cpu, "us a record", "", at_most(2.0)),
    ]


def starts(bench: Bench, given: argparse.Namespace) -> list[Row]:
    """Measure a start on a store that is current, and a commit without changes."""
    bench.fill(given.puts)
    started, bare = repeated(given.repetitions, bench.start, bench.open_bare)
    log = KafkaLog([bench.address])
    before = log.extent(bench.topic, 0).end
    bench.unchanged()
    appended = float(log.extent(bench.topic, 0).end - before)
    log.close()
    return [
        Row(
            "start on a store that is current, after fencing",
            [ready * 1e3 for _, ready in started],
            [taken * 1e3 for taken in bare],
            "ms",
            "<= 1.5x",
            at_most(1.5),
        ),
        Row(
            "before that: the folder, the claim, the fence",
            [claim * 1e3 for claim, _ in started],
            [],
            "ms",
            "",
            at_most(0),
        ),
        Row("offsets taken by a commit without changes", [appended], [], "", "0", at_most(0)),
    ]


def memories(bench: Bench, given: argparse.Namespace) -> list[Row]:
    """Measure by how much a process grows that restores a small topic, and one ten times as large."""
    found = []
    for count in (given.records // 10, given.records):
        one = Bench(bench.address, bench.folder / str(count))
        one.fill(count)
        grown = [grown_in_child(one) / (1 << 20) for _ in range(given.repetitions)]
        budget = f"<= {MEMORY_MIB} (buffers and cache)"
        name = f"memory of a restore of {count:,} records from empty"
        found.append(Row(name, grown, [], "MiB", budget, at_most(MEMORY_MIB)))
    return found


def grown_in_child(bench: Bench) -> float:
    """Give the bytes by which a process of its own grows."""
    words = [sys.executable, __file__, "--child", bench.address, str(bench.folder), bench.name]
    return float(subprocess.run(words, check=True, capture_output=True, text=True, timeout=600).stdout.split()[-1])


def child(address: str, folder: str, name: str) -> None:
    """Restore once, after all code has been loaded and a small task has run, and print the growth."""
    Bench(address, Path(folder, f"small-{os.getpid()}")).fill(100)
    bench = Bench(address, Path(folder))
    bench.name = name
    idle = resident()
    with Watch() as watch:
        bench.restore(1)
    print(watch.most - idle)


def main() -> None:
    """Start a broker, measure, print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--records", type=int, default=1_000_000)
    words.add_argument("--puts", type=int, default=200_000)
    words.add_argument("--repetitions", type=int, default=3)
    words.add_argument("--only", default="commit,restore,start,memory")
    words.add_argument("--child", nargs=3, default=None, help=argparse.SUPPRESS)
    words.add_argument("--directory", type=Path, default=None)
    given = words.parse_args()
    if given.child:
        child(*given.child)
        return
    parts = {"commit": commits, "restore": restores, "start": starts, "memory": memories}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=given.directory) as folder, kafka.serve(Path(folder, "kafka")) as broker:
        for part in given.only.split(","):
            place = Path(folder, part)
            place.mkdir()
            rows += parts[part](Bench(broker.address, place), given)
    show(rows)


if __name__ == "__main__":
    main()
