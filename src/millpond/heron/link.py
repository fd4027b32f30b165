"""
One client's transport: what is to be sent to it, the reasons for which nothing is read from it, and how it ends.

Reading stops while there is a reason to stop: too many requests at work, no memory, a disk that lags behind, a client
that does not read. What was received then waits, at most one read of a socket, and all else stays with the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from millpond.heron.budget import Budget

_LINGER_S = 5.0
"""For what was answered before a connection is dropped."""

_MEMORY, _WRITING, _ENDING = "memory", "writing", "ending"


class Link:
    """
    The line to one client. All methods run on the loop.

    Attributes:
        peer: The client's address, for events.
        transport: Its socket's.
        last: When something was read, by the loop's clock.
        write_paused_since: Since when the client has not read what was sent; None: it reads.
        drained: Set while the client reads.
        is_stopped: Nothing more may be used of what was read.
        ended: The client sends no more.
        closed: The connection has ended.
        reason: Why it was dropped; empty: it was not.
        unsent: Bytes that wait for :meth:`write_out`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: Budget, go_on: Callable[[float], None]) -> None:
        """Begin; *go_on* is called when no reason to stop is left, with the seconds for which there was one."""
        self.peer = self.reason = ""
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.last = loop.time()
        self.write_paused_since: float | None = None
        self.drained = asyncio.Event()
        self.drained.set()
        self.is_stopped = self.ended = self.closed = False
        self.unsent = 0
        self._loop, self._budget, self._go_on = loop, budget, go_on
        self._out: list[bytes] = []
        self._owed = 0
        self._stops: set[str] = set()
        self._stopped_at = 0.0

    # What is to be sent

    def put_out(self, packet: bytes, held: int = 0) -> None:
        """Keep *packet* until :meth:`write_out`; *held* bytes of the budget are let go of once it is written."""
        self._out.append(packet)
        self.unsent += len(packet)
        if held:
            self._owed += held

    def write_out(self) -> None:
        """Hand what is to be sent to the transport; what it takes is no longer held."""
        if self._out and not self.closed:
            packets, self._out, self.unsent = self._out, [], 0
            self.transport.write(packets[0] if len(packets) == 1 else b"".join(packets))
        if self._owed and self.write_paused_since is None:
            owed, self._owed = self._owed, 0
            self._budget.give_back(owed)

    def pause_writing(self) -> None:
        """Read nothing more while the client does not read."""
        self.write_paused_since = self._loop.time()
        self.drained.clear()
        self.stop(_WRITING)

    def resume_writing(self, flush: Callable[[], None]) -> None:
        """Go on, beginning with *flush*."""
        self.write_paused_since = None
        self.drained.set()
        flush()
        self.resume(_WRITING)

    # Stopping and going on

    def stop(self, why: str) -> None:
        """Read nothing more until :meth:`resume` was called for every reason."""
        if not self.is_stopped:
            self.transport.pause_reading()
            self._stopped_at = self._loop.time()
            self.is_stopped = True
        self._stops.add(why)

    def resume(self, why: str) -> None:
        """Take back one reason to stop, and go on if it was the last."""
        if why not in self._stops:
            return
        self._stops.discard(why)
        if self._stops or self.closed:
            return
        self.is_stopped = False
        self.last = self._loop.time()
        self._go_on(self.last - self._stopped_at)
        if not self.is_stopped and not self.transport.is_closing():
            self.transport.resume_reading()

    def with_memory(self, size: int, granted: Callable[[int], None]) -> None:
        """Call *granted* with *size* once so many bytes may be held, now or later; read nothing until then."""

        def later() -> bool:
            if self.closed:
                return False
            granted(size)
            self._loop.call_soon(self.resume, _MEMORY)
            return True

        if self._budget.take(size, later):
            granted(size)
        else:
            self.stop(_MEMORY)

    # The end

    def drop(self, reason: str) -> None:
        """End this connection, and no other; what was answered before is still sent."""
        if self.reason or self.closed:
            return
        self.reason = reason
        self._stops.add(_ENDING)
        self.is_stopped = True
        self.write_out()
        self.transport.close()
        self._loop.call_later(_LINGER_S, self.transport.abort)

    def close_if_ended(self) -> None:
        """Close the connection of a client that sends no more; all that it asked is answered."""
        if self.ended and not self._stops:
            self.transport.close()

    def lost(self) -> None:
        """Note that the connection has ended, and let go of what it held."""
        self.closed = self.is_stopped = True
        self.drained.set()
        self._budget.give_back(self._owed)
        self._owed = 0
