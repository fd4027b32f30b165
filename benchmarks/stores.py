"""
What a buffered store costs beside a bare rocksdict database with the same options, in one interleaved run.

    python benchmarks/stores.py [--keys 200000] [--repetitions 5] [--only put,get] [--directory DIR]

Prints medians and their ratio, beside the goal. Only ratios mean anything: both sides ran in turn on the same machine.
Keys are 20 bytes, values 100 bytes of which half are random.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import define, frozen
from rocksdict import Options, Rdict
from table import Row, show

from millpond.lanes import Workers
from millpond.spi import StoreSpec
from millpond.stores.budget import BufferBudget
from millpond.stores.buffer import BufferedStore
from millpond.stores.keyvalue import KeyValueStore
from millpond.stores.serdes import BYTES
from millpond_rocksdb.database import make_options, open_database, without_log
from millpond_rocksdb.engine import RocksDBEngine
from millpond_rocksdb.options import resolve
from millpond_rocksdb.settings import RocksDBSettings
from millpond_rocksdb.shared import shared

Item = tuple[bytes, bytes]
HOT = 1_000
DIRTY = 8_000
SHORT = 2_000


def in_us(name: str, ours: list[float], raw: list[float], goal: str, reached: Callable[[float], bool]) -> Row:
    """Give one line of the table; times are microseconds an operation, of each repetition."""
    return Row(name, ours, raw, "us", goal, reached)


@define
class Bench:
    """The stores and keys that are compared, and how often."""

    directory: Path
    workers: Workers
    items: list[Item]
    repetitions: int
    number: int = 0

    def path(self) -> Path:
        """Give a folder that is not there yet."""
        self.number += 1
        return self.directory / str(self.number)

    @contextmanager
    def raw(self, items: list[Item]) -> Iterator[Rdict]:
        """Open a bare database that holds *items*."""
        settings = RocksDBSettings()
        options = make_options(resolve(settings.options, {}), shared(settings))
        database = open_database(self.path(), options, read_only=False)
        fill(database, items)
        try:
            yield database
        finally:
            database.close()

    @contextmanager
    def plain(self) -> Iterator[Rdict]:
        """Open a bare database with the options that rocksdict has by default, without a log."""
        database = Rdict(str(self.path()), Options(raw_mode=True))
        database.set_write_options(without_log())
        try:
            yield database
        finally:
            database.close()

    @contextmanager
    def ours(self, items: list[Item]) -> Iterator[Ours]:
        """Open a buffered store whose engine holds *items*."""
        engine = RocksDBEngine.open(self.path(), StoreSpec("bench", "rocksdb"))
        fill(engine._database, items)
        lane = self.workers.lane()
        buffered = BufferedStore("bench", engine, lane, BufferBudget(64 << 20))
        try:
            yield Ours(buffered, KeyValueStore(buffered, BYTES, BYTES), lane)
        finally:
            buffered.close()


@frozen
class Ours:
    """A store with what a benchmark asks of it."""

    buffered: BufferedStore
    store: KeyValueStore[bytes, bytes]
    lane: object

    def settle(self) -> None:
        """Bring everything into the engine, as a commit does."""
        self.buffered.close_run()
        self.lane.submit(lambda: None).result()  # type: ignore[attr-defined]

    def flush(self) -> None:
        """Let the engine write out its memory, on the lane, as a commit does."""
        self.buffered.close_run()
        self.lane.submit(self.buffered.engine._database.flush).result()  # type: ignore[attr-defined]


def fill(database: Rdict | None, items: list[Item]) -> None:
    """Put *items* into a database and bring it into one sorted level, so that both sides read the same."""
    if database is None or not items:
        return
    for key, value in items:
        database.put(key, value)
    database.flush()
    database.compact_range(None, None)


def made_items(count: int) -> list[Item]:
    """Give *count* entries with random keys."""
    return [(os.urandom(20), os.urandom(50) + b"v" * 50) for _ in range(count)]


def timed(work: Callable[[], object], operations: int) -> float:
    """Give the microseconds that one of the *operations* in *work* took."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6 / operations


def put_all(put: Callable[[bytes, bytes], object], items: list[Item]) -> None:
    """Put each of *items*."""
    for key, value in items:
        put(key, value)


def get_all(get: Callable[[bytes], object], keys: list[bytes]) -> None:
    """Get each of *keys*."""
    for key in keys:
        get(key)


def count_up(store: object, keys: list[bytes]) -> None:
    """Read, change and write each of *keys*."""
    get, put = store.get, store.put  # type: ignore[attr-defined]
    for key in keys:
        put(key, (int.from_bytes(get(key) or b"", "big") + 1).to_bytes(8, "big"))


def bench_put(bench: Bench) -> list[Row]:
    """New keys, with their share of applying and flushing, against a put loop that is flushed and one that is not."""
    ours, raw, flushed, plain = [], [], [], []
    count = len(bench.items)
    for _ in range(bench.repetitions):
        with bench.plain() as database:
            plain.append(timed(lambda: put_all(database.put, bench.items), count))
        with bench.raw([]) as database:
            raw.append(timed(lambda: put_all(database.put, bench.items), count))
            flushed.append(raw[-1] + timed(database.flush, count))
        with bench.ours([]) as mine:
            ours.append(timed(in_turn(lambda: put_all(mine.store.put, bench.items), mine.flush), count))
    return [
        in_us("put, applied and flushed / raw put", ours, raw, "<= 1.00x", lambda ratio: ratio <= 1.0),
        in_us("put, applied and flushed / raw put + flush", ours, flushed, "", lambda ratio: ratio <= 1.0),
        in_us("put, applied and flushed / rocksdict's defaults", ours, plain, "<= 1.00x", lambda ratio: ratio <= 1.0),
    ]


