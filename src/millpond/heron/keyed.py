"""Work for the store: on a bounded number of threads, and in order where it has the same key. All on the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Hashable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from attrs import define, field

from millpond.lanes import Workers

Run = Callable[[], Any]
Done = Callable[["Future[Any]"], None]


@define(eq=False)
class Piece:
    """
    A piece of work in its place.

    Attributes:
        key: Pieces with one key follow one another; None: it has no regard for others.
        ready: It may begin once it is its turn.
    """

    key: Hashable
    run: Run
    done: Done
    ready: bool = field(default=True)


class KeyedWork:
    """
    Passes works to *workers*; what has ended is told on the loop.

    Attributes:
        running: How many are at work.
        idle: Set while none is.
        busy: The keys with which something has its place.
    """

    def __init__(self, workers: Workers, loop: asyncio.AbstractEventLoop) -> None:
        """Begin with nothing to do."""
        self._workers, self._loop = workers, loop
        self._queues: dict[Hashable, deque[Piece]] = {}
        self.busy: Collection[Hashable] = self._queues.keys()
        self.running = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def submit(self, piece: Piece) -> None:
        """Do *piece* once it is ready, and all that had its key before has ended."""
        if piece.key is None:
            self._start_if_ready(piece)
            return
        queue = self._queues.setdefault(piece.key, deque())
        queue.append(piece)
        if len(queue) == 1:
            self._start_if_ready(piece)

    def make_ready(self, piece: Piece) -> None:
        """Let *piece*, which was submitted before, begin when it is its turn."""
        piece.ready = True
        if piece.key is None or self._queues[piece.key][0] is piece:
            self._start_if_ready(piece)

    def _start_if_ready(self, piece: Piece) -> None:
        if piece.ready:
            self.running += 1
            self.idle.clear()
            self._workers.submit(piece.run).add_done_callback(lambda ended: self._tell(piece, ended))

    def _tell(self, piece: Piece, ended: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody wants to know
            self._loop.call_soon_threadsafe(self._ended, piece, ended)

    def _ended(self, piece: Piece, ended: Future[Any]) -> None:
        self.running -= 1
        if piece.key is not None:
            queue = self._queues[piece.key]
            queue.popleft()
            if queue:
                self._start_if_ready(queue[0])
            else:
                del self._queues[piece.key]
        piece.done(ended)
        if not self.running:
            self.idle.set()
