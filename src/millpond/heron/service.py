"""What all connections of a server share: the handler of requests, bounded threads for the store, and memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from millpond.events import Event
from millpond.heron.answers import Answer
from millpond.heron.budget import Budget
from millpond.heron.handler import Handler, Work
from millpond.heron.inflow import Inflow, Spooling
from millpond.heron.keyed import KeyedWork, Piece
from millpond.heron.names import StateKey
from millpond.heron.registry import Client, Registry
from millpond.heron.settings import ServerSettings
from millpond.heron.states import StateStore
from millpond.lanes import Workers

log = logging.getLogger("millpond")

_LARGEST_READ = 1 << 20


class Service:
    """
    Serves requests out of *states*. Methods run on *loop*, unless they say otherwise.

    Attributes:
        budget: What all connections may hold.
        registry: Who is registered.
        handler: What requests mean.
        buffer: Where a connection reads to that uses a large read up at once.
        small_buffer: Where any other one reads to.
        busy: The keys that a work has its place with.
        idle: Set while nothing is at work.
    """

    def __init__(
        self,
        states: StateStore,
        settings: ServerSettings,
        tell: Callable[[Event], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Start the threads."""
        self.states, self.settings, self.tell, self.loop = states, settings, tell, loop
        self.registry = Registry(settings.topologies, settings.strict)
        self.budget = Budget(settings.memory)
        self.handler = Handler(states, settings, self.registry, tell, self.later)
        # Two reads fill a window, so that one is written while the next comes.
        self.buffer = memoryview(bytearray(max(settings.read_size, min(_LARGEST_READ, settings.window // 2))))
        self.small_buffer = self.buffer[: settings.read_size]
        self._workers = Workers("heron", settings.threads)
        self._work = KeyedWork(self._workers, loop)
        self.busy: Collection[Hashable] = self._work.busy
        self.idle = self._work.idle
        self._to_write: list[Callable[[], None]] = []

    # Works

    def can_do_at_once(self, work: Work) -> bool:
        """Tell whether *work* needs no other thread: the store never waits, and nothing else is at work on its key."""
        return self.states.instant and work.immediate and work.key not in self.busy

    def do(self, client: Client, work: Work, finish: Callable[[Answer], None], spooling: Spooling | None) -> None:
        """
        Do *work* on another thread, and call *finish* with its answer on the loop.

        It takes its place among those with its key at once, and begins when what *spooling* was fed is written.
        """

        def done(ended: Future[Answer]) -> None:
            error = ended.exception()
            finish(ended.result() if error is None else self.handler.failed(client, work, error))

        ready = spooling is None or not spooling.has_state
        piece = Piece(work.key, work.run, done, ready)
        self._work.submit(piece)
        if spooling is not None and not ready:
            self._when_written(spooling, lambda: self._work.make_ready(piece))

    def do_at_once(self, client: Client, work: Work) -> Answer:
        """Do *work* right here, and give its answer."""
        try:
            return work.run()
        except Exception as error:  # noqa: BLE001 - as on another thread: whatever it is, the request is answered
            return self.handler.failed(client, work, error)

    def submit(self, run: Callable[[], Any]) -> Future[Any]:
        """Do *run* on another thread."""
        return self._workers.submit(run)

    def later(self, run: Callable[[], object]) -> object:
        """Do *run* on another thread, if there still is one; nobody waits for it."""
        return self._workers.call_later(lambda: _quietly(run))

    # Large saves

    def new_spooling(self, written: Callable[[Spooling, int], None]) -> Spooling:
        """Give what takes a large state to the disk."""
        return Spooling(self.states.scratch, self._workers.lane(), written)

    def large_save(self, client: Client, inflow: Inflow) -> Work | bytes:
        """Say what becomes of a large save all of which has arrived; NotThatMessageError where it is none."""
        request = inflow.request()
        reqid, spooling = inflow.head.reqid, inflow.spooling
        if spooling is None:
            limit = self.settings.max_packet
            reason = f"a packet of {inflow.head.total - 4:,} bytes is over the limit of {limit:,}"
            return self.handler.refuse_save(reqid, request, reason)
        if not spooling.has_state:
            return self.handler.save_spilled(client, reqid, request)

        def store(key: StateKey, plan: Any) -> int | None:
            return self.states.save_spooled(key, spooling.take(), plan).size

        return self.handler.save(client, reqid, request, store)._replace(immediate=False)

    def _when_written(self, spooling: Spooling, then: Callable[[], None]) -> None:
        """Call *then* on the loop once all that was fed to *spooling* is written."""

        def tell(_: object) -> None:
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(then)

        spooling.lane.submit(lambda: None).add_done_callback(tell)

    # Answers

    def write_soon(self, write: Callable[[], None]) -> None:
        """
        Call *write* after all connections that are ready have been read.

        A client that sleeps is woken once for several answers, which costs more than writing each of them.
        """
        if not self._to_write:
            self.loop.call_soon(self._write_all)
        self._to_write.append(write)

    def _write_all(self) -> None:
        writes, self._to_write = self._to_write, []
        for write in writes:
            write()

    # What holds, and the end

    def gauges(self) -> dict[str, float]:
        """Give what holds right now, for metrics."""
        return {"held_bytes": self.budget.held, "requests_at_work": self._work.running}

    def close(self, timeout_s: float) -> None:
        """End the threads; waits for what they do, at most *timeout_s* seconds. Any thread."""
        self._workers.close(timeout_s)


def _quietly(run: Callable[[], object]) -> None:
    try:
        run()
    except Exception:  # nobody waits for it, and a thread may not end by it
        log.exception("a piece of work that nobody waits for failed")
