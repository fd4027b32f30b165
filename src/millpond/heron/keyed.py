"""Work for the store: on a bounded number of threads, and in order where it has the same key. All on the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from millpond.lanes import Workers

Run = Callable[[], Any]
Done = Callable[["Future[Any]"], None]


class KeyedWork:
    """
    Passes works to *workers*; what has ended is told on the loop.

    Attributes:
        running: How many are at work.
        idle: Set while none is.
    """

    def __init__(self, workers: Workers, loop: asyncio.AbstractEventLoop) -> None:
        """Begin with nothing to do."""
        self._workers, self._loop = workers, loop
        self._busy: dict[Hashable, deque[tuple[Run, Done]]] = {}
        self.running = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def is_busy(self, key: Hashable) -> bool:
        """Tell whether something with *key* is at work."""
        return key in self._busy

    def submit(self, key: Hashable, run: Run, done: Done) -> None:
        """Do *run* once all that has the same *key* has ended, and call *done* with how it ended."""
        if key is not None and key in self._busy:
            self._busy[key].append((run, done))
            return
        if key is not None:
            self._busy[key] = deque()
        self._start(key, run, done)

    def _start(self, key: Hashable, run: Run, done: Done) -> None:
        self.running += 1
        self.idle.clear()
        future = self._workers.submit(run)
        future.add_done_callback(lambda ended: self._tell(key, ended, done))

    def _tell(self, key: Hashable, ended: Future[Any], done: Done) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody wants to know
            self._loop.call_soon_threadsafe(self._ended, key, ended, done)

    def _ended(self, key: Hashable, ended: Future[Any], done: Done) -> None:
        self.running -= 1
        if key is not None:
            waiting = self._busy[key]
            if waiting:
                self._start(key, *waiting.popleft())
            else:
                del self._busy[key]
        done(ended)
        if not self.running:
            self.idle.set()
