"""Tasks that are being claimed and restored, in the background, while the consumer stays alive in its group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue

from attrs import define, field, frozen

from millpond.errors import MillpondError
from millpond.lanes import Workers
from millpond.task import Task

Offsets = Mapping[str, int]
"""By topic, the offset that comes next."""

CLOSE_S = 10.0
"""How long a task that nobody wants any more may take to close."""


@define(eq=False)
class Opening:
    """
    One attempt to open a task.

    Attributes:
        number: Of its partitions.
        unwanted: Ends when it is given up.
        ended: Ends when nothing of it is at work any more.
    """

    number: int
    unwanted: Future[None] = field(factory=Future)
    ended: Future[None] = field(factory=Future)
    _lock: threading.Lock = field(factory=threading.Lock)

    def give_up(self) -> None:
        """Want it no longer; idempotent."""
        with self._lock:
            if not self.unwanted.done():
                self.unwanted.set_result(None)


@frozen
class Opened:
    """
    How an attempt ended, if somebody still wanted to know.

    Attributes:
        opening: The attempt.
        task: The task, ready; None if it failed.
        first: Where it reads on.
        error: Why it failed.
    """

    opening: Opening
    task: Task | None = None
    first: Offsets = field(factory=dict)
    error: BaseException | None = None


Open = Callable[[Opening], tuple[Task, Offsets]]


class Openings:
    """Opens tasks side by side. One thread calls; *open_one* runs on workers, and ends when its opening is unwanted."""

    def __init__(self, open_one: Open, at_once: int) -> None:
        """Open at most *at_once* tasks at once."""
        self._open_one = open_one
        self._workers = Workers("open-task", at_once)
        self._done: SimpleQueue[Opened] = SimpleQueue()
        self._wanted: dict[int, Opening] = {}
        self._all: set[Opening] = set()

    def begin(self, number: int) -> None:
        """Open the task of partition *number*."""
        opening = self._wanted[number] = Opening(number)
        self._all = {one for one in self._all if not one.ended.done()} | {opening}
        self._workers.submit(lambda: self._run(opening))

    def _run(self, opening: Opening) -> None:
        try:
            self._done.put(self._attempt(opening))
        finally:
            opening.ended.set_result(None)

    def _attempt(self, opening: Opening) -> Opened:
        if opening.unwanted.done():
            return Opened(opening)
        try:
            task, first = self._open_one(opening)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told to the thread that polls
            return Opened(opening, error=error)
        if not opening.unwanted.done():
            return Opened(opening, task, first)
        close_quietly(task)
        return Opened(opening)

    def give_up(self, numbers: Collection[int]) -> list[Opening]:
        """Want the tasks of *numbers* no longer; give what may still be at work for them."""
        given_up = [self._wanted.pop(number) for number in numbers if number in self._wanted]
        for opening in given_up:
            opening.give_up()
        return given_up

    def ended(self) -> list[Opened]:
        """Give what has ended since the last call and is still wanted; a task that nobody wants is closed."""
        found = []
        while (one := self._next()) is not None:
            if self._wanted.get(one.opening.number) is one.opening:
                del self._wanted[one.opening.number]
                found.append(one)
            elif one.task is not None:
                close_quietly(one.task)
        return found

    def _next(self) -> Opened | None:
        try:
            return self._done.get_nowait()
        except Empty:
            return None

    def await_end(self, timeout_s: float, of: Collection[Opening] | None = None) -> None:
        """Wait until nothing of *of*, or of anything, is at work; at most *timeout_s* seconds."""
        wait([opening.ended for opening in (self._all if of is None else of)], timeout_s)

    def close(self, timeout_s: float) -> None:
        """Give everything up, and let the threads end."""
        self.give_up(list(self._wanted))
        self.await_end(timeout_s)
        self.ended()
        self._workers.close(0.1)


def close_quietly(task: Task) -> None:
    """Close a task that never ran; what does not end keeps its folder, and the job's end reports it."""
    try:
        task.close(CLOSE_S)
    except MillpondError:
        return
