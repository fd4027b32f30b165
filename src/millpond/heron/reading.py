"""Packets of one connection, as they come: small ones whole, large saves piece by piece, and nothing else held."""

from __future__ import annotations

from contextlib import suppress
from typing import cast

from millpond.errors import FormatError
from millpond.heron import answers, small_save
from millpond.heron.answering import AnswerQueue, Slot
from millpond.heron.answers import REQUESTS
from millpond.heron.framing import Head, packet_size, parse_head
from millpond.heron.handler import SAVE, Answered, HangUp, Outcome, Work
from millpond.heron.inflow import Inflow, Spooling
from millpond.heron.link import Link
from millpond.heron.messages import full_name
from millpond.heron.service import Service

_BY_WIRE_NAME = {full_name(name).encode("ascii"): name for name in REQUESTS}
_DISK = "disk"


class Reader:
    """
    Takes what one connection received. All methods run on the loop.

    Attributes:
        packet_since: When the packet began that is not all there, by the loop's clock; None: there is none.
    """

    def __init__(self, link: Link, queue: AnswerQueue, service: Service) -> None:
        """Read from *link*; what is asked is answered by *queue*."""
        self.packet_since: float | None = None
        self._link, self._queue, self._service = link, queue, service
        self._settings = service.settings
        self._states = service.states
        self._held_state = self._settings.held_state
        self._limits = {name: self._largest(name) for name in REQUESTS}
        self._small = min(self._held_state, self._limits[SAVE])
        self._pending = bytearray()
        self._skip = 0
        self._inflow: Inflow | None = None
        self._inflow_slot: Slot | None = None
        self._reserved = 0
        self._asked = False

    @property
    def wants_much(self) -> bool:
        """Tell whether a large read would be used up at once."""
        return self._inflow is not None and not self._pending

    @property
    def packet_total(self) -> int:
        """The size of the packet that has begun; 0 where that is not known."""
        if self._inflow is not None:
            return self._inflow.head.total
        with suppress(FormatError):
            return packet_size(self._pending) or 0
        return 0

    def received(self, view: memoryview) -> None:
        """Use up what can be used of *view*; keep the rest."""
        if self._pending:
            self._pending += view
            self._use_pending()
            return
        # Small packets are read from bytes in half the time that a view takes; a large one is not copied twice.
        used = self._take(view if self._inflow is not None else bytes(view))
        if used < len(view):
            self._pending += view[used:]

    def go_on(self, paused_s: float) -> None:
        """Use up what was kept, after *paused_s* seconds that are not the client's fault."""
        if self.packet_since is not None:
            self.packet_since += paused_s
        self._use_pending()

    def ended(self) -> None:
        """Give up a large save that has begun: nothing more comes."""
        if self._inflow is not None and self._inflow_slot is not None:
            self._inflow.abandon()
            self._queue.withdraw(self._inflow_slot)
            self._inflow = self._inflow_slot = None

    def close(self) -> None:
        """Let go of everything."""
        if self._inflow is not None:
            self._inflow.abandon()
        self._service.budget.give_back(self._reserved)
        self._reserved = 0
        self._pending.clear()

    def _use_pending(self) -> None:
        if self._inflow is None and len(self._pending) <= self._settings.read_size:
            used = self._take(bytes(self._pending))
        else:
            with memoryview(self._pending) as view:
                used = self._take(view)
        del self._pending[:used]

    def _take(self, view: bytes | memoryview) -> int:
        """Use up what can be used of *view*, and give how much that is."""
        at = 0
        try:
            while at < len(view) and not self._link.is_stopped:
                used = self._save_at_once(view, at) if self._states.instant else 0
                used = used or self._take_one(view, at)
                if not used:
                    break
                at += used
        except FormatError as error:
            self._link.drop(str(error))
        unfinished = at < len(view) or self._inflow is not None or self._skip > 0
        self.packet_since = (self.packet_since or self._link.last) if unfinished else None
        return at

    def _take_one(self, view: bytes | memoryview, at: int) -> int:
        if self._skip:
            used = min(self._skip, len(view) - at)
            self._skip -= used
            return used
        if self._inflow is not None:
            return self._take_inflow(self._inflow, view, at)
        head = parse_head(view, at)
        if head is None:
            return 0
        name = _BY_WIRE_NAME.get(head.name)
        if name is None:
            self._link.drop(f"it sent a packet of the unknown type {head.name[:80]!r}")
            return 0
        if head.total - 4 > self._limits[name]:
            return self._refuse_large(name, head)
        if head.size > self._held_state and name == SAVE:
            return self._begin_inflow(head)
        if len(view) - at < head.total:
            self._reserve(head.total)
            return 0
        self._packet(name, head, bytes(view[at + head.start : at + head.start + head.size]))
        return head.total

    def _largest(self, name: str) -> int:
        settings = self._settings
        return settings.max_packet if name == SAVE else min(settings.max_packet, settings.max_held_packet)

    def _packet(self, name: str, head: Head, body: bytes) -> None:
        self.packet_since = None
        outcome = self._service.handler.handle(self._link, name, head.reqid, body)
        reserved, self._reserved = self._reserved, 0
        if isinstance(outcome, Work):
            self._queue.work(outcome, reserved, len(body))
            return
        if reserved:
            self._service.budget.give_back(reserved)
        self._done_already(outcome)

    def _save_at_once(self, data: bytes | memoryview, at: int) -> int:
        """Save right here where the store never waits and nothing of this client is at work; give the packet's size."""
        # A large save of which more is to come has its place in the queue.
        if self._skip or not isinstance(data, bytes) or self._queue.is_busy:
            return 0
        asked = small_save.read(data, at)
        if asked is None or asked.total > self._small:
            return 0
        packet = self._service.handler.save_at_once(self._link, asked, self._service.busy)
        if packet is None:
            return 0
        self.packet_since = None
        if self._reserved:
            self._service.budget.give_back(self._reserved)
            self._reserved = 0
        self._link.put_out(packet)
        return asked.total

    def _done_already(self, outcome: Outcome) -> None:
        if isinstance(outcome, HangUp):
            self._link.drop(outcome.reason)
        elif isinstance(outcome, Answered):
            self._queue.at_once(outcome.packet)
            if outcome.evicted is not None:
                outcome.evicted.drop("another connection registered in its place")

    def _reserve(self, size: int) -> None:
        """Hold memory for the rest of what has begun; where there is none yet, reading stops until there is."""
        if not self._reserved and not self._asked:
            self._asked = True
            self._link.with_memory(size, self._granted)

    def _granted(self, size: int) -> None:
        self._asked, self._reserved = False, size

    # Packets that are not held

    def _refuse_large(self, name: str, head: Head) -> int:
        """Let the rest of a packet that is too large pass by, and answer with the limit."""
        reason = f"a packet of {head.total - 4:,} bytes is over the limit of {self._limits[name]:,}"
        if self._settings.strict or name == "GetInstanceStateRequest":
            self._link.drop(reason)
            return 0
        if name == SAVE:
            return self._enter(Inflow(head, None))
        if name == "CleanStatefulCheckpointRequest":
            self._queue.at_once(answers.cleaned(head.reqid, refusal=reason))
        else:
            self._queue.at_once(answers.registered(name, head.reqid, reason))
        self._skip = head.total - head.start
        return head.start

    def _begin_inflow(self, head: Head) -> int:
        self._reserve(self._settings.window)
        if not self._reserved:
            return 0
        return self._enter(Inflow(head, self._service.new_spooling(self._written)))

    def _enter(self, inflow: Inflow) -> int:
        self._inflow = inflow
        self._inflow_slot = self._queue.open_slot(self._reserved)
        self._reserved = 0
        if not inflow.left:
            self._end_inflow(inflow)
        return inflow.head.start

    def _take_inflow(self, inflow: Inflow, view: bytes | memoryview, at: int) -> int:
        used = min(inflow.left, len(view) - at)
        inflow.feed(bytes(view[at : at + used]))
        spooling = inflow.spooling
        if not inflow.left:
            self._end_inflow(inflow)
        elif spooling is not None and self._is_full(spooling):
            self._link.stop(_DISK)
        return used

    def _is_full(self, spooling: Spooling) -> bool:
        """Tell whether another read might not fit into the window, and something is there to wait for."""
        return spooling.unwritten > max(0, self._settings.window - len(self._service.buffer))

    def _written(self, spooling: Spooling, size: int) -> None:
        """Note on any thread that *size* bytes were written."""
        with suppress(RuntimeError):  # the loop has ended
            self._service.loop.call_soon_threadsafe(self._after_write, spooling, size)

    def _after_write(self, spooling: Spooling, size: int) -> None:
        spooling.unwritten -= size
        mine = self._inflow is not None and self._inflow.spooling is spooling
        if mine and spooling.unwritten <= self._settings.window // 2:
            self._link.resume(_DISK)

    def _end_inflow(self, inflow: Inflow) -> None:
        slot, self._inflow, self._inflow_slot = cast(Slot, self._inflow_slot), None, None
        self._skip = inflow.head.total - inflow.head.start - inflow.head.size
        try:
            outcome = self._service.large_save(self._link, inflow)
        except FormatError:
            inflow.abandon()
            raise
        if isinstance(outcome, Work):
            self._queue.work_on(slot, outcome, inflow.spooling)
        else:
            self._queue.finish_soon(slot, outcome)
