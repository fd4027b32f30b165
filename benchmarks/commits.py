"""
What a commit costs beside flush, checkpoint and one durable record done bare, in one interleaved run.

    python benchmarks/commits.py [--gigabytes 5] [--stores 1000] [--only pause,total] [--repetitions 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import jobs
from rocksdict import Checkpoint as RocksCheckpoint
from rocksdict import Rdict, WriteBatch
from table import Row, at_least, at_most, show

import millpond
from millpond.local import write_durably
from millpond.task import Task

CHANGED = 40 << 20
RECORD = 120
EACH = 8 << 20
LARGE_VALUE = 256 << 10
DIRTY = 100 * RECORD


def millis(work: Callable[[], object]) -> float:
    """Give the milliseconds that *work* takes."""
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def write_bare(database: Rdict, number: int, size: int) -> None:
    """Write *size* bytes of new keys in sorted batches of 1,000."""
    for begin in range(0, size // RECORD, 1_000):
        batch = WriteBatch(raw_mode=True)
        for key in range(begin, begin + 1_000):
            batch.put(b"%08d%012d" % (number, key), jobs.value(100))
        database.write(batch)


def write_ours(task: Task, store: str, number: int, size: int) -> None:
    """Put *size* bytes of new keys, and let all full runs reach the engine."""
    put = task.store(store).put
    for key in range(size // RECORD):
        put(b"%08d%012d" % (number, key), jobs.value(100))
    task.processed(jobs.SOURCE, number)
    settle(task)


def settle(task: Task) -> None:
    """Wait until the lane has applied what was closed."""
    for buffer in task._buffers:
        buffer.close_run()
    task._buffers[0]._lane.submit(lambda: None).result()


def durable_record(folder: Path, number: int) -> None:
    """Write one small durable file."""
    folder.mkdir(exist_ok=True)
    write_durably(folder / str(number), b"x" * 1_000)


@contextmanager
def open_task(root: Path, stores: Sequence[str], **kinds: Any) -> Iterator[Task]:
    """Open a task with *stores* below *root*."""
    with millpond.open_job(jobs.config(root, stores, **kinds)) as job, job.open_task("t") as task:
        yield task


# ------------------------------------------------------------------------------------------------ the pause


def pauses(root: Path, sizes: Sequence[int], repetitions: int) -> list[Row]:
    """Measure the time inside ``commit()`` with 40 MB changed, at each size of the state."""
    rows = []
    for size in sizes:
        with open_task(root / f"pause-{size}", ["s"]) as task:
            fill(task, size)
            times = [pause(task, number) for number in range(repetitions)]
        name = f"inside commit(), 40 MB changed, state {size / 1e9:.1f} GB"
        rows += [
            Row(name, [wall for wall, _ in times], [], "ms", "<= 1 ms", at_most(1.0)),
            Row(f"{name}: its processor time", [busy for _, busy in times], [], "ms", "", at_most(1.0)),
        ]
    return rows


def fill(task: Task, size: int) -> None:
    """Bring the store to *size* bytes, quickly, and commit."""
    put = task.store("s").put
    for number in range(size // LARGE_VALUE):
        put(b"fill%08d" % number, os.urandom(LARGE_VALUE))
    task.commit_now(600)


def pause(task: Task, number: int) -> tuple[float, float]:
    """Write 40 MB, and give the time and the processor time that ``commit()`` takes right behind the last put."""
    put = task.store("s").put
    for key in range(CHANGED // RECORD):
        put(b"%08d%012d" % (number, key), jobs.value(100))
    task.processed(jobs.SOURCE, number)
    begun, busy = time.perf_counter(), time.thread_time()
    future = task.commit()
    took, worked = time.perf_counter() - begun, time.thread_time() - busy
    future.result(600)
    return took * 1e3, worked * 1e3


def shares(root: Path, repetitions: int) -> list[Row]:
    """Measure what ``commit()`` takes beside the stores' own part of it, with stores of the memory engine."""
    return [one_share(root, repetitions * 40), *many_shares(root, repetitions * 2, 1_000)]


