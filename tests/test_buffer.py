"""The write buffer: what reads see, what moves when, what waits for whom, and how a store ends."""

from __future__ import annotations

import gc
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import StateNotFoundError, StoreClosedError, TransientError
from millpond.formats import change_file
from millpond.lanes import Workers, run_into
from millpond.spi import BATCH, Change
from millpond.stores.budget import Allowance, BufferBudget
from millpond.stores.buffer import BufferedStore
from millpond.stores.memory import MemoryEngine
from millpond.stores.openkeys import OpenKeys
from millpond.stores.refusals import RecordTooLargeError
from millpond.stores.runs import MAX_WAITING, RECORD_OVERHEAD, RUN_BYTES, RUN_KEYS, WaitingRuns
from millpond.stores.scan import Window, scanned

MIB = 1 << 20
PATIENCE_S = 20.0


class SteppedLane:
    """A lane that does nothing until it is told to."""

    def __init__(self) -> None:
        self.queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self.queue.append((future, work))
        return future

    def step(self) -> None:
        run_into(*self.queue.popleft())

    def drain(self) -> None:
        while self.queue:
            self.step()


class ImmediateLane:
    """A lane that has done its work when submit returns."""

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        run_into(future, work)
        return future


class SpyEngine(MemoryEngine):
    """A memory engine that counts its batches, and refuses one."""

    def __init__(self) -> None:
        super().__init__("spied")
        self.batches: list[Sequence[Change]] = []
        self.gets = 0
        self.refuse_batch: int | None = None

    def get(self, key: bytes) -> bytes | None:
        self.gets += 1
        return super().get(key)

    def apply(self, changes: Sequence[Change]) -> None:
        if self.refuse_batch == len(self.batches):
            raise OSError(28, "No space left on device")
        self.batches.append(changes)
        super().apply(changes)


def make_store(lane: Any, engine: MemoryEngine | None = None, limit: int = 64 * MIB, **options: Any) -> BufferedStore:
    budget = BufferBudget(limit)
    budget.kept = Allowance(0)
    return BufferedStore("s", engine or SpyEngine(), lane, budget, **options)


def key(number: int) -> bytes:
    return b"%08d" % number


def fill(store: BufferedStore, numbers: range, value: bytes = b"v") -> None:
    for number in numbers:
        store.put(key(number), value)


def fill_until_waiting(store: BufferedStore, runs: int) -> None:
    number = 0
    while store.mark < runs:
        store.put(key(number), b"v")
        number += 1


