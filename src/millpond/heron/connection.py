"""
One client's connection: its transport, the reasons for which nothing is read from it, and how it ends.

Reading stops while there is a reason to stop: too many requests at work, no memory, a disk that lags behind, a client
that does not read. What was received then waits, at most one read of a socket, and all else stays with the client.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from millpond.heron import events
from millpond.heron.answering import AnswerQueue
from millpond.heron.reading import Reader

if TYPE_CHECKING:
    from millpond.heron.server import HeronServer

_KEEPALIVE = (("TCP_KEEPIDLE", 300), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 5))
"""As Heron's C++ peers set it."""

_LINGER_S = 5.0
"""For what was answered before a connection is dropped."""

_MEMORY, _WRITING, _ENDING = "memory", "writing", "ending"


class Connection(asyncio.BufferedProtocol):
    """
    A connection. All methods run on the loop.

    Attributes:
        peer: The client's address, for events.
        last: When something was read, by the loop's clock.
        write_paused_since: Since when the client has not read what was sent; None: it reads.
        closed: It has ended.
        drained: Set while the client reads.
    """

    def __init__(self, server: HeronServer) -> None:
        """Belong to *server*."""
        self.server = server
        self.peer = ""
        self.last = server.loop.time()
        self.write_paused_since: float | None = None
        self.closed = False
        self.drained = asyncio.Event()
        self.drained.set()
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.answers = AnswerQueue(self)
        self.reader = Reader(self)
        self._reason = ""
        self._stops: set[str] = set()
        self._stopped_at = 0.0
        self._admitted = False
        self._ended = False

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection, or turn it away."""
        self.transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        host = str(address[0]) if isinstance(address, tuple) else ""
        self.peer = f"{host}:{address[1]}" if host else "somebody"
        if refusal := self.server.admit(self, host):
            self.server.tell(events.ConnectionRefused(job=events.NO_TOPOLOGY, peer=self.peer, reason=refusal))
            self.transport.abort()
            return
        self._admitted = True
        self._set_options(transport.get_extra_info("socket"))
        self.transport.set_write_buffer_limits(high=self.server.settings.read_size)
        self.server.tell(events.Connected(job=events.NO_TOPOLOGY, peer=self.peer))

    def _set_options(self, sock: socket.socket | None) -> None:
        if sock is None:
            return
        settings = self.server.settings
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if (option := getattr(socket, name, None)) is not None:
                    sock.setsockopt(socket.IPPROTO_TCP, option, value)
            if settings.send_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer)
            if settings.receive_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Give where to read to: one buffer serves all connections, since each read is used up at once."""
        return self.server.buffer if self.reader.wants_much else self.server.small_buffer

    def buffer_updated(self, size: int) -> None:
        """Take what was read."""
        self.last = self.server.loop.time()
        self.reader.received(self.server.buffer[:size])
        if self.answers.has_output:
            self.server.write_soon(self)

    def eof_received(self) -> bool:
        """Answer what was asked before, if anything was; then close."""
        self._ended = True
        self.reader.ended()
        return self.answers.is_busy and self.transport.get_extra_info("sslcontext") is None

    def pause_writing(self) -> None:
        """Ask for nothing more while the client does not read."""
        self.write_paused_since = self.server.loop.time()
        self.drained.clear()
        self.stop(_WRITING)

    def resume_writing(self) -> None:
        """Go on."""
        self.write_paused_since = None
        self.drained.set()
        self.answers.flush()
        self.resume(_WRITING)

    def connection_lost(self, error: Exception | None) -> None:
        """Let go of everything."""
        self.closed = True
        self.drained.set()
        self.reader.close()
        self.answers.close()
        topology = self.server.gone(self) or events.NO_TOPOLOGY
        if not self._admitted:
            return
        reason = self._reason or (f"TLS: {error}" if isinstance(error, ssl.SSLError) else "")
        self.server.tell(events.Disconnected(job=topology, peer=self.peer, reason=reason))

    # Stopping and going on

    @property
    def is_stopped(self) -> bool:
        """Tell whether nothing more may be used of what was read."""
        return bool(self._stops) or self.closed

    def stop(self, why: str) -> None:
        """Read nothing more until :meth:`resume` was called for every reason."""
        if not self._stops and not self.closed:
            self.transport.pause_reading()
            self._stopped_at = self.server.loop.time()
        self._stops.add(why)

    def resume(self, why: str) -> None:
        """Take back one reason to stop, and go on if it was the last."""
        if why not in self._stops:
            return
        self._stops.discard(why)
        if self.is_stopped:
            return
        self.last = self.server.loop.time()
        self.reader.go_on(self.last - self._stopped_at)
        self.answers.write_out()
        self.close_if_done()
        self._read_on()

    def _read_on(self) -> None:
        if not self.is_stopped and not self.transport.is_closing():
            self.transport.resume_reading()

    def with_memory(self, size: int, granted: Callable[[int], None]) -> None:
        """Call *granted* with *size* once so many bytes may be held, now or later; read nothing until then."""

        def later() -> bool:
            if self.closed:
                return False
            granted(size)
            self.server.loop.call_soon(self.resume, _MEMORY)
            return True

        if self.server.budget.take(size, later):
            granted(size)
        else:
            self.stop(_MEMORY)

    # The end

    def drop(self, reason: str) -> None:
        """End this connection, and no other; what was answered before is still sent."""
        if self._reason or self.closed:
            return
        self._reason = reason
        self._stops.add(_ENDING)
        self.answers.write_out()
        self.transport.close()
        self.server.loop.call_later(_LINGER_S, self.transport.abort)

    def close_if_done(self) -> None:
        """Close the connection of a client that sends no more, once all is answered."""
        if self._ended and not self.answers.is_busy and not self._stops:
            self.transport.close()
