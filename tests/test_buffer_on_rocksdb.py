"""The write buffer in front of a real RocksDB database."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.errors import StoreClosedError
from millpond.lanes import Lane, Workers
from millpond.spi import StoreEngine, StoreSpec
from millpond.stores.budget import BufferBudget
from millpond.stores.buffer import BufferedStore
from millpond.stores.keyvalue import KeyValueStore
from millpond.stores.serdes import serde_named

engines = pytest.importorskip("millpond_rocksdb.engine")

PATIENCE_S = 60.0
SPEC = StoreSpec("s", "rocksdb")


@pytest.fixture
def lane() -> Iterator[Lane]:
    workers = Workers("test", 1)
    yield workers.lane()
    workers.close(PATIENCE_S)


def open_engine(directory: Path) -> StoreEngine:
    engine: StoreEngine = engines.RocksDBEngine.open(directory, SPEC)
    return engine


def test_store_equals_a_dict_through_many_runs(tmp_path: Path, lane: Lane) -> None:
    """After a hundred thousand random writes, gets, scans and the image of a commit equal a dict."""
    store = BufferedStore("s", open_engine(tmp_path / "live"), lane, BufferBudget(4 << 20))
    model: dict[bytes, bytes] = {}
    scans = []
    chance = random.Random(5)
    for number in range(100_000):
        key = b"%06d" % chance.randrange(40_000)
        if chance.random() < 0.25:
            store.delete(key)
            model.pop(key, None)
        else:
            store.put(key, b"%d" % number)
            model[key] = b"%d" % number
        if number % 25_000 == 7:
            scans += [
                (store.scan(), sorted(model.items())),
                (store.scan(None, None, True), sorted(model.items())[::-1]),
            ]
        if number % 9_973 == 0:
            store.close_run()
            assert store.get_many(sorted(model)[:50]) == [model[key] for key in sorted(model)[:50]]
    store.close_run()
    made = lane.submit(lambda: store.checkpoint(tmp_path / "image"))
    store.put(b"000000", b"after the mark")
    made.result(PATIENCE_S)
    for scan, expected in scans:
        assert list(scan) == expected
    store.close()
    image = open_engine(tmp_path / "image")
    assert list(image.scan(None, None, False)) == sorted(model.items())
    image.close()


def test_scan_is_open_across_commit_close_and_reopen(tmp_path: Path, lane: Lane) -> None:
    """A scan goes on while its store commits, raises after the close, and does not disturb a new opening."""
    store = BufferedStore("s", open_engine(tmp_path / "live-1"), lane, BufferBudget(4 << 20))
    for number in range(3_000):
        store.put(b"%06d" % number, b"old")
    store.close_run()
    lane.submit(lambda: None).result(PATIENCE_S)
    store.put(b"000500", b"new")
    scan = store.scan()
    seen = [next(scan) for _ in range(1_000)]
    store.close_run()
    lane.submit(lambda: store.checkpoint(tmp_path / "live-2")).result(PATIENCE_S)
    seen += [next(scan) for _ in range(1_000)]
    store.close()
    with pytest.raises(StoreClosedError):
        next(scan)
    again = BufferedStore("s", open_engine(tmp_path / "live-2"), lane, BufferBudget(4 << 20))
    assert seen == [(b"%06d" % n, b"new" if n == 500 else b"old") for n in range(2_000)]
    assert (again.get(b"000500"), again.get(b"002999")) == (b"new", b"old")
    again.close()


def test_map_over_rocksdb_counts(tmp_path: Path, lane: Lane) -> None:
    """Read-modify-write through serdes counts right while runs are applied under it."""
    buffered = BufferedStore("s", open_engine(tmp_path / "live"), lane, BufferBudget(1 << 20))
    counts = KeyValueStore[int, dict[str, int]](buffered, serde_named("int"), serde_named("json"))
    for number in range(30_000):
        key = number * 7_919 % 5_000 - 2_500
        counts[key] = {"n": (counts.get(key) or {"n": 0})["n"] + 1}
    assert buffered.mark > 0
    assert [key for key, _ in counts.scan()] == list(range(-2_500, 2_500))
    assert all(value == {"n": 6} for _, value in counts.scan(reverse=True))
    buffered.close()
