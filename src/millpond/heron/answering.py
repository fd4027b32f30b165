"""Answers of one connection: in the order of their requests, however their works end, at the pace of the client."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

from attrs import define

from millpond.errors import MillpondError
from millpond.heron.answers import Answer, Streamed
from millpond.heron.handler import Work
from millpond.heron.inflow import Spooling
from millpond.heron.link import Link
from millpond.heron.service import Service

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

    def __init__(self, link: Link, service: Service) -> None:
        """Answer over *link*."""
        self._slots: deque[Slot] = deque()
        self._link, self._service = link, service
        self._sending: asyncio.Task[None] | None = None
        self._full = False
        self._in_order: Slot | None = None

    @property
    def is_busy(self) -> bool:
        """Tell whether something is not answered, or not sent."""
        return bool(self._slots) or self._sending is not None

    # Requests come

    def at_once(self, packet: bytes) -> None:
        """Answer a request that needs no work."""
        if self.is_busy:
            self.open_slot(0).answer = packet
        else:
            self._link.put_out(packet)

    def work(self, work: Work, held: int, size: int) -> None:
        """Do *work* for a request of *size* bytes that was read with *held* bytes of the budget."""
        busy = self.is_busy
        if not busy and self._service.can_do_at_once(work):
            self._service.budget.give_back(held)
            self._do_at_once(work)
            return
        slot = self.open_slot(held)
        slot.work = work
        if work.in_order:
            self._link.stop(_ORDER)
            self._in_order = slot
        if not (work.in_order and busy):
            self._begin(slot, work, 0 if work.in_order else size + work.cost)

    def open_slot(self, held: int) -> Slot:
        """Give the next place in the order of answers."""
        slot = Slot(self._service.loop.time(), held=held)
        self._slots.append(slot)
        if len(self._slots) >= self._service.settings.pipeline:
            self._full = True
            self._link.stop(_PIPELINE)
        return slot

    def withdraw(self, slot: Slot) -> None:
        """Take back the last place: its request did not come to its end."""
        self._slots.remove(slot)
        self._let_go(slot)

    def work_on(self, slot: Slot, work: Work, spooling: Spooling | None) -> None:
        """Do *work* for a request that has its place, once its state is written to the disk."""
        slot.work = work
        self._begin(slot, work, 0, spooling)

    def _do_at_once(self, work: Work) -> None:
        answer = self._service.do_at_once(self._link, work)
        if isinstance(answer, bytes):
            self._link.put_out(answer)
            if self._link.unsent > self._service.settings.read_size:
                self._link.write_out()
        else:
            self.open_slot(0).answer = answer
            self.flush()

    def _begin(self, slot: Slot, work: Work, cost: int, spooling: Spooling | None = None) -> None:
        def begin(held: int) -> None:
            if slot.answer is not None:  # it waited for memory until its time was over
                self._service.budget.give_back(held)
                return
            slot.since = self._service.loop.time()
            slot.held += held
            slot.running = True
            self._service.do(self._link, work, lambda answer: self._finish(slot, answer), spooling)

        if cost <= slot.held:
            begin(0)
            return
        # What the packet was read with is let go of first: nobody waits with a reservation in hand.
        self._let_go(slot)
        self._link.with_memory(cost, begin)

    # Works end

    def finish_soon(self, slot: Slot, answer: Answer) -> None:
        """Put in the answer of *slot*, from the loop."""
        self._service.loop.call_soon(self._finish, slot, answer)

    def give_up_before(self, since: float, reason: str) -> None:
        """Answer with NOTOK what was begun before *since*; what it still holds is let go of when it ends."""
        for slot in list(self._slots):
            if slot.answer is None and slot.work is not None and slot.since < since:
                self._put_in(slot, slot.work.refuse(reason))

    def _finish(self, slot: Slot, answer: Answer) -> None:
        """Put in the answer of *slot*; one that comes after its time-out, or after the connection's end, is dropped."""
        slot.running = False
        if slot.answer is not None or self._link.closed:
            self._let_go(slot)
            if isinstance(answer, Streamed):
                self._service.later(answer.fetched.close)
            return
        self._put_in(slot, answer)

    def _put_in(self, slot: Slot, answer: Answer) -> None:
        slot.answer = answer
        if slot is self._in_order:
            self._in_order = None
            self._service.loop.call_soon(self._link.resume, _ORDER)
        self.flush()

    def _begin_in_order(self) -> None:
        """Begin the work that had to wait for all that was asked before it, if that is done."""
        slot = self._in_order
        if slot is None or slot.work is None or slot.running or slot.answer is not None:
            return
        if self._sending is None and self._slots and self._slots[0] is slot:
            self._begin(slot, slot.work, 0)

    # Answers go

    def flush(self) -> None:
        """Send what is answered, up to the first that is not."""
        while self._slots and self._slots[0].answer is not None and self._sending is None:
            if self._link.closed or self._link.write_paused_since is not None:
                break
            slot = self._slots.popleft()
            if isinstance(slot.answer, Streamed):
                self._link.write_out()
                self._sending = self._service.loop.create_task(self._stream(slot, slot.answer))
            else:
                held, slot.held = (0, slot.held) if slot.running else (slot.held, 0)
                self._link.put_out(cast(bytes, slot.answer), held)
        self._link.write_out()
        self._begin_in_order()
        if self._full and len(self._slots) < self._service.settings.pipeline:
            self._full = False
            self._service.loop.call_soon(self._link.resume, _PIPELINE)
        self.close_if_done()

    async def _stream(self, slot: Slot, answer: Streamed) -> None:
        """Send a large state: read by the store's threads, no more than a piece beyond what the client takes."""
        link, chunks = self._link, answer.fetched.chunks(_PIECE)
        try:
            link.transport.write(answer.head)
            while not link.closed:
                piece = await asyncio.wrap_future(self._service.submit(lambda: next(chunks, b"")))
                await link.drained.wait()
                if not piece or link.closed:
                    break
                link.transport.write(piece)
        except MillpondError as error:
            link.drop(f"the state that it asked for could not be sent to its end: {error}")
        finally:
            self._let_go(slot)
            self._service.later(answer.fetched.close)
            self._sending = None
        self.flush()

    def close_if_done(self) -> None:
        """Close the connection of a client that sends no more, once all is answered."""
        if not self.is_busy:
            self._link.close_if_ended()

    def close(self) -> None:
        """Let go of everything; works that have begun go on, and nobody is told."""
        if self._sending is not None:
            self._sending.cancel()
        for slot in self._slots:
            if not slot.running:
                self._let_go(slot)
            if isinstance(slot.answer, Streamed):
                self._service.later(slot.answer.fetched.close)

    def _let_go(self, slot: Slot) -> None:
        held, slot.held = slot.held, 0
        self._service.budget.give_back(held)
