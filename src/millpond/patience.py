"""Waiting for calls that may hang: with a deadline, and an end when the job is closed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Protocol, TypeVar

from millpond.clock import Clock
from millpond.errors import StoreClosedError, TransientError
from millpond.lanes import Workers

T = TypeVar("T")


class Asking(Protocol):
    """Does a call that may hang, and gives its result."""

    def __call__(self, call: Callable[[], T], doing: str) -> T:
        """Do *call*; *doing* says in a message what it is."""
        ...


def directly(call: Callable[[], T], doing: str) -> T:
    """Do *call* right here, however long it takes."""
    return call()


class Patience:
    """
    Waits for the calls of one opening, one after the other, on a thread that nobody needs if one of them hangs.

    Attributes:
        working: Futures of the calls that were given up; each still runs until it has ended.
        closing: Ends when nobody wants the opening any more.
    """

    def __init__(self, clock: Clock, timeout_s: float | None, closing: Future[None], what: str) -> None:
        """
        Wait *timeout_s* seconds from now for all calls together, None: for ever; *what* says what it is all for.

        *closing* ends when nobody wants it any more: the job is closed, or the host gave this opening up.
        """
        self.working: list[Future[Any]] = []
        self._clock = clock
        self._deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        self.closing = closing
        self._what = what
        self._workers = Workers("opening", 1)

    def left(self) -> float | None:
        """Give the seconds that are left; None: there is no limit."""
        return None if self._deadline is None else max(0.0, self._deadline - self._clock.monotonic())

    def ask(self, call: Callable[[], T], doing: str) -> T:
        """
        Do *call*, and give what it gives or raise what it raises.

        Raises:
            TransientError: The time is over.
            StoreClosedError: The job was closed meanwhile.
        """
        return self._await(self._workers.submit(call), doing)

    def make(self, call: Callable[[], T], doing: str, let_go: Callable[[T], object]) -> T:
        """Like ``ask``, for a *call* that makes something: what comes too late is handed to *let_go*."""
        made = self._workers.submit(call)
        try:
            return self._await(made, doing)
        except BaseException:
            made.add_done_callback(lambda late: None if late.exception() else let_go(late.result()))
            raise

    def end(self) -> None:
        """Need the thread no more; idempotent. A call that hangs keeps it until it comes back."""
        self._workers.close(0)

    def _await(self, asked: Future[T], doing: str) -> T:
        try:
            either: set[Future[Any]] = {asked, self.closing}
            wait(either, self.left(), FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            if self.closing.done():
                raise StoreClosedError(f"{self._what} was given up, or the job closed, while {doing}")
            raise TransientError(f"{self._what} did not end in time, while {doing}: allow more (timeout_s)")
        except BaseException:
            if not asked.done():
                self.working.append(asked)
            raise