def one_share(root: Path, repetitions: int) -> Row:
    """Measure ``commit()`` with one dirty store, less the median of what closing its run takes in every other turn."""
    ours, bare = [], []
    with open_task(root / "share-1", ["s"], engine="memory", backend="memory") as task:
        store = task.store("s")
        for number in range(repetitions):
            store.put(b"k", b"%d" % number)
            bare.append(inline([store]))
            settle(task)
            store.put(b"k", b"x%d" % number)
            ours.append(inside(task, number))
    closing = statistics.median(bare)
    share = [one - closing for one in ours]
    return Row("engine's share of commit(), 1 store", share, [], "us", "<= 20 us", at_most(20.0))


def many_shares(root: Path, repetitions: int, count: int) -> list[Row]:
    """Measure ``commit()`` with *count* stores, all dirty and one dirty, beside a loop that closes and times each."""
    rows = []
    names = [f"s{number}" for number in range(count)]
    with open_task(root / f"share-{count}", names, engine="memory", backend="memory") as task:
        stores = [task.store(name) for name in names]
        task.commit_now(600)
        for kind, dirty in (("all dirty", stores), ("one dirty", stores[:1])):
            ours, bare = [], []
            for number in range(repetitions):
                put_into(dirty, b"%d" % number)
                bare.append(inline(stores))
                settle(task)
                put_into(dirty, b"x%d" % number)
                ours.append(inside(task, number))
            rows.append(Row(f"inside commit(), {count} stores, {kind}", ours, bare, "us", "<= 3x", at_most(3.0)))
    return rows


def put_into(stores: Sequence[millpond.KeyValueStore[bytes, bytes]], value: bytes) -> None:
    """Make each of *stores* dirty."""
    for store in stores:
        store.put(b"k", value)


def inside(task: Task, number: int) -> float:
    """Give the microseconds inside ``commit()``, and wait for the commit's end."""
    task.processed(jobs.SOURCE, number)
    begun = time.perf_counter()
    future = task.commit()
    took = (time.perf_counter() - begun) * 1e6
    future.result(600)
    task._engine._await_idle(time.monotonic() + 600)
    return took


def inline(stores: Sequence[millpond.KeyValueStore[bytes, bytes]]) -> float:
    """Give the microseconds of a bare loop that closes the run of every store and times each."""
    times = []
    begun = time.perf_counter()
    for store in stores:
        start = time.perf_counter()
        store._store.close_run()
        times.append(time.perf_counter() - start)
    return (time.perf_counter() - begun) * 1e6


# ------------------------------------------------------------------------------------------------ the stall


class Spinner:
    """A thread that does nothing but look at the clock, and remembers the longest gap."""

    def __enter__(self) -> Self:
        self.longest = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _spin(self) -> None:
        last = time.perf_counter()
        while not self._stop.is_set():
            now = time.perf_counter()
            self.longest = max(self.longest, now - last)
            last = now


def stalls(root: Path, repetitions: int) -> list[Row]:
    """Measure the longest stall of a spinning thread while a whole commit of 40 MB goes on."""
    ours, bare = [], []
    database = jobs.open_bare(root / "stall-bare")
    with open_task(root / "stall", ["s"]) as task:
        for number in range(repetitions):
            write_bare(database, number, CHANGED)
            database.flush()
            with Spinner() as spinner:
                RocksCheckpoint(database).create_checkpoint(str(root / f"stall-checkpoint-{number}"))
            bare.append(spinner.longest * 1e3)
            write_ours(task, "s", number, CHANGED)
            with Spinner() as spinner:
                task.commit_now(600)
            ours.append(spinner.longest * 1e3)
    limit = max(3 * statistics.median(bare), 10.0)
    return [Row("longest stall during a commit of 40 MB", ours, [], "ms", f"<= {limit:.1f} ms", at_most(limit))]


# -------------------------------------------------------------------------------------------- the whole commit


