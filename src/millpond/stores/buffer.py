"""A store of bytes: a write buffer of small runs in front of an engine, to which a lane applies them."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar, overload

from millpond.errors import StoreClosedError, TransientError
from millpond.spi import Change, StoreEngine
from millpond.stores.blocks import FEW_KEYS, LARGEST_BLOCK, MANY_KEYS, SMALLEST_BLOCK, held_by, next_block
from millpond.stores.budget import BufferBudget
from millpond.stores.changes import KEEP_BYTES, KeptChanges
from millpond.stores.merge import Cursor, Item, overlaid
from millpond.stores.openkeys import OpenKeys
from millpond.stores.refusals import RecordTooLargeError, buffer_full, not_bytes
from millpond.stores.runs import (
    MAX_WAITING,
    MISSING,
    RECORD_OVERHEAD,
    RUN_BYTES,
    RUN_KEYS,
    AppliedRuns,
    Entries,
    Missing,
    Run,
    WaitingRuns,
)
from millpond.stores.scan import OpenScans, scanned

T = TypeVar("T")
Layer = tuple[Sequence[bytes], Mapping[bytes, bytes | None]]


class SerialLane(Protocol):
    """Does pieces of work one at a time, in the order in which they were submitted; see ``millpond.lanes.Lane``."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do *work* after all that was submitted before; never blocks."""
        ...


class _Ended(Entries):
    """Stands for the open run of a store that is over: every access raises, and a live store pays nothing for it."""

    def __init__(self, explain: Callable[[], StoreClosedError]) -> None:
        super().__init__()
        self._explain = explain

    def _refuse(self, *_: object) -> NoReturn:
        raise self._explain()

    get = __getitem__ = __setitem__ = __len__ = copy = _refuse