def bench_hot(bench: Bench) -> list[Row]:
    """Read-modify-write of a thousand keys, with applying and flushing at the end."""
    ours, raw = [], []
    keys = [key for key, _ in bench.items[:HOT]]
    work = random.Random(7).choices(keys, k=len(bench.items))
    for _ in range(bench.repetitions):
        with bench.raw([]) as database:
            raw.append(timed(lambda: count_up(database, work), len(work)))
        with bench.ours([]) as mine:
            ours.append(timed(in_turn(lambda: count_up(mine.store, work), mine.flush), len(work)))
    return [in_us("read-modify-write, hot keys", ours, raw, "<= 0.20x", lambda ratio: ratio <= 0.2)]


def bench_get(bench: Bench) -> list[Row]:
    """Gets that the buffer cannot answer, without and with runs that wait, and gets that it can."""
    raw, miss, waiting, hit = [], [], [], []
    keys = [key for key, _ in bench.items]
    random.Random(7).shuffle(keys)
    keys = keys[:100_000]
    fresh = made_items(20_000)
    hot = random.Random(7).choices([key for key, _ in fresh[-DIRTY:]], k=len(keys))
    with bench.raw(bench.items) as database, bench.ours(bench.items) as mine, bench.ours(bench.items) as full:
        put_all(mine.store.put, fresh[:DIRTY])
        release = hold_lane(full)
        put_all(full.store.put, fresh)
        for warm in (database.get, mine.store.get, full.store.get):
            get_all(warm, keys)
        for _ in range(bench.repetitions):
            raw.append(timed(lambda: get_all(database.get, keys), len(keys)))
            miss.append(timed(lambda: get_all(mine.store.get, keys), len(keys)))
            waiting.append(timed(lambda: get_all(full.store.get, keys), len(keys)))
            hit.append(timed(lambda: get_all(full.store.get, hot), len(keys)))
        release()
    return [
        in_us("get, not in the buffer", miss, raw, "<= 1.15x", lambda ratio: ratio <= 1.15),
        in_us("get, not in the buffer, runs waiting", waiting, raw, "<= 1.15x", lambda ratio: ratio <= 1.15),
        in_us("get, in the buffer", hit, raw, "<= 0.20x", lambda ratio: ratio <= 0.2),
    ]


def hold_lane(mine: Ours) -> Callable[[], None]:
    """Keep the lane busy, so that closed runs wait; give what lets it go on."""
    import threading

    event = threading.Event()
    mine.lane.submit(event.wait)  # type: ignore[attr-defined]
    return event.set


def bench_scan(bench: Bench) -> list[Row]:
    """Whole scans, without and with a dirty open run."""
    raw, engine, clean, dirty = [], [], [], []
    count = len(bench.items)
    changed = [(key, b"new") for key, _ in random.Random(7).sample(bench.items, min(DIRTY, count // 10))]
    with bench.raw(bench.items) as database, bench.ours(bench.items) as mine, bench.ours(bench.items) as other:
        put_all(other.store.put, changed)
        for _ in range(bench.repetitions):
            raw.append(timed(lambda: consume(database.items()), count))
            engine.append(timed(lambda: consume(mine.buffered.engine.scan(None, None, False)), count))
            clean.append(timed(lambda: consume(mine.store.scan()), count))
            dirty.append(timed(lambda: consume(other.store.scan()), count))
        starts = random.Random(7).choices([key for key, _ in bench.items], k=SHORT)
        few_raw, few_clean, few_dirty = [], [], []
        for _ in range(bench.repetitions):
            few_raw.append(timed(lambda: scan_few(lambda key: database.items(from_key=key), starts), SHORT))
            few_clean.append(timed(lambda: scan_few(mine.store.scan, starts), SHORT))
            few_dirty.append(timed(lambda: scan_few(other.store.scan, starts), SHORT))
    return [
        in_us("scan, engine alone", engine, raw, "", lambda ratio: ratio <= 1 / 0.6),
        in_us("scan, clean buffer", clean, raw, "<= 1.67x", lambda ratio: ratio <= 1 / 0.6),
        in_us(f"scan, {len(changed):,} keys dirty", dirty, raw, "<= 1.67x", lambda ratio: ratio <= 1 / 0.6),
        in_us("scan of ten entries, clean buffer", few_clean, few_raw, "", lambda _: True),
        in_us(f"scan of ten entries, {len(changed):,} keys dirty", few_dirty, few_raw, "", lambda _: True),
    ]


def in_turn(*works: Callable[[], object]) -> Callable[[], None]:
    """Bind *works* together, one after the other."""

    def all_of_them() -> None:
        for work in works:
            work()

    return all_of_them


def scan_few(scan: Callable[[bytes], Iterable[Any]], starts: list[bytes]) -> None:
    """Look at ten entries from each of *starts* on."""
    for start in starts:
        consume(islice(scan(start), 10))


def consume(items: Iterable[Any]) -> None:
    """Look at each of *items*."""
    for _key, _value in items:
        pass


BENCHES = {"put": bench_put, "hot": bench_hot, "get": bench_get, "scan": bench_scan}


def main() -> None:
    """Run the benchmarks that were asked for and print their table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--only", default=",".join(BENCHES))
    parser.add_argument("--directory", type=Path, default=None, help="where the databases are made")
    arguments = parser.parse_args()
    workers = Workers("bench", 1)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        bench = Bench(Path(directory), workers, made_items(arguments.keys), arguments.repetitions)
        show([row for name in arguments.only.split(",") for row in BENCHES[name](bench)])
    workers.close(10.0)


if __name__ == "__main__":
    main()
