"""Work that is done beside the caller's, so that two waits for a broker take as long as the longer one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Generic, TypeVar

from millpond.lanes import run_into

T = TypeVar("T")


class Beside(Generic[T]):
    """Some work, whose waits have their own deadlines, on a thread that ends with it. Any thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        """Begin *work*."""
        self._future: Future[T] = Future()
        self._thread = Thread(target=run_into, args=(self._future, work), name="millpond-changelog-beside", daemon=True)
        self._thread.start()

    def result(self) -> T:
        """Wait for the end of the work; give its result, or raise its error."""
        self._thread.join()
        return self._future.result()

    def end(self, timeout_s: float) -> None:
        """Wait for the end of the work, whose result nobody wants, for at most *timeout_s* seconds."""
        self._thread.join(timeout_s)
