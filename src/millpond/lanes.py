"""
Threads: serial lanes over a pool of workers, and a bounded pool for transfers.

All threads are daemons that a job makes when it opens and ends when it closes: an executor's threads would hold up the
interpreter's exit. A lane runs its work in the order in which it was submitted, one piece at a time, so that whoever
submits to one lane needs no lock between the pieces.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

from millpond.errors import StoreClosedError, TransientError
from millpond.spi import Transfers

T = TypeVar("T")
R = TypeVar("R")

RESERVE_TIMEOUT_S = 600.0


def run_into(future: Future[T], work: Callable[[], T]) -> None:
    """Do *work* and put its result or its error into *future*; never raises."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the one who waits
        future.set_exception(error)


class Workers:
    """A fixed number of daemon threads that take pieces of work in turn."""

    def __init__(self, name: str, count: int) -> None:
        """Start *count* threads called after *name*."""
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._closing = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, name=f"millpond-{name}-{number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do *work* on some thread; never blocks."""
        future: Future[T] = Future()
        self.call(lambda: run_into(future, work))
        return future

    def call(self, work: Callable[[], None]) -> None:
        """Do *work*, which must not raise, on some thread."""
        if not self.call_later(work):
            raise StoreClosedError("the job is closed")

    def call_later(self, work: Callable[[], None]) -> bool:
        """Do *work* on some thread unless the pool is closed; say whether it will be done."""
        with self._closing:  # nothing may be queued behind the end
            if not self._closed:
                self._work.put(work)
            return not self._closed

    def lane(self) -> Lane:
        """Give a new serial queue over these threads."""
        return Lane(self)

    def close(self, timeout_s: float) -> bool:
        """Let what is queued end, then end the threads; False when some still ran after *timeout_s* seconds."""
        with self._closing:
            self._closed = True
            for _ in self._threads:
                self._work.put(None)
        deadline = _Deadline(timeout_s)
        for thread in self._threads:
            thread.join(deadline.left())
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # a frame that waits for the next piece must not keep the last one's results alive


class Lane:
    """A serial queue: one piece at a time, first come, first served. Submitting never blocks; any thread may."""

    def __init__(self, workers: Workers) -> None:
        """Make an empty lane over *workers*."""
        self._workers = workers
        self._lock = threading.Lock()
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._busy = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """
        Do *work* after all that was submitted before.

        Raises:
            StoreClosedError: The job is closed; *work* will not be done.
        """
        future: Future[T] = Future()
        with self._lock:
            self._queue.append((future, work))
            # Whoever is interrupted here has at worst left a piece that waits for the next one's turn.
            if not self._busy and not self._workers.call_later(self._step):
                self._queue.pop()
                raise StoreClosedError("the job is closed")
        return future

    def _step(self) -> None:
        # One piece a turn: a lane with much to do does not keep the other lanes of the pool waiting. A pool that
        # closes takes no more turns, so what was queued before ends here.
        while (piece := self._begin()) is not None:
            run_into(*piece)
            del piece  # it may hold much
            if not self._end() or self._workers.call_later(self._step):
                return

    def _begin(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Take the first piece, unless there is none or another turn is at work."""
        with self._lock:
            if self._busy or not self._queue:
                return None
            self._busy = True
            return self._queue.popleft()

    def _end(self) -> bool:
        """Say whether there is another piece."""
        with self._lock:
            self._busy = False
            return bool(self._queue)


class _Deadline:
    """Seconds that are left of a timeout."""

    def __init__(self, timeout_s: float) -> None:
        import time

        self._clock = time.monotonic
        self._end = self._clock() + timeout_s

    def left(self) -> float:
        return max(0.0, self._end - self._clock())


class TransferPool(Transfers):
    """The job's bounded pool for leaf I/O, and its bound of the bytes that are in memory for it."""

    def __init__(self, threads: int, memory: int) -> None:
        """Start *threads* workers that hold at most *memory* bytes together."""
        self.threads = threads
        self._workers = Workers("transfer", threads)
        self._memory = memory
        self._held = 0
        self._freed = threading.Condition()

    def map(self, work: Callable[[T], R], items: Iterable[T], check: Callable[[], None] | None = None) -> list[R]:
        """Do *work* on each of *items*, several at once; one alone is done right here."""
        pending = list(items)
        if len(pending) == 1:
            return [_checked(work, pending[0], check)]
        stop = threading.Event()
        return _gather([self._workers.submit(_stoppable(work, item, check, stop)) for item in pending])

    def reserve(self, size: int) -> AbstractContextManager[None]:
        """Wait until *size* bytes fit, and hold them for the block; one that is larger than the bound goes alone."""
        return self._reserved(min(size, self._memory))

    @contextmanager
    def _reserved(self, size: int) -> Iterator[None]:
        with self._freed:
            if not self._freed.wait_for(lambda: self._held + size <= self._memory, RESERVE_TIMEOUT_S):
                raise TransientError(
                    f"no {size} bytes of transfer memory came free in {RESERVE_TIMEOUT_S:.0f} s (job.transfer_memory "
                    f"is {self._memory}, {self._held} are in use)"
                )
            self._held += size
        try:
            yield
        finally:
            with self._freed:
                self._held -= size
                self._freed.notify_all()

    def close(self, timeout_s: float) -> bool:
        """End the threads; False when some still ran after *timeout_s* seconds."""
        return self._workers.close(timeout_s)


def _checked(work: Callable[[T], R], item: T, check: Callable[[], None] | None) -> R:
    if check is not None:
        check()
    return work(item)


def _stoppable(
    work: Callable[[T], R], item: T, check: Callable[[], None] | None, stop: threading.Event
) -> Callable[[], R | None]:
    """Bind *work* to *item*, such that nothing more begins once one piece has failed."""

    def piece() -> R | None:
        if stop.is_set():
            return None
        try:
            return _checked(work, item, check)
        except BaseException:
            stop.set()
            raise

    return piece


def _gather(futures: list[Future[Any]]) -> list[Any]:
    """Wait for all of *futures*, then raise the first error in order or give all results."""
    errors = [error for error in (future.exception() for future in futures) if error is not None]
    if errors:
        raise errors[0]
    return [future.result() for future in futures]