class BufferedStore:
    """
    One store's engine with its write buffer. One thread at a time writes; any thread reads; the lane applies.

    A write goes into the open run, a dict. A run is closed by ``close_run`` or by itself when it is full, and the lane
    applies it to the engine. A read asks the open run, the closed runs that wait, the newest that were applied, the
    engine.

    Attributes:
        name: The store's name.
        engine: Its database.
        mark: The number of the newest closed run; 0 before the first.
        failure: What ended the store: the engine refused a run. Everything raises StoreClosedError from then on.
        touched: Called on the writing thread before the first write behind a closed run, so that whoever commits a
            thousand stores need not ask each.
    """

    __slots__ = (
        "__weakref__",
        "_applied",
        "_budget",
        "_claimed",
        "_closed",
        "_copied_much",
        "_engine_get",
        "_kept",
        "_lane",
        "_limit",
        "_lock",
        "_open",
        "_open_keys",
        "_put_timeout_s",
        "_room",
        "_scans",
        "_submitted",
        "_waiting",
        "engine",
        "failure",
        "mark",
        "name",
        "touched",
    )

    def __init__(
        self,
        name: str,
        engine: StoreEngine,
        lane: SerialLane,
        budget: BufferBudget,
        *,
        keep_changes: bool = False,
        spill_directory: Path | None = None,
        keep_bytes: int = KEEP_BYTES,
        put_timeout_s: float = 60.0,
        max_record_bytes: int | None = None,
    ) -> None:
        """
        Put an empty buffer in front of *engine*, which now belongs to this store.

        Args:
            name: For errors.
            engine: Open.
            lane: Applies runs; shared with whoever makes images, so that an image holds whole runs.
            budget: Of the job.
            keep_changes: Keep runs for ``changes`` until ``forget``.
            spill_directory: Where kept changes go when they exceed *keep_bytes* in memory; None: nowhere.
            keep_bytes: The bound of applied runs that are kept in memory, beyond which ``budget.kept`` decides.
            put_timeout_s: How long a put may wait for the lane.
            max_record_bytes: The largest key and value together; None: no limit.
        """
        self.name = name
        self.engine = engine
        self.mark = 0
        self.failure: BaseException | None = None
        self.touched: Callable[[], object] | None = None
        self._engine_get = engine.get
        self._lane = lane
        self._budget = budget
        self._kept = KeptChanges(name, spill_directory, keep_bytes, budget.kept) if keep_changes else None
        self._put_timeout_s = put_timeout_s
        self._limit = max_record_bytes
        self._lock = threading.Lock()
        self._closed = False
        self._waiting = WaitingRuns()
        self._applied = AppliedRuns(budget.recent)
        self._scans = OpenScans()
        self._open: Entries = {}
        self._open_keys = OpenKeys()
        self._copied_much = False  # by a scan; a hint, so that any thread may set it
        self._claimed = self._room = self._submitted = 0

    # Reading: any thread.

    @overload
    def get(self, key: bytes) -> bytes | None: ...
    @overload
    def get(self, key: bytes, default: T) -> bytes | T: ...
    def get(self, key: bytes, default: Any = None) -> Any:
        """
        Give the value of *key*, or *default*.

        Raises:
            StoreClosedError: The store is closed, or has failed.
            TypeError: *key* is not bytes.
        """
        value: bytes | Missing | None = self._open.get(key, MISSING)
        if value is MISSING:
            waiting = self._waiting
            if waiting.runs:  # the usual case without a call: one index over all of them
                value = self._waiting_value(key) if waiting.recent else waiting.index.get(key, MISSING)
            if value is MISSING:
                for entries in self._applied.layers:
                    if (value := entries.get(key, MISSING)) is not MISSING:
                        break
                else:
                    if key.__class__ is not bytes:
                        raise not_bytes(self.name, "key", key)
                    value = self._engine_get(key)
        return default if value is None else value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Give the values of *keys*, in order; None for a missing one. Raises as ``get``."""
        found = [self._buffered(key) for key in keys]
        below = [place for place, value in enumerate(found) if value is MISSING]
        if below:
            for place, value in zip(below, self.engine.get_many([keys[place] for place in below]), strict=True):
                found[place] = value
        return found  # type: ignore[return-value]  # nothing is missing any more

    def _buffered(self, key: bytes) -> bytes | Missing | None:
        if key.__class__ is not bytes:
            raise not_bytes(self.name, "key", key)
        value: bytes | Missing | None = self._open.get(key, MISSING)
        if value is MISSING:
            value = self._waiting_value(key)
        for entries in self._applied.layers if value is MISSING else ():
            if (value := entries.get(key, MISSING)) is not MISSING:
                break
        return value

    def _waiting_value(self, key: bytes) -> bytes | Missing | None:
        """Give what the closed runs have for *key*. They are asked in the order in which data moves down."""
        waiting = self._waiting
        recent = waiting.recent
        if len(recent) > 1:
            with self._lock:
                waiting.make_index()
            recent = waiting.recent
        for entries in recent:
            if (value := entries.get(key, MISSING)) is not MISSING:
                return value
        return waiting.index.get(key, MISSING)

    def scan(self, start: bytes | None = None, stop: bytes | None = None, reverse: bool = False) -> Iterator[Item]:
        """
        Give the entries from *start* (inclusive) to *stop* (exclusive), in the order of the keys' bytes, or in reverse.

        Shows the store as it was when this was called, whatever is written, closed or applied meanwhile. The iterator
        is one thread's; it has ``close()``, and raises StoreClosedError once the store is closed.
        """
        for bound in (start, stop):
            if bound is not None and bound.__class__ is not bytes:
                raise not_bytes(self.name, "bound of a scan", bound)
        if start is not None and stop is not None and start >= stop:
            self._check()
            return scanned(iter(()), self._scans.window(), iter(()), self._check)
        with self._lock:  # no run closes or leaves meanwhile, so nothing newer can reach the engine
            entries = self._open
            newest = self._open_keys.within(entries, start, stop)
            copied = entries.copy() if newest is None else None
            runs = list(self._waiting.runs)
            below = self.engine.scan(start, stop, reverse)
        layers: list[Layer] = [(run.keys, run.entries) for run in runs]
        if copied is not None:
            newest = sorted(copied), copied
            with self._lock:
                if entries is self._open:
                    self._open_keys.remember(entries, newest[0])
        elif newest is not None and len(newest[0]) >= MANY_KEYS:
            self._copied_much = True
        layers += [] if newest is None else [newest]
        cursors = [cursor for layer in layers if (cursor := Cursor(*layer, start, stop, reverse))]
        if not cursors:
            return below
        return scanned(overlaid(below, cursors, reverse), self._scans.window(), below, self._check)

    # Writing: one thread at a time.

    def put(self, key: bytes, value: bytes) -> None:
        """
        Set *key* to *value*; may wait for the lane when the buffer is full, at most ``put_timeout_s`` seconds.

        Raises:
            TypeError: One of them is not bytes.
            RecordTooLargeError: They exceed ``max_record_bytes``.
            TransientError: The buffer was full for too long. Nothing was changed.
            StoreClosedError: The store is closed, or has failed.
        """
        if key.__class__ is not bytes or value.__class__ is not bytes:
            raise self._not_bytes(key, value)
        room = self._room - len(key) - len(value) - RECORD_OVERHEAD
        if room < 0:
            room = self._make_room(key, len(key) + len(value))
        self._open[key] = value
        self._room = room

    def delete(self, key: bytes) -> None:
        """Remove *key*; a missing one is fine. Waits and raises as ``put``."""
        if key.__class__ is not bytes:
            raise not_bytes(self.name, "key", key)
        room = self._room - len(key) - RECORD_OVERHEAD
        if room < 0:
            room = self._make_room(key, len(key))
        self._open[key] = None
        self._room = room

    def has_open_run(self) -> bool:
        """Say whether anything was written since the last run was closed."""
        return bool(self._open)

    def close_run(self) -> int:
        """
        Hand what was written so far to the lane, and give ``mark``; never waits, and takes as long for every size.

        Raises:
            StoreClosedError: The store is closed, or has failed.
        """
        self._check()
        if self._open:
            self._close_open_run()
        if self._submitted != self.mark:  # an interrupt hit the last closing before the lane was told
            self._submit_turn()
        if self._kept is not None:
            self._kept.mark(self.mark)
        return self.mark

    def room(self) -> Future[None]:
        """Give a future that ends when a put would not wait, or with the StoreClosedError that it would raise."""
        return self._budget.room(self.has_room)

    # The changes that no published checkpoint holds: any thread.

    def changes(self, since: int, until: int) -> Iterator[Change]:
        """
        Give what changed after the mark *since* up to the mark *until*: sorted, one change a key. Needs *keep_changes*.

        Raises:
            StateNotFoundError: They were forgotten.
            StateCorruptError: A change file is damaged.
        """
        if self._kept is None:
            raise ValueError(f"store {self.name!r} keeps no changes")
        return self._kept.between(since, until)

    def forget(self, until: int) -> None:
        """Drop the kept changes up to the mark *until*; without *keep_changes* there are none."""
        if self._kept is not None:
            self._kept.forget(until)

    # The lane's.

    def checkpoint(self, directory: Path) -> None:
        """Make *directory* (which does not exist) an image of the engine; on the lane."""
        self._check()
        self.engine.checkpoint(directory)

    def close(self, timeout_s: float = 30.0) -> None:
        """
        End the store and its scans, and close the engine once the lane lets go of it; what was not applied is dropped.

        Idempotent; any thread but the lane's.

        Raises:
            TransientError: The lane did not let go within *timeout_s* seconds. It closes the engine when it does.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            closed = self._end() if self.failure is None else 0
        self._give_back(closed)
        try:
            done = self._lane.submit(self.engine.close)
        except StoreClosedError:  # the lane's threads have ended
            self.engine.close()
            return
        try:
            done.result(timeout_s)
        except TimeoutError as error:
            if done.done():
                raise
            raise TransientError(
                f"store {self.name!r} is closed, but its database is still at work after {timeout_s:g} s"
            ) from error

    def end_in_child(self) -> None:
        """
        Let every access raise, in a forked child: the lane stayed behind. Takes no lock: the parent may hold it.

        The engine is never let go, not even at the child's end: a database that is freed flushes, with threads that the
        child has not, into files that are the parent's.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.engine))
        self._lock = threading.Lock()
        self._closed = True
        self._open = _Ended(self._explain)
        self._room = sys.maxsize  # so that a put finds out at once

    # How it is done.

    def _not_bytes(self, key: object, value: object) -> TypeError:
        return not_bytes(self.name, *(("value", value) if isinstance(key, bytes) else ("key", key)))

    def _check(self) -> None:
        if self._closed or self.failure is not None:
            raise self._explain()

    def _explain(self) -> StoreClosedError:
        if self.failure is None:
            return StoreClosedError(f"store {self.name!r} is closed: reopen its task")
        error = StoreClosedError(f"store {self.name!r} has failed ({self.failure!r}): reopen its task")
        error.__cause__ = self.failure
        return error

    def _end(self) -> int:
        """Let every further access raise; under the lock. Gives the bytes of the runs that were not applied."""
        self._open = _Ended(self._explain)
        self._scans.end()
        self._applied.end()
        return sum(run.size for run in self._waiting.runs)

    def _give_back(self, closed: int) -> None:
        """Return the memory of a store that is over, and let those who wait for it find out."""
        if self._kept is not None:
            self._kept.end()
        claimed, self._claimed = self._claimed, 0
        self._budget.give_back(closed, closed=True)
        self._budget.give_back(claimed, closed=False)

    def _close_open_run(self) -> None:
        """Close the open run and hand it to the lane."""
        claimed, size = self._claimed, self._claimed - self._room
        with self._lock:
            self._check()
            run = Run(self.mark + 1, self._open, size, self._open_keys.release(self._open))
            self._waiting.add(run)
            if self._kept is not None:
                self._kept.add(run)
            self._open = {}
            self.mark = run.number
            self._claimed = self._room = 0
            self._copied_much = False
        self._budget.hand_over(claimed, size)
        self._submit_turn()

    def _submit_turn(self) -> None:
        number = self.mark
        self._lane.submit(lambda: self._apply_until(number))
        self._submitted = number

    def _apply_until(self, number: int) -> None:
        """Apply the run *number*, and those before it that an interrupt left without a turn; on the lane."""
        while (run := self._next_run(number)) is not None:
            self._apply(run)

    def _next_run(self, until: int) -> Run | None:
        with self._lock:
            runs = self._waiting.runs
            if self._closed or self.failure is not None or not runs or runs[0].number > until:
                return None
            return runs[0]

    def _apply(self, run: Run) -> None:
        try:
            for batch in run.batches():
                if self._closed:
                    return
                self.engine.apply(batch)
            self._drop(run)
            if self._kept is not None:
                self._kept.spill(run.number)
        except BaseException as error:
            self._fail(error)
            raise

    def _drop(self, run: Run) -> None:
        with self._lock:
            if self._closed:
                return
            self._applied.add(run)  # before it leaves those that wait
            self._waiting.drop_oldest()
        self._budget.give_back(run.size, closed=True)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._closed or self.failure is not None:
                return
            self.failure = error
            closed = self._end()
        self._give_back(closed)

    def _make_room(self, key: bytes, size: int) -> int:
        """Find memory for a record of *size* bytes, closing the open run if it is full; give the room left after it."""
        self._check()
        if self.touched is not None and not self._open:
            self.touched()
        if self._limit is not None and size > self._limit:
            raise RecordTooLargeError(self.name, key, size, self._limit)
        deadline = time.monotonic() + self._put_timeout_s
        need = size + RECORD_OVERHEAD
        if self._open and self._is_full(need):
            self._close_full_run(deadline)
        block = self._claim(need, deadline)
        self._claimed += block
        return self._room + block - need

    def _is_full(self, need: int) -> bool:
        """Say whether the open run should be closed before it takes *need* bytes more."""
        used = self._claimed - self._room
        if len(self._open) > RUN_KEYS - FEW_KEYS or (used > LARGEST_BLOCK and self._budget.pressed):
            return True
        if self._copied_much and len(self._open) >= MANY_KEYS:  # a closed run is scanned without copying it
            return True
        return used + need > RUN_BYTES and self._recount() + need > RUN_BYTES // 2

    def _recount(self) -> int:
        """Count anew what the open run holds: values that were replaced are counted till now."""
        exact = sum(map(held_by, self._open.items()))
        surplus = self._claimed - self._room - exact
        self._claimed -= surplus
        self._budget.give_back(surplus, closed=False)
        return exact

    def _claim(self, need: int, deadline: float) -> int:
        """Take memory from the budget, so that *need* bytes fit into the open run; give how much was taken."""
        lacking = need - self._room
        block = max(lacking, next_block(self._claimed, self._room, len(self._open), self._limit))
        if self._budget.claim(block):
            return block
        if self._open:
            self._close_full_run(deadline)
        block = max(need, min(SMALLEST_BLOCK, self._limit or SMALLEST_BLOCK))
        self._wait(lambda: self._budget.may_pass(block), deadline)
        self._budget.overdraw(block)
        return block

    def _close_full_run(self, deadline: float) -> None:
        self._wait(lambda: len(self._waiting.runs) < MAX_WAITING, deadline)
        self._close_open_run()

    def _wait(self, until: Callable[[], bool], deadline: float) -> None:
        """Wait for the lane until *until* holds or the store is over."""
        if until():
            return

        def ready() -> bool:
            return self._closed or self.failure is not None or until()

        if not self._budget.wait(ready, deadline - time.monotonic()):
            waiting = [run.size for run in list(self._waiting.runs)]
            raise buffer_full(self.name, self._put_timeout_s, waiting, self._budget.held, self._budget.limit)
        self._check()

    def has_room(self) -> bool:
        """Say whether a put would not wait; raises the StoreClosedError that it would raise."""
        self._check()
        return len(self._waiting.runs) < MAX_WAITING and self._budget.may_pass(SMALLEST_BLOCK)