def in_thread(work: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    threading.Thread(target=run_into, args=(future, work), daemon=True).start()
    return future


def wait_until_blocked(store: BufferedStore) -> None:
    """Return when some thread waits for the budget's condition."""
    changed = store._budget._changed
    waiting = threading.Event()

    def look() -> bool:
        with changed:
            return bool(changed._waiters)  # type: ignore[attr-defined]

    while not look():
        waiting.wait(0.001)


def test_write_is_read_at_every_stage() -> None:
    """A value is read the same from the open run, a closed run, the index and the engine."""
    lane = SteppedLane()
    store = make_store(lane)
    store.put(b"a", b"1")
    assert store.get(b"a") == b"1"
    store.close_run()
    assert store.get(b"a") == b"1"
    store.put(b"b", b"2")
    store.close_run()
    assert (store.get(b"a"), store.get(b"b")) == (b"1", b"2")
    lane.drain()
    assert (store.get(b"a"), store.get(b"b"), store.engine.get(b"a")) == (b"1", b"2", b"1")


def test_delete_shadows_at_every_stage() -> None:
    """A deleted key is gone from reads and scans although the engine still has it."""
    lane = SteppedLane()
    store = make_store(lane)
    store.put(b"a", b"1")
    store.close_run()
    lane.drain()
    store.delete(b"a")
    assert (store.get(b"a"), store.get_many([b"a"]), list(store.scan())) == (None, [None], [])
    store.close_run()
    assert (store.get(b"a"), store.get_many([b"a"]), list(store.scan())) == (None, [None], [])
    lane.drain()
    assert (store.get(b"a"), store.engine.get(b"a")) == (None, None)


def test_delete_then_put_in_one_run_is_a_put() -> None:
    """Of a delete and a later put of the same key in one run the put wins."""
    lane = SteppedLane()
    store = make_store(lane)
    store.put(b"a", b"1")
    store.delete(b"a")
    store.put(b"a", b"2")
    store.close_run()
    lane.drain()
    assert store.engine.get(b"a") == b"2"


def test_empty_key_and_empty_value_are_entries() -> None:
    """The empty value is no deletion and the empty key is a key, in the buffer, in a scan and in the engine."""
    lane = SteppedLane()
    store = make_store(lane)
    store.put(b"", b"")
    store.put(b"a", b"1")
    assert (store.get(b""), list(store.scan())) == (b"", [(b"", b""), (b"a", b"1")])
    assert list(store.scan(reverse=True)) == [(b"a", b"1"), (b"", b"")]
    store.close_run()
    lane.drain()
    assert (store.get(b""), list(store.scan())) == (b"", [(b"", b""), (b"a", b"1")])


def test_newest_of_many_waiting_runs_wins() -> None:
    """With runs in the index, a run outside it and an open run, the newest value of a key is read."""
    lane = SteppedLane()
    store = make_store(lane)
    for number in range(1, 6):
        store.put(b"a", b"%d" % number)
        store.put(b"only %d" % number, b"x")
        store.close_run()
        assert (store.get(b"a"), store.get(b"only 1")) == (b"%d" % number, b"x")
    for _ in range(5):
        lane.step()
        assert (store.get(b"a"), store.get(b"only 1"), store.get(b"only 5")) == (b"5", b"x", b"x")


def test_run_that_the_index_never_saw_hides_what_lingers_in_it() -> None:
    """An applied run's value in the index does not come back once a younger run was applied without being indexed."""
    lane = SteppedLane()
    store = make_store(lane)
    for number in range(2):
        store.put(b"a", b"%d" % number)
        store.close_run()
    assert store.get(b"b") is None  # a miss over two runs builds the index
    store.put(b"a", b"new")
    store.close_run()
    store.put(b"c", b"keeps waiting")
    store.close_run()
    for _ in range(3):
        lane.step()
    assert store.get(b"a") == b"new"


def test_run_that_nobody_read_stays_visible_while_it_waits() -> None:
    """Of two runs that no index holds, applying the older one does not hide the younger one."""
    lane = SteppedLane()
    store = make_store(lane)
    for name in (b"a", b"b"):
        store.put(name, b"1")
        store.close_run()
    lane.step()
    assert (store.get(b"b"), store.get(b"a")) == (b"1", b"1")


def test_miss_asks_the_engine_once() -> None:
    """A key that is nowhere costs one look-up in the engine, however many runs wait."""
    lane = SteppedLane()
    engine = SpyEngine()
    store = make_store(lane, engine)
    for number in range(5):
        store.put(key(number), b"v")
        store.close_run()
    assert store.get(b"nowhere") is None
    assert engine.gets == 1
    assert len(store._waiting.recent) == 0


def test_index_does_not_outgrow_the_waiting_runs() -> None:
    """While runs always wait and reads always index them, applied entries leave the index again."""
    lane = SteppedLane()
    store = make_store(lane)
    number = 0
    for _ in range(30):
        mark = store.mark
        while store.mark == mark:
            store.put(key(number), b"v")
            number += 1
        store.get(b"nowhere")
        if len(store._waiting.runs) > 2:
            lane.step()
    waiting = sum(len(run.entries) for run in store._waiting.runs)
    assert len(store._waiting.index) <= waiting + 6 * RUN_KEYS


def test_run_closes_itself_at_its_number_of_keys() -> None:
    """A run is handed to the lane without a commit before it would hold more than its number of keys."""
    lane = SteppedLane()
    store = make_store(lane)
    fill(store, range(RUN_KEYS + 1))
    assert (store.mark, len(lane.queue)) == (1, 1)
    assert RUN_KEYS - 100 < len(store._waiting.runs[0].entries) <= RUN_KEYS


def test_run_closes_itself_at_its_bytes() -> None:
    """A run is handed to the lane without a commit before it would hold more than its bytes."""
    lane = SteppedLane()
    store = make_store(lane)
    fill(store, range(3 * RUN_BYTES // 50_000), bytes(50_000))
    assert store.mark >= 2
    sizes = [run.size for run in store._waiting.runs]
    assert all(RUN_BYTES // 2 < size <= RUN_BYTES for size in sizes)


def test_hot_key_does_not_fill_a_run() -> None:
    """Replacing one value for ever neither closes a run early nor takes memory from the budget for good."""
    lane = SteppedLane()
    store = make_store(lane)
    for number in range(100_000):
        store.put(b"hot", key(number))
    assert store.mark == 0
    assert store._budget.held <= RUN_BYTES


def test_applied_batches_are_sorted_and_small() -> None:
    """The engine gets sorted batches of at most the SPI's number of changes."""
    lane = SteppedLane()
    engine = SpyEngine()
    store = make_store(lane, engine)
    fill(store, range(2500, 0, -1))
    store.close_run()
    lane.drain()
    assert [len(batch) for batch in engine.batches] == [BATCH, BATCH, 500]
    changes = [change for batch in engine.batches for change in batch]
    assert changes == sorted(changes)


def test_close_run_without_writes_gives_the_same_mark() -> None:
    """Closing an empty run closes nothing."""
    lane = SteppedLane()
    store = make_store(lane)
    assert (store.close_run(), store.has_open_run()) == (0, False)
    store.put(b"a", b"1")
    assert store.has_open_run()
    assert (store.close_run(), store.close_run(), len(lane.queue)) == (1, 1, 1)


def test_job_submitted_after_close_run_sees_exactly_the_mark() -> None:
    """What the lane does after a close_run sees all runs up to the mark in the engine and no later write."""
    workers = Workers("test", 1)
    lane = workers.lane()
    engine = MemoryEngine()
    store = make_store(lane, engine)
    for number in range(20):
        fill(store, range(3_000), b"%d" % number)
        store.close_run()
        seen = lane.submit(lambda: list(engine.scan(None, None, False)))
        store.put(key(0), b"later")
        store.put(b"new", b"later")
        assert seen.result(PATIENCE_S)[0] == (key(0), b"%d" % number)
        assert all(value == b"%d" % number or name == b"new" for name, value in seen.result())
    store.close()
    workers.close(PATIENCE_S)


def test_put_at_eight_waiting_runs_waits_for_the_lane() -> None:
    """A put that would close a ninth run waits until the lane has applied one, with no commit in flight."""
    lane = SteppedLane()
    store = make_store(lane)
    fill_until_waiting(store, MAX_WAITING)
    blocked = in_thread(lambda: fill(store, range(1_000_000, 1_000_000 + RUN_KEYS)))
    wait_until_blocked(store)
    assert (store.mark, blocked.done()) == (MAX_WAITING, False)
    lane.step()
    blocked.result(PATIENCE_S)
    assert store.mark == MAX_WAITING + 1


def test_commit_closes_a_run_whatever_waits() -> None:
    """close_run never waits: it closes a ninth run."""
    lane = SteppedLane()
    store = make_store(lane)
    fill_until_waiting(store, MAX_WAITING)
    assert store.close_run() == MAX_WAITING + 1


def test_put_gives_up_at_its_deadline() -> None:
    """A put that waited in vain raises TransientError that names the store and the setting, and changes nothing."""
    lane = SteppedLane()
    store = make_store(lane, put_timeout_s=0.01)
    fill_until_waiting(store, MAX_WAITING)
    fill_error: pytest.ExceptionInfo[TransientError]
    with pytest.raises(TransientError, match=r"'s'.*buffer_memory") as fill_error:
        fill(store, range(1_000_000, 1_000_000 + 2 * RUN_KEYS))
    assert "8 closed runs" in str(fill_error.value)
    held = store._budget.held
    with pytest.raises(TransientError):
        store.put(b"refused", b"x")
    assert (store.get(b"refused"), store._budget.held) == (None, held)
    lane.step()
    store.put(b"refused", b"x")
    assert store.get(b"refused") == b"x"


def test_waiting_put_raises_the_lanes_failure() -> None:
    """A put that waits when the engine fails raises StoreClosedError with the engine's error as its cause."""
    lane = SteppedLane()
    engine = SpyEngine()
    store = make_store(lane, engine)
    fill_until_waiting(store, MAX_WAITING)
    blocked = in_thread(lambda: fill(store, range(1_000_000, 1_000_000 + 2 * RUN_KEYS)))
    wait_until_blocked(store)
    engine.refuse_batch = 3
    lane.step()
    error = blocked.exception(PATIENCE_S)
    assert isinstance(error, StoreClosedError)
    assert isinstance(error.__cause__, OSError)


def test_apply_that_fails_half_way_ends_the_store() -> None:
    """After a failed apply everything raises StoreClosedError chained to it, and later runs are not applied."""
    lane = SteppedLane()
    engine = SpyEngine()
    store = make_store(lane, engine, keep_changes=True)
    fill(store, range(2_500))
    mark = store.close_run()
    store.put(b"z", b"z")
    store.close_run()
    engine.refuse_batch = 1
    lane.drain()
    assert isinstance(store.failure, OSError)
    assert len(engine.batches) == 1
    calls: list[Callable[[], object]] = [
        lambda: store.get(b"a"),
        lambda: store.get_many([b"a"]),
        lambda: store.put(b"a", b"b"),
        lambda: store.delete(b"a"),
        store.scan,
        lambda: store.scan(b"b", b"a"),
        store.close_run,
        store.has_open_run,
        lambda: store.checkpoint(Path("never")),
        lambda: store.room().result(0),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError, match="No space left") as caught:
            call()
        assert caught.value.__cause__ is store.failure
    assert len(list(store.changes(0, mark))) == 2_500
    assert store._budget.held == 0


def test_scan_open_before_a_failed_apply_stays_whole() -> None:
    """A scan that was open when an apply failed half-way raises and never shows a part."""
    lane = SteppedLane()
    engine = SpyEngine()
    store = make_store(lane, engine)
    fill(store, range(2_500))
    store.close_run()
    scan = store.scan()
    first = next(scan)
    engine.refuse_batch = 1
    lane.drain()
    assert first == (key(0), b"v")
    with pytest.raises(StoreClosedError):
        list(scan)


def test_budget_bounds_the_stores_together() -> None:
    """Two stores that share a budget hold no more than it plus a block each, and the second one waits for the first."""
    lane = SteppedLane()
    budget = BufferBudget(MIB)
    first, second = (BufferedStore(name, SpyEngine(), lane, budget) for name in ("first", "second"))
    fill(first, range(3_000), bytes(100))
    blocked = in_thread(lambda: fill(second, range(10_000), bytes(100)))
    wait_until_blocked(second)
    assert budget.held <= MIB + 2 * 4096
    while not blocked.done():
        if lane.queue:
            lane.step()
    blocked.result(PATIENCE_S)
    assert budget.held <= MIB + 2 * 4096


def test_idle_open_run_does_not_starve_other_stores() -> None:
    """A store goes on in small runs when another one's open run holds the whole budget and never closes."""
    budget = BufferBudget(64 << 10)
    hoarder, other = (BufferedStore(name, SpyEngine(), ImmediateLane(), budget, put_timeout_s=0.0) for name in "ab")
    while budget.held < 60 << 10:
        hoarder.put(key(budget.held), bytes(3_000))
    for number in range(500):
        other.put(key(number), bytes(100))
    assert budget.held <= (64 << 10) + 2 * 4096
    assert [value for _, value in other.scan()] == [bytes(100)] * 500


def test_record_larger_than_the_budget_goes_alone() -> None:
    """A record that exceeds the whole budget is stored once nothing else waits."""
    lane = SteppedLane()
    store = make_store(lane, limit=MIB, put_timeout_s=0.0)
    store.put(b"small", b"x")
    with pytest.raises(TransientError):
        store.put(b"huge", bytes(2 * MIB))
    lane.drain()
    store.put(b"huge", bytes(2 * MIB))
    store.close_run()
    lane.drain()
    assert store.engine.get(b"huge") == bytes(2 * MIB)
    assert store._budget.held == 0


def test_budget_is_whole_again_after_everything_is_applied() -> None:
    """What was claimed for runs of every shape comes back to the last byte."""
    lane = SteppedLane()
    store = make_store(lane)
    fill(store, range(20_000), bytes(300))
    for number in range(1_000):
        store.put(b"hot", bytes(number * 10))
        store.delete(key(number))
    store.close_run()
    lane.drain()
    assert store._budget.held == 0


def test_budget_counts_at_least_what_runs_hold() -> None:
    """The bytes that the budget knows of are never fewer than those of the keys, values and their overhead."""
    lane = SteppedLane()
    store = make_store(lane)
    for number in range(5_000):
        store.put(key(number % 700), bytes(number % 1_000))
        if number % 50 == 0:
            truth = sum(len(k) + len(v or b"") + RECORD_OVERHEAD for k, v in store._open.items())
            assert store._budget.held >= truth


def test_room_is_there_at_once_while_nothing_waits() -> None:
    """The future of room() has ended when a put would not wait."""
    assert make_store(SteppedLane()).room().done()


def test_room_ends_when_the_lane_has_applied_a_run() -> None:
    """With eight runs waiting the future of room() ends with the first one that is applied."""
    lane = SteppedLane()
    store = make_store(lane)
    fill_until_waiting(store, MAX_WAITING)
    room, cancelled = store.room(), store.room()
    cancelled.cancel()
    assert not room.done()
    lane.step()
    assert room.done()
    assert room.result() is None


def test_room_raises_when_the_store_ends() -> None:
    """The future of room() fails when the store is closed while it waits."""
    lane = SteppedLane()
    store = make_store(lane)
    fill_until_waiting(store, MAX_WAITING)
    room = store.room()
    closing = in_thread(store.close)
    assert isinstance(room.exception(PATIENCE_S), StoreClosedError)
    while not closing.done():
        if lane.queue:
            lane.step()


def test_record_limit_is_exact_and_changes_nothing() -> None:
    """A record of one byte more than max_record_bytes is refused and one of exactly that is stored."""
    store = make_store(SteppedLane(), max_record_bytes=1_000)
    fill(store, range(50), bytes(100))
    store.put(b"k" * 10, bytes(990))
    with pytest.raises(RecordTooLargeError, match=r"'s'.*b'kkkkkkkkkk'.*1001 bytes.*1000") as caught:
        store.put(b"k" * 10, bytes(991))
    assert (caught.value.size, caught.value.limit) == (1_001, 1_000)
    assert store.get(b"k" * 10) == bytes(990)


@pytest.mark.parametrize("limit", [10, 100, 4_000, 100_000])
def test_record_limit_holds_at_any_fill(limit: int) -> None:
    """Whatever room a block has left, no record above max_record_bytes gets in."""
    store = make_store(SteppedLane(), max_record_bytes=limit)
    for number in range(300):
        store.put(b"%02d" % (number % 100), bytes(number % (limit - 1)))
        with pytest.raises(RecordTooLargeError):
            store.put(b"xx", bytes(limit - 1))


@pytest.mark.parametrize("bad", ["text", 1, None, bytearray(b"x"), memoryview(b"x")])
def test_only_bytes_are_taken(bad: Any) -> None:
    """A key, value or bound that is not bytes raises TypeError that names the store, and changes nothing."""
    store = make_store(SteppedLane())
    calls: list[Callable[[], object]] = [
        lambda: store.put(bad, b"v"),
        lambda: store.put(b"k", bad),
        lambda: store.delete(bad),
    ]
    if bad is not None:
        calls += [lambda: store.scan(bad), lambda: store.scan(None, bad)]
    if not isinstance(bad, bytearray):  # a dict says itself that it has no hash
        calls += [lambda: store.get(bad), lambda: store.get_many([bad])]
    for call in calls:
        with pytest.raises(TypeError, match="'s'"):
            call()
    assert not store.has_open_run()


def test_scan_shows_the_moment_of_the_call() -> None:
    """A scan that was not begun shows the store as it was, after puts, deletes, closes, applies and many new keys."""
    lane = SteppedLane()
    store = make_store(lane)
    fill(store, range(0, 3_000, 3))
    store.close_run()
    lane.drain()
    fill(store, range(0, 3_000, 7), b"waiting")
    store.close_run()
    fill(store, range(0, 3_000, 11), b"open")
    store.delete(key(9))
    expected = {key(n): b"v" for n in range(0, 3_000, 3)} | {key(n): b"waiting" for n in range(0, 3_000, 7)}
    expected |= {key(n): b"open" for n in range(0, 3_000, 11)}
    del expected[key(9)]
    up, down = store.scan(), store.scan(reverse=True)
    part = store.scan(key(100), key(2_000))
    part_down = store.scan(key(100), key(2_000), True)
    fill(store, range(5_000), b"later")
    store.close_run()
    lane.drain()
    for number in range(3_000):
        store.delete(key(number))
    store.close_run()
    within = [item for item in sorted(expected.items()) if key(100) <= item[0] < key(2_000)]
    assert list(up) == sorted(expected.items())
    assert list(down) == sorted(expected.items(), reverse=True)
    assert list(part) == within
    assert list(part_down) == within[::-1]


def test_scan_lays_few_changes_over_many_entries() -> None:
    """A scan over a large engine with a few replaced, new and deleted keys is right in both directions."""
    lane = SteppedLane()
    store = make_store(lane)
    fill(store, range(0, 10_000, 2))
    store.close_run()
    lane.drain()
    expected = {key(n): b"v" for n in range(0, 10_000, 2)}
    for number in range(0, 10_000, 501):
        store.put(key(number), b"changed")
        expected[key(number)] = b"changed"
    for number in (0, 2_000, 2_002, 9_998):
        store.delete(key(number))
        del expected[key(number)]
    store.delete(key(7))
    assert list(store.scan()) == sorted(expected.items())
    assert list(store.scan(reverse=True)) == sorted(expected.items(), reverse=True)


def test_scan_of_an_empty_range_is_empty() -> None:
    """Bounds that enclose nothing give nothing, in both directions."""
    store = make_store(SteppedLane())
    fill(store, range(10))
    for reverse in (False, True):
        assert list(store.scan(key(5), key(5), reverse)) == []
        assert list(store.scan(key(6), key(5), reverse)) == []
        assert list(store.scan(key(50), None, reverse)) == []
        store.scan(key(6), key(5), reverse).close()  # type: ignore[attr-defined]


def test_closed_store_ends_its_scans_at_once() -> None:
    """A scan in the middle of a piece raises StoreClosedError at its next step, dirty or clean, begun or not."""
    workers = Workers("test", 1)
    store = make_store(workers.lane(), MemoryEngine())
    fill(store, range(5_000))
    store.close_run()
    fill(store, range(0, 5_000, 10), b"open")
    begun, untouched = store.scan(), store.scan()
    for _ in range(700):
        next(begun)
    store.close()
    for scan in (begun, untouched):
        with pytest.raises(StoreClosedError, match="is closed"):
            next(scan)
    workers.close(PATIENCE_S)


def test_clean_scan_ends_with_its_store() -> None:
    """A scan that the engine alone serves raises StoreClosedError once the store is closed."""
    workers = Workers("test", 1)
    lane = workers.lane()
    store = make_store(lane, MemoryEngine())
    fill(store, range(5_000))
    store.close_run()
    lane.submit(lambda: None).result(PATIENCE_S)
    scan = store.scan()
    next(scan)
    store.close()
    with pytest.raises(StoreClosedError):
        next(scan)
    workers.close(PATIENCE_S)


def test_closing_a_scan_closes_the_engines() -> None:
    """close() on a scan closes the engine's iterator under it."""

    class Watched(MemoryEngine):
        closed = 0

        def scan(self, start: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
            inner = super().scan(start, stop, reverse)
            try:
                yield from inner
            finally:
                self.closed += 1

    engine = Watched()
    store = make_store(SteppedLane(), engine)
    fill(store, range(10))
    scan = store.scan()
    next(scan)
    scan.close()  # type: ignore[attr-defined]
    assert engine.closed == 1


def test_close_is_idempotent_and_drops_what_waits() -> None:
    """Closing twice is fine, runs that wait are not applied any more, and the budget is whole."""
    lane = SteppedLane()
    engine = SpyEngine()
    store = make_store(lane, engine)
    fill(store, range(100))
    store.close_run()
    store.put(b"open", b"x")
    closing = in_thread(store.close)
    while not closing.done():
        if lane.queue:
            lane.step()
    store.close()
    assert (engine.batches, store._budget.held) == ([], 0)
    for call in (lambda: store.get(b"a"), lambda: store.put(b"a", b"b"), store.close_run, store.scan):
        with pytest.raises(StoreClosedError, match="is closed"):
            call()


def test_close_has_a_deadline() -> None:
    """A close whose lane is stuck raises TransientError, and the lane closes the engine later."""
    lane = SteppedLane()
    engine = SpyEngine()
    store = make_store(lane, engine)
    with pytest.raises(TransientError, match="still at work"):
        store.close(timeout_s=0.0)
    lane.drain()
    with pytest.raises(StoreClosedError):
        engine.get(b"a")


def test_close_after_its_lane_has_ended_closes_the_engine() -> None:
    """A store whose worker threads are gone closes its engine itself."""
    workers = Workers("test", 1)
    engine = SpyEngine()
    store = make_store(workers.lane(), engine)
    workers.close(PATIENCE_S)
    store.close()
    with pytest.raises(StoreClosedError):
        engine.get(b"a")


def test_changes_lie_between_marks() -> None:
    """changes() gives the newest change of each key between two marks, sorted, deletes included."""
    lane = SteppedLane()
    store = make_store(lane, keep_changes=True)
    store.put(b"a", b"1")
    store.put(b"b", b"1")
    first = store.close_run()
    store.put(b"b", b"2")
    store.delete(b"a")
    second = store.close_run()
    store.put(b"b", b"3")
    third = store.close_run()
    store.put(b"c", b"open")
    lane.drain()
    assert list(store.changes(0, first)) == [(b"a", b"1"), (b"b", b"1")]
    assert list(store.changes(first, second)) == [(b"a", None), (b"b", b"2")]
    assert list(store.changes(0, third)) == [(b"a", None), (b"b", b"3")]
    assert list(store.changes(third, third)) == []


def test_forgotten_changes_are_not_found() -> None:
    """Changes up to a forgotten mark are gone, later ones stay, and asking for the gone ones is an error."""
    lane = SteppedLane()
    store = make_store(lane, keep_changes=True)
    store.put(b"a", b"1")
    first = store.close_run()
    store.put(b"b", b"2")
    second = store.close_run()
    store.forget(first)
    assert list(store.changes(first, second)) == [(b"b", b"2")]
    with pytest.raises(StateNotFoundError, match="forgotten"):
        store.changes(0, second)


def test_store_that_keeps_no_changes_says_so() -> None:
    """changes() without keep_changes is an error, and forget() is fine."""
    store = make_store(SteppedLane())
    store.forget(3)
    with pytest.raises(ValueError, match="keeps no changes"):
        store.changes(0, 1)


def test_kept_changes_spill_to_files_and_read_the_same(tmp_path: Path) -> None:
    """Kept runs above the bound move to change files that never reach across a mark, and the changes stay the same."""
    lane = SteppedLane()
    store = make_store(lane, keep_changes=True, spill_directory=tmp_path / "spill", keep_bytes=100_000)
    model: dict[bytes, bytes | None] = {}
    marks: list[int] = [0]
    models: list[dict[bytes, bytes | None]] = [{}]
    for commit in range(6):
        since: dict[bytes, bytes | None] = {}
        for number in range(commit * 50, commit * 50 + 9_000):
            value = None if number % 5 == commit else b"%d" % commit
            since[key(number)] = value
            store.delete(key(number)) if value is None else store.put(key(number), value)
        marks.append(store.close_run())
        models.append(since)
        if commit != 3:
            lane.drain()
        model |= since
    lane.drain()
    assert len(list((tmp_path / "spill").iterdir())) >= 6
    assert sum(run.size for run in store._kept._pieces if hasattr(run, "entries")) <= 100_000  # type: ignore[union-attr]
    assert list(store.changes(0, marks[-1])) == sorted(model.items())
    for place in range(1, len(marks)):
        assert list(store.changes(marks[place - 1], marks[place])) == sorted(models[place].items())
    store.put(b"unapplied", b"x")
    mark = store.close_run()
    assert list(store.changes(marks[-2], mark)) == sorted((models[-1] | {b"unapplied": b"x"}).items())
    store.forget(mark)
    assert list((tmp_path / "spill").iterdir()) == []


def test_what_was_applied_lately_is_not_read_from_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest two applied runs answer, the newer one first and its deletions too; older ones are the engine's."""
    engine = SpyEngine()
    store = make_store(ImmediateLane(), engine)
    for writes in ({b"a": b"1", b"b": b"1"}, {b"b": b"2", b"c": b"2"}, {b"c": None, b"d": b"3"}):
        for name, value in writes.items():
            store.delete(name) if value is None else store.put(name, value)
        store.close_run()
    assert [store.get(name) for name in (b"b", b"c", b"d")] == [b"2", None, b"3"]
    assert engine.gets == 0
    assert (store.get(b"a"), engine.gets) == (b"1", 1)
    asked: list[Sequence[bytes]] = []
    monkeypatch.setattr(engine, "get_many", lambda keys: asked.append(keys) or [b"engine's"] * len(keys))
    assert store.get_many([b"a", b"b", b"c", b"z"]) == [b"engine's", b"2", None, b"engine's"]
    assert asked == [[b"a", b"z"]]


def test_applied_run_is_found_before_it_stops_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that takes no lock meets a run among those that wait, or among the applied ones, at every moment."""
    store = make_store(ImmediateLane())
    found: list[bytes | None] = []
    drop = WaitingRuns.drop_oldest

    def spied(waiting: WaitingRuns) -> None:
        found.append(store._applied.layers[0].get(b"a"))
        drop(waiting)

    monkeypatch.setattr(WaitingRuns, "drop_oldest", spied)
    for value in (b"1", b"2"):
        store.put(b"a", value)
        store.close_run()
    assert found == [b"1", b"2"]


def test_applied_runs_take_no_more_memory_than_the_job_has_for_them() -> None:
    """A run that finds none hides no older value, and what a store held goes to others when it is closed."""
    budget = BufferBudget(8 * 700)  # an eighth of it holds four records
    first, second = (BufferedStore(name, SpyEngine(), ImmediateLane(), budget) for name in ("a", "b"))

    def written(store: BufferedStore, value: bytes, count: int) -> int:
        fill(store, range(count), value)
        store.close_run()
        assert [store.get(key(number)) for number in range(count)] == [value] * count
        return len(store._applied.layers)

    assert [written(first, b"1", 2), written(first, b"2", 2), written(first, b"3", 4)] == [1, 2, 1]
    assert [written(second, b"1", 1), written(first, b"4", 20), written(second, b"2", 1)] == [0, 0, 1]
    assert written(first, b"5", 4) == 0
    second.close()
    assert written(first, b"6", 4) == 1
    first.close()
    assert budget.recent._left == 700


def test_kept_changes_stay_in_memory_while_the_job_has_some_left(tmp_path: Path) -> None:
    """Stores share a quarter of the job's memory for kept changes: who finds it taken spills, until it comes back."""
    lane, budget = ImmediateLane(), BufferBudget(4 * MIB)
    options: dict[str, Any] = {"keep_changes": True, "spill_directory": tmp_path, "keep_bytes": 1_000}
    first, second = (BufferedStore(name, SpyEngine(), lane, budget, **options) for name in ("a", "b"))

    def written(store: BufferedStore, count: int) -> int:
        fill(store, range(count))
        return store.close_run()

    mark = written(first, 4_000)
    assert list(tmp_path.iterdir()) == []
    written(second, 4_000)
    assert len(list(tmp_path.iterdir())) == 1
    assert list(second.changes(0, second.mark)) == list(first.changes(0, mark))
    first.forget(mark)
    written(second, 4_000)
    assert len(list(tmp_path.iterdir())) == 1
    second.close()
    written(first, 4_000)
    assert len(list(tmp_path.iterdir())) == 1


def test_what_is_kept_beyond_a_bound_is_never_more_than_allowed(tmp_path: Path) -> None:
    """However stores write, forget and spill: what they keep beyond their bounds fits, and all of it comes back."""
    lane, budget = ImmediateLane(), BufferBudget(4 * MIB)
    options: dict[str, Any] = {"keep_changes": True, "spill_directory": tmp_path, "keep_bytes": 10_000}
    stores = [BufferedStore(str(number), SpyEngine(), lane, budget, **options) for number in range(3)]
    dice = random.Random(5)
    for _ in range(200):
        store = dice.choice(stores)
        fill(store, range(dice.randrange(2_000)))
        mark = store.close_run()
        if dice.random() < 0.3:
            store.forget(dice.randrange(mark + 1))
        kept = [each._kept._applied_runs() for each in stores if each._kept is not None]
        beyond = [max(0, sum(run.size for run in runs) - 10_000) for runs in kept]
        assert MIB - sum(beyond) == budget.kept._left >= 0
    for store in stores:
        store.forget(store.mark)
    assert budget.kept._left == MIB


def test_file_of_spilled_changes_never_reaches_across_a_mark(tmp_path: Path) -> None:
    """Runs of several commits that spill at once are still told apart by their marks."""
    lane = SteppedLane()
    store = make_store(lane, keep_changes=True, spill_directory=tmp_path, keep_bytes=100_000)
    marks = [0]
    for commit in range(8):
        fill(store, range(100), b"%d" % commit * 100)
        marks.append(store.close_run())
        lane.drain()
    files = list(tmp_path.iterdir())
    assert len(files) >= 4
    for commit in range(8):
        changes = list(store.changes(marks[commit], marks[commit + 1]))
        assert changes == [(key(number), b"%d" % commit * 100) for number in range(100)]


def test_spill_that_fails_ends_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change file that cannot be written is the store's failure, not a loss of changes."""
    lane = SteppedLane()
    store = make_store(lane, keep_changes=True, spill_directory=tmp_path, keep_bytes=1_000)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(change_file, "write", full)
    fill(store, range(100))
    mark = store.close_run()
    lane.drain()
    assert isinstance(store.failure, OSError)
    assert len(list(store.changes(0, mark))) == 100


def test_readers_never_lose_a_key_while_it_moves() -> None:
    """Threads that read without a pause see every key at its newest or a later value, through closes and applies."""
    workers = Workers("test", 1)
    store = make_store(workers.lane(), MemoryEngine())
    floor = [0]
    stop = threading.Event()

    def read() -> int:
        reads = 0
        while not stop.is_set():
            least = floor[0]
            value = store.get(b"counter")
            assert value is not None
            assert int(value) >= least
            scanned = dict(store.scan(b"counter", b"counter0"))
            assert int(scanned[b"counter"]) >= least
            reads += 1
        return reads

    store.put(b"counter", b"0")
    readers = [in_thread(read) for _ in range(3)]
    for number in range(1, 4_000):
        store.put(b"counter", b"%d" % number)
        floor[0] = number
        store.put(key(number), b"x")
        if number % 3 == 0:
            store.close_run()
    stop.set()
    assert all(reader.result(PATIENCE_S) > 0 for reader in readers)
    store.close()
    workers.close(PATIENCE_S)


def test_scan_on_another_thread_shows_one_moment() -> None:
    """Of two keys that are always written in turn, a scan on another thread never shows the second one ahead."""
    workers = Workers("test", 1)
    store = make_store(workers.lane(), MemoryEngine())
    stop = threading.Event()

    def look() -> int:
        looks = 0
        while not stop.is_set():
            for scan in (store.scan(), store.scan(b"a", b"c")):
                seen = dict(scan)
                first, second = int(seen.get(b"a", b"0")), int(seen.get(b"b", b"0"))
                assert first - 1 <= second <= first
                assert all(key(n) in seen for n in range(second)) or len(seen) < 3
            looks += 1
        return looks

    lookers = [in_thread(look) for _ in range(2)]
    for number in range(1, 3_000):
        store.put(b"a", b"%d" % number)
        store.put(key(number - 1), b"x")
        store.put(b"b", b"%d" % number)
        if number % 700 == 0:
            store.close_run()
    stop.set()
    assert all(looker.result(PATIENCE_S) > 0 for looker in lookers)
    store.close()
    workers.close(PATIENCE_S)


def test_short_scan_does_not_look_at_the_whole_open_run() -> None:
    """After a first scan, a short one over a full open run touches the keys in its range only."""
    store = make_store(SteppedLane())
    fill(store, range(5_000))
    list(store.scan())
    store.put(key(42), b"new")
    store.put(b"%08d+" % 42, b"fresh")
    within = store._open_keys.within(store._open, key(42), key(44))
    assert within is not None
    assert list(within[0]) == [key(42), b"%08d+" % 42, key(43)]
    assert list(store.scan(key(42), key(44))) == [(key(42), b"new"), (b"%08d+" % 42, b"fresh"), (key(43), b"v")]


@pytest.mark.parametrize("count", [10, 1_000])
def test_key_that_comes_while_values_are_read_spoils_the_moment(count: int) -> None:
    """A look at an open run to which another thread adds a key meanwhile gives nothing, so that the run is copied."""

    class Racing(dict[bytes, bytes | None]):
        def __getitem__(self, name: bytes) -> bytes | None:
            self[b"came"] = b"x"
            return super().__getitem__(name)

        def copy(self) -> dict[bytes, bytes | None]:
            self[b"came"] = b"x"
            return dict(self)

    entries = Racing({key(number): b"v" for number in range(count)})
    keys = OpenKeys()
    keys.remember(entries, sorted(entries))
    assert keys.within(entries, None, None) is None


def test_run_that_scans_must_copy_is_closed_early() -> None:
    """A scan over a thousand buffered keys closes their run within a block of puts; a scan over few does not."""
    lane = SteppedLane()
    store = make_store(lane)
    fill(store, range(3_000))
    list(store.scan(key(0), key(100)))
    fill(store, range(3_000, 4_000))
    assert store.mark == 0
    list(store.scan())
    list(store.scan())  # the first one found a thousand keys unsorted, and had to copy everything
    fill(store, range(4_000, 4_400))
    assert store.mark == 1


def test_closed_run_is_not_kept_by_its_sorted_keys() -> None:
    """Once a scanned run is closed and applied nothing holds its entries, and it was not sorted twice."""
    lane = SteppedLane()
    store = make_store(lane)
    fill(store, range(100, 0, -1))
    list(store.scan())
    store.close_run()
    assert store._waiting.runs[0]._keys == [key(number) for number in range(1, 101)]
    assert store._open_keys._state == ({}, [])


def test_piece_that_comes_after_the_close_is_not_given_out() -> None:
    """A piece that was fetched while another thread closed the store raises, whatever is in it."""

    def closed() -> None:
        raise StoreClosedError("closed")

    scan = scanned(iter([[(b"a", b"1")]]), Window(), iter(()), closed)
    with pytest.raises(StoreClosedError):
        next(scan)


def test_closed_store_lets_its_engine_go() -> None:
    """A closed store that is dropped is not kept alive by a cycle through the poisoned run."""
    import weakref

    store = make_store(SteppedLane())
    engine = weakref.ref(store.engine)
    with pytest.raises(TransientError):
        store.close(timeout_s=0.0)
    del store
    gc.collect()
    assert engine() is None