def totals(root: Path, repetitions: int) -> list[Row]:
    """Measure whole commits of 8 MB a store beside the same done bare."""
    return [total(root / f"total-{count}", count, repetitions) for count in (1, 10)]


def total(root: Path, count: int, repetitions: int) -> Row:
    """Measure commits of *count* stores."""
    names = [f"s{number}" for number in range(count)]
    ours, bare = [], []
    with open_task(root, names) as task:
        bares = [jobs.open_bare(root / f"bare-{name}") for name in names]

        def do_bare(number: int) -> None:
            for database in bares:
                write_bare(database, number, EACH)
            bare.append(millis(lambda: commit_bare(root / "images", bares, number)))

        def do_ours(number: int) -> None:
            for name in names:
                write_ours(task, name, number, EACH)
            ours.append(ended(task))

        for number in range(repetitions + 1):  # what one leaves to the disk and to compaction, the other feels in turn
            for each in (do_bare, do_ours) if number % 2 else (do_ours, do_bare):
                each(number)
    return Row(f"commit of 8 MB in each of {count} stores", ours[1:], bare[1:], "ms", "<= 1.15x", at_most(1.15))


def commit_bare(root: Path, databases: Sequence[Rdict], number: int) -> None:
    """Flush and checkpoint each database, then write one durable record."""
    root.mkdir(exist_ok=True)
    for place, database in enumerate(databases):
        database.flush()
        RocksCheckpoint(database).create_checkpoint(str(root / f"{number}-{place}"))
    durable_record(root / "records", number)


def many(root: Path, repetitions: int, count: int) -> list[Row]:
    """
    Measure commits of a job with *count* stores: without changes, and with one dirty store.

    The dirty store is RocksDB's; the others, which are only looked at, are the memory engine's.
    """
    names = [f"s{number:04d}" for number in range(count)]
    alone: list[float] = []
    among: list[float] = []
    clean, written = [], []
    first = {names[0]: "rocksdb"}
    with (
        open_task(root / "alone", names[:1]) as one,
        open_task(root / "many", names, engine="memory", engines=first) as thousand,
    ):
        thousand.commit_now(1_800)
        one.commit_now(600)
        for number in range(repetitions * 4):
            for task, times in ((one, alone), (thousand, among)):
                write_ours(task, names[0], number, DIRTY)
                times.append(ended(task))
            clean.append(millis(lambda: thousand.commit_now(600)))
            before = jobs.count_files(root / "many")
            thousand.commit_now(600)
            written.append(jobs.count_files(root / "many") - before)
    nothing = f"commit of 1 dirty store beside one of {count} clean ones"
    return [
        Row(f"1 dirty store of {count} beside that store alone", among, alone, "ms", "<= 1.3x", at_most(1.3)),
        Row(nothing, alone, clean, "ms", ">= 100x", at_least(100)),
        Row("files written by a commit without changes", written, [], "", "0", at_most(0)),
    ]


def ended(task: Task) -> float:
    """Commit, wait for its clean-up too, and give the milliseconds until it was durable."""
    took = millis(lambda: task.commit_now(600))
    task._engine._await_idle(time.monotonic() + 600)
    return took


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--gigabytes", type=float, default=5.0, help="the larger state")
    words.add_argument("--repetitions", type=int, default=5)
    words.add_argument("--stores", type=int, default=1_000, help="how many of which one is dirty")
    words.add_argument("--only", default="", help="some of pause,share,stall,total,many")
    words.add_argument("--directory", type=Path, default=None)
    given = words.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        root = Path(folder)
        parts = {
            "pause": lambda: pauses(root, [100_000_000, int(given.gigabytes * 1e9)], given.repetitions),
            "share": lambda: shares(root, given.repetitions),
            "stall": lambda: stalls(root, given.repetitions),
            "total": lambda: totals(root, given.repetitions),
            "many": lambda: many(root, given.repetitions, given.stores),
        }
        chosen = given.only.split(",") if given.only else list(parts)
        show([row for name in chosen for row in parts[name]()])


if __name__ == "__main__":
    main()
