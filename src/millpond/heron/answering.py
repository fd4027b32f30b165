"""Answers of one connection: in the order of their requests, however their works end, at the pace of the client."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

from attrs import define

from millpond.errors import MillpondError
from millpond.heron.answers import Answer, Streamed

if TYPE_CHECKING:
    from millpond.heron.connection import Connection
    from millpond.heron.handler import Work
    from millpond.heron.inflow import Spooling

_PIPELINE, _ORDER = "pipeline", "order"
_PIECE = 1 << 20


@define(eq=False)
class Slot:
    """
    A request's place in the order of answers.

    Attributes:
        since: When its work was begun, by the loop's clock.
        answer: None while it is at work.
        held: Bytes of the budget that are let go of once it is written.
        work: What is done for it.
        running: It is being done.
    """

    since: float
    answer: Answer | None = None
    held: int = 0
    work: Work | None = None
    running: bool = False


class AnswerQueue:
    """The requests of one connection that are not answered yet. All methods run on the loop."""

    def __init__(self, connection: Connection) -> None:
        """Belong to *connection*."""
        self.slots: deque[Slot] = deque()
        self._connection, self._server = connection, connection.server
        self._sending: asyncio.Task[None] | None = None
        self._out: list[bytes] = []
        self._out_size = 0
        self._owed = 0
        self._full = False
        self._in_order: Slot | None = None

    @property
    def is_busy(self) -> bool:
        """Tell whether something is not answered, or not sent."""
        return bool(self.slots) or self._sending is not None

    @property
    def has_output(self) -> bool:
        """Tell whether something waits to be handed to the transport."""
        return bool(self._out)

    # Requests come

    def at_once(self, packet: bytes) -> None:
        """Answer a request that needs no work."""
        if self.is_busy:
            self.open_slot(0).answer = packet
        else:
            self._put_out(packet)

    def work(self, work: Work, held: int, size: int) -> None:
        """Do *work* for a request of *size* bytes that was read with *held* bytes of the budget."""
        if not self.slots and self._sending is None and self._server.can_do_at_once(work):
            if held:
                self._server.budget.give_back(held)
            self._do_at_once(work)
            return
        busy = self.is_busy
        slot = self.open_slot(held)
        slot.work = work
        if work.in_order:
            self._connection.stop(_ORDER)
            self._in_order = slot
        if not (work.in_order and busy):
            self._begin(slot, work, 0 if work.in_order else size + work.cost)

    def open_slot(self, held: int) -> Slot:
        """Give the next place in the order of answers."""
        slot = Slot(self._server.loop.time(), held=held)
        self.slots.append(slot)
        if len(self.slots) >= self._server.settings.pipeline:
            self._full = True
            self._connection.stop(_PIPELINE)
        return slot

    def withdraw(self, slot: Slot) -> None:
        """Take back the last place: its request did not come to its end."""
        self.slots.remove(slot)
        self._let_go(slot)

    def work_on(self, slot: Slot, work: Work, spooling: Spooling | None) -> None:
        """Do *work* for a request that has its place, once its state is written to the disk."""
        slot.work = work
        self._begin(slot, work, 0, spooling)

    def _do_at_once(self, work: Work) -> None:
        try:
            answer = work.run()
        except Exception as error:  # noqa: BLE001 - as on another thread: whatever it is, the request is answered
            answer = self._server.handler.failed(self._connection, work, error, self._connection.peer)
        if isinstance(answer, bytes):
            self._put_out(answer)
            if self._out_size > self._server.settings.read_size:
                self.write_out()
        else:
            self.open_slot(0).answer = answer
            self.flush()

    def _begin(self, slot: Slot, work: Work, cost: int, spooling: Spooling | None = None) -> None:
        def begin(held: int) -> None:
            if slot.answer is not None:  # it waited for memory until its time was over
                self._server.budget.give_back(held)
                return
            slot.since = self._server.loop.time()
            slot.held += held
            slot.running = True
            self._server.do(self._connection, work, lambda answer: self._finish(slot, answer), spooling)

        if cost <= slot.held:
            begin(0)
            return
        # What the packet was read with is let go of first: nobody waits with a reservation in hand.
        self._server.budget.give_back(slot.held)
        slot.held = 0
        self._connection.with_memory(cost, begin)

    # Works end

    def finish_soon(self, slot: Slot, answer: Answer) -> None:
        """Put in the answer of *slot*, from the loop."""
        self._server.loop.call_soon(self._finish, slot, answer)

    def give_up(self, slot: Slot, reason: str) -> None:
        """Answer with NOTOK what takes too long; what it still holds is let go of when it ends."""
        if slot.answer is None and slot.work is not None:
            self._put_in(slot, slot.work.refuse(reason))

    def _finish(self, slot: Slot, answer: Answer) -> None:
        """Put in the answer of *slot*; one that comes after its time-out, or after the connection's end, is dropped."""
        slot.running = False
        if slot.answer is not None or self._connection.closed:
            self._let_go(slot)
            if isinstance(answer, Streamed):
                self._server.later(answer.fetched.close)
            return
        self._put_in(slot, answer)

    def _put_in(self, slot: Slot, answer: Answer) -> None:
        slot.answer = answer
        if slot is self._in_order:
            self._in_order = None
            self._server.loop.call_soon(self._connection.resume, _ORDER)
        self.flush()

    def _begin_in_order(self) -> None:
        """Begin the work that had to wait for all that was asked before it, if that is done."""
        slot = self._in_order
        if slot is None or slot.work is None or slot.running or slot.answer is not None:
            return
        if self._sending is None and self.slots and self.slots[0] is slot:
            self._begin(slot, slot.work, 0)

    # Answers go

    def flush(self) -> None:
        """Send what is answered, up to the first that is not."""
        while self.slots and self.slots[0].answer is not None and self._sending is None:
            if self._connection.closed or self._connection.write_paused_since is not None:
                break
            slot = self.slots.popleft()
            if isinstance(slot.answer, Streamed):
                self.write_out()
                self._sending = self._server.loop.create_task(self._stream(slot, slot.answer))
            else:
                self._put_out(cast(bytes, slot.answer))
                held, slot.held = (0, slot.held) if slot.running else (slot.held, 0)
                self._owed += held
        self.write_out()
        self._begin_in_order()
        if self._full and len(self.slots) < self._server.settings.pipeline:
            self._full = False
            self._server.loop.call_soon(self._connection.resume, _PIPELINE)
        self._connection.close_if_done()

    def write_out(self) -> None:
        """Hand what is to be sent to the transport; what it takes is no longer held."""
        if self._out and not self._connection.closed:
            packets, self._out, self._out_size = self._out, [], 0
            self._connection.transport.write(packets[0] if len(packets) == 1 else b"".join(packets))
        if self._owed and self._connection.write_paused_since is None:
            owed, self._owed = self._owed, 0
            self._server.budget.give_back(owed)

    def _put_out(self, packet: bytes) -> None:
        self._out.append(packet)
        self._out_size += len(packet)

    async def _stream(self, slot: Slot, answer: Streamed) -> None:
        """Send a large state: read by the store's threads, no more than a piece beyond what the client takes."""
        connection, chunks = self._connection, answer.fetched.chunks(_PIECE)
        try:
            connection.transport.write(answer.head)
            while not connection.closed:
                piece = await asyncio.wrap_future(self._server.submit(lambda: next(chunks, b"")))
                await connection.drained.wait()
                if not piece or connection.closed:
                    break
                connection.transport.write(piece)
        except MillpondError as error:
            connection.drop(f"the state that it asked for could not be sent to its end: {error}")
        finally:
            self._let_go(slot)
            self._server.later(answer.fetched.close)
            self._sending = None
        self.flush()

    def close(self) -> None:
        """Let go of everything; works that have begun go on, and nobody is told."""
        if self._sending is not None:
            self._sending.cancel()
        self._server.budget.give_back(self._owed)
        self._owed = 0
        for slot in self.slots:
            if not slot.running:
                self._let_go(slot)
            if isinstance(slot.answer, Streamed):
                self._server.later(slot.answer.fetched.close)

    def _let_go(self, slot: Slot) -> None:
        held, slot.held = slot.held, 0
        self._server.budget.give_back(held)
