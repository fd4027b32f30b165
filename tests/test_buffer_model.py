"""A buffered store against a plain dict: whatever is written, closed, applied and scanned, in whatever order."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from millpond.errors import StoreClosedError
from millpond.lanes import run_into
from millpond.spi import Change
from millpond.stores import blocks, buffer, merge, openkeys
from millpond.stores.budget import Allowance, BufferBudget
from millpond.stores.buffer import BufferedStore
from millpond.stores.memory import MemoryEngine

KEYS = [b"", b"\x00", b"a", b"a\x00", b"aa", b"ab", b"b", b"\xff", b"\xff\xff", *(b"k%02d" % n for n in range(30))]
keys = st.sampled_from(KEYS)
values = st.sampled_from([b"", b"1", b"2", b"x" * 50])
bounds = st.none() | keys


class PartialEngine(MemoryEngine):
    """Applies a batch in two halves, stops between them when told to, and fails when told to."""

    fails = False
    half: Sequence[Change] | None = None
    split = False

    def apply(self, changes: Sequence[Change]) -> None:
        if self.fails or self.split:
            super().apply(changes[: len(changes) // 2])
        if self.fails:
            raise OSError(5, "Input/output error")
        if not self.split:
            super().apply(changes)


class SteppedLane:
    """A lane that does its work when it is told to."""

    def __init__(self) -> None:
        self.queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self.queue.append((future, work))
        return future

    def step(self) -> None:
        run_into(*self.queue.popleft())


class BufferMachine(RuleBasedStateMachine):
    """Writes to a store and to a dict, keeps the dict's history for marks and open scans, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.begin()

    def begin(self) -> None:
        """Start with an empty store."""
        self.lane = SteppedLane()
        self.engine = PartialEngine("model")
        budget = BufferBudget(1 << 20)
        budget.kept = Allowance(3_000)  # so that kept changes are met in memory beyond the store's bound, and in files
        budget.recent = Allowance(1_500)  # so that some applied runs are read, and some find no memory
        self.store = BufferedStore(
            "model",
            self.engine,
            self.lane,
            budget,
            keep_changes=True,
            spill_directory=Path(self.folder.name) / "spill",
            keep_bytes=1_500,
            put_timeout_s=0.0,
        )
        self.model: dict[bytes, bytes] = {}
        self.written: dict[bytes, bytes | None] = {}
        self.marks: list[tuple[int, dict[bytes, bytes | None]]] = [(0, {})]
        self.forgotten = 0
        self.scans: list[tuple[Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]] = []

    def expected(self, start: bytes | None, stop: bytes | None, reverse: bool) -> list[tuple[bytes, bytes]]:
        chosen = [
            (key, value)
            for key, value in self.model.items()
            if (start is None or key >= start) and (stop is None or key < stop)
        ]
        return sorted(chosen, reverse=reverse)

    @rule(key=keys, value=values)
    def put(self, key: bytes, value: bytes) -> None:
        if len(self.store._waiting.runs) < 8 or len(self.store._open) < 4:
            self.store.put(key, value)
            self.model[key] = self.written[key] = value

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        if len(self.store._waiting.runs) < 8 or len(self.store._open) < 4:
            self.store.delete(key)
            self.model.pop(key, None)
            self.written[key] = None

    @rule(count=st.integers(1, 12), value=values)
    def put_many(self, count: int, value: bytes) -> None:
        for key in KEYS[-count:]:
            self.put(key, value)

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.model.get(key)

    @rule(wanted=st.lists(keys, max_size=6))
    def get_many(self, wanted: list[bytes]) -> None:
        assert self.store.get_many(wanted) == [self.model.get(key) for key in wanted]

    @rule()
    def get_all(self) -> None:
        assert self.store.get_many(KEYS) == [self.model.get(key) for key in KEYS]

    @rule()
    def close_run(self) -> None:
        mark = self.store.close_run()
        if mark == self.marks[-1][0]:
            assert not self.written
        else:
            self.marks.append((mark, self.written))
            self.written = {}

    @precondition(lambda self: self.lane.queue)
    @rule()
    def apply(self) -> None:
        self.lane.step()

    @precondition(lambda self: self.lane.queue)
    @rule()
    def apply_half(self) -> None:
        """Leave a run half applied, as a scan or a get may find it, and apply it wholly at the next step."""
        if self.store._waiting.runs:
            self.engine.split = True
            for batch in self.store._waiting.runs[0].batches():
                self.engine.apply(batch)
            self.engine.split = False

    @rule(start=bounds, stop=bounds, reverse=st.booleans(), steps=st.integers(0, 5))
    def open_scan(self, start: bytes | None, stop: bytes | None, reverse: bool, steps: int) -> None:
        scan = self.store.scan(start, stop, reverse)
        expected = self.expected(start, stop, reverse)
        assert list(islice(scan, steps)) == expected[:steps]
        self.scans.append((scan, expected[steps:]))

    @precondition(lambda self: self.scans)
    @rule(data=st.data())
    def end_scan(self, data: st.DataObject) -> None:
        scan, expected = self.scans.pop(data.draw(st.integers(0, len(self.scans) - 1)))
        assert list(scan) == expected

    @rule(data=st.data())
    def changes(self, data: st.DataObject) -> None:
        since = data.draw(st.integers(self.forgotten, len(self.marks) - 1))
        until = data.draw(st.integers(since, len(self.marks) - 1))
        merged: dict[bytes, bytes | None] = {}
        for _, written in self.marks[since + 1 : until + 1]:
            merged |= written
        assert list(self.store.changes(self.marks[since][0], self.marks[until][0])) == sorted(merged.items())

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        self.forgotten = data.draw(st.integers(self.forgotten, len(self.marks) - 1))
        self.store.forget(self.marks[self.forgotten][0])

    @precondition(lambda self: len(self.marks) > 3 and self.lane.queue)
    @rule()
    def fail(self) -> None:
        self.engine.fails = True
        self.lane.step()
        assert self.store.failure is not None
        with pytest.raises(StoreClosedError):
            self.store.get(b"a")
        with pytest.raises(StoreClosedError):
            self.store.put(b"a", b"")
        assert self.store._budget.held == 0
        self.begin()

    @invariant()
    def budget_is_bounded(self) -> None:
        assert 0 <= self.store._budget.held <= 1 << 20

    def teardown(self) -> None:
        self.close_run()
        while self.lane.queue:
            self.lane.step()
        assert list(self.engine.scan(None, None, False)) == sorted(self.model.items())
        assert self.store._budget.held == 0
        for scan, expected in self.scans:
            assert list(scan) == expected
        self.folder.cleanup()


def check(examples: int) -> None:
    run_state_machine_as_test(
        BufferMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def test_store_equals_a_dict_when_every_bound_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with tiny runs and pieces equals a dict with a history, through indexes, scans, spills and failures."""
    monkeypatch.setattr(buffer, "RUN_KEYS", 12)
    monkeypatch.setattr(blocks, "RUN_KEYS", 12)
    monkeypatch.setattr(buffer, "FEW_KEYS", 2)
    monkeypatch.setattr(openkeys, "_FEW", 4)
    monkeypatch.setattr(openkeys, "_MANY", 4)
    monkeypatch.setattr(merge, "PIECE", 3)
    monkeypatch.setattr(merge, "_FIRST_PIECE", 2)
    check(120)


def test_store_equals_a_dict() -> None:
    """A store with the bounds that it really has equals a dict with a history."""
    check(40)
