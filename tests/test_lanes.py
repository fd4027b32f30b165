"""Lanes keep their order, pools bound what they hold, and nothing waits for ever."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import StoreClosedError
from millpond.lanes import TransferPool, Workers


@pytest.fixture
def workers():
    pool = Workers("test", 3)
    yield pool
    assert pool.close(10)


def test_a_lane_runs_its_work_in_order(workers):
    """What is submitted first is done first, although the pool has three threads."""
    lane, done = workers.lane(), []

    futures = [lane.submit(lambda n=n: done.append(n)) for n in range(500)]
    for future in futures:
        future.result(10)

    assert list(range(500)) == done


def test_pieces_of_a_lane_never_overlap(workers):
    """More turns are waiting than there are threads, and one piece is done at a time all the same."""
    lane, inside, overlaps = workers.lane(), [], []
    gate = threading.Event()
    holding = [workers.submit(lambda: gate.wait(10)) for _ in range(3)]

    def piece() -> None:
        inside.append(1)
        overlaps.append(len(inside))
        threading.Event().wait(0.001)
        inside.pop()

    futures = [lane.submit(piece) for _ in range(50)]
    gate.set()
    for future in (*holding, *futures):
        future.result(10)

    assert {1} == set(overlaps)


def test_lanes_do_not_wait_for_one_another(workers):
    """A lane that is stuck leaves the others of its pool going."""
    stuck, free = workers.lane(), workers.lane()
    gate = threading.Event()
    blocked = stuck.submit(lambda: gate.wait(10))

    assert "through" == free.submit(lambda: "through").result(10)
    gate.set()
    assert blocked.result(10)


def test_an_error_belongs_to_the_one_who_waits(workers):
    """A piece that fails neither ends the lane nor its thread."""
    lane = workers.lane()

    failed = lane.submit(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        failed.result(10)
    assert 3 == lane.submit(lambda: 3).result(10)


def test_closing_lets_the_queue_end():
    """What was queued before close is done; what comes later is refused."""
    pool = Workers("closing", 1)
    lane, gate = pool.lane(), threading.Event()
    first = lane.submit(lambda: gate.wait(10))
    second = lane.submit(lambda: "done")
    gate.set()

    assert pool.close(10)

    assert first.result(0) and second.result(0) == "done"
    with pytest.raises(StoreClosedError):
        pool.lane().submit(lambda: None)


def test_close_tells_of_a_thread_that_does_not_end():
    """A hung piece of work makes close say so instead of waiting for ever."""
    pool = Workers("hung", 1)
    gate = threading.Event()
    pool.submit(lambda: gate.wait(30))

    assert not pool.close(0.01)
    gate.set()


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(), max_size=30))
def test_map_gives_results_in_order(items):
    """The results stand in the order of the items, whoever was ready first."""
    pool = TransferPool(3, 100)

    assert [item + 1 for item in items] == pool.map(lambda item: item + 1, items)
    assert pool.close(10)


def test_map_begins_nothing_after_a_failure():
    """The first error stops what has not begun, and is raised when all that had begun has ended."""
    pool, begun = TransferPool(1, 100), []

    def work(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise ValueError("one")

    with pytest.raises(ValueError, match="one"):
        pool.map(work, range(5))
    assert [0, 1] == begun
    assert pool.close(10)


def test_a_check_stops_a_map():
    """A commit that is given up ends its transfers between two items."""
    pool = TransferPool(1, 100)

    def given_up() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        pool.map(lambda item: item, [1, 2, 3], given_up)
    assert pool.close(10)


def test_reserve_bounds_the_bytes_in_memory():
    """Two reservations that do not fit together follow one another; one beyond the bound goes alone."""
    pool = TransferPool(2, 100)
    held, entered = threading.Event(), threading.Event()

    def second() -> None:
        held.wait(10)
        with pool.reserve(60):
            entered.set()

    thread = threading.Thread(target=second)
    thread.start()
    with pool.reserve(1_000):
        held.set()
        assert not entered.is_set()
    assert entered.wait(10)
    thread.join(10)
    assert pool.close(10)
