"""
The memory that all write buffers of a job may hold together.

A store claims memory for its open run in blocks, hands it over when the run is closed, and the memory comes back when
the run is applied. Only closed runs can be waited for: an open run belongs to a thread that may never write again, so a
store whose job has no closed run left is let through, with the smallest block. The bytes held stay therefore below the
limit plus one such block (or one record, if that is larger) for each store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future


class Allowance:
    """Bytes that are taken while there are some, and never waited for; any thread."""

    def __init__(self, limit: int) -> None:
        """Allow *limit* bytes."""
        self._left = limit
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Take *size* bytes if they are left, and say whether they were."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        """Return *size* bytes."""
        with self._lock:
            self._left += size


class BufferBudget:
    """
    Bytes of all runs of all stores of a job; any thread may call any method.

    Attributes:
        limit: So many are allowed.
        kept: What applied runs, whose changes no checkpoint holds yet, may take of memory beyond their stores' own
            bounds: a quarter more.
        recent: What applied runs may take of memory that are read in place of the engine: an eighth more.
    """

    def __init__(self, limit: int) -> None:
        """Allow *limit* bytes of keys, values and what it takes to keep them."""
        if limit <= 0:
            raise ValueError(f"a buffer of {limit} bytes holds nothing")
        self.limit = limit
        self.kept = Allowance(limit // 4)
        self.recent = Allowance(limit // 8)
        self._held = 0
        self._closed = 0
        self._changed = threading.Condition()
        self._rooms: list[tuple[Callable[[], bool], Future[None]]] = []

    @property
    def held(self) -> int:
        """Give the bytes of all runs, open and closed."""
        return self._held

    @property
    def pressed(self) -> bool:
        """Say whether more than seven eighths are taken: then open runs should be closed early."""
        return self._held > self.limit - self.limit // 8

    def may_pass(self, size: int) -> bool:
        """Say whether *size* bytes fit, or waiting for them would be in vain because no closed run is left."""
        return self._held + size <= self.limit or self._closed <= 0

    def claim(self, size: int) -> bool:
        """Take *size* bytes for an open run if they fit, and say whether they did."""
        with self._changed:
            if self._held + size > self.limit:
                return False
            self._held += size
            return True

    def overdraw(self, size: int) -> None:
        """Take *size* bytes for an open run, whether they fit or not."""
        with self._changed:
            self._held += size

    def hand_over(self, claimed: int, size: int) -> None:
        """Turn an open run's *claimed* bytes into a closed run of *size* bytes."""
        with self._changed:
            self._held += size - claimed
            self._closed += size
        if size < claimed:
            self.wake()

    def give_back(self, size: int, *, closed: bool) -> None:
        """Return *size* bytes of a run that is applied (*closed*), or of an open one."""
        with self._changed:
            self._held -= size
            if closed:
                self._closed -= size
        self.wake()

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until *until* holds, at most *timeout_s* seconds; say whether it does. It must not block."""
        with self._changed:
            return self._changed.wait_for(until, timeout_s)

    def wake(self) -> None:
        """Let everybody who waits look again."""
        with self._changed:
            self._changed.notify_all()
            rooms, self._rooms = self._rooms, []
        # A future calls strangers when it ends: not under the lock.
        waiting = [room for room in rooms if not _ended(*room)]
        if waiting:
            with self._changed:
                self._rooms += waiting

    def room(self, until: Callable[[], bool]) -> Future[None]:
        """Give a future that ends when *until* holds, or with what it raises."""
        future: Future[None] = Future()
        with self._changed:
            self._rooms.append((until, future))
        self.wake()
        return future


def _ended(until: Callable[[], bool], future: Future[None]) -> bool:
    """End *future* if *until* holds or raises; say whether it has ended."""
    try:
        if not (future.cancelled() or until()):
            return False
    except Exception as error:  # noqa: BLE001 - it belongs to the one who waits for the future
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
        return True
    if future.set_running_or_notify_cancel():
        future.set_result(None)
    return True
