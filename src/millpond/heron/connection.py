"""What asyncio calls for one client's connection: its bytes go to the reader, its pauses and its end to all parts."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Protocol, cast

from millpond.heron import events
from millpond.heron.answering import AnswerQueue
from millpond.heron.link import Link
from millpond.heron.reading import Reader
from millpond.heron.service import Service

_KEEPALIVE = (("TCP_KEEPIDLE", 300), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 5))
"""As Heron's C++ peers set it."""


class Door(Protocol):
    """Who knows which connections there are."""

    def admit(self, connection: Connection, address: str) -> str:
        """Let *connection* in, or say why not."""

    def gone(self, connection: Connection) -> None:
        """Forget *connection*, let in or not."""


class Connection(asyncio.BufferedProtocol):
    """
    A connection. All methods run on the loop.

    Attributes:
        link: Its transport.
        answers: Its requests that are not answered.
        reader: What has come of packets.
    """

    def __init__(self, service: Service, door: Door) -> None:
        """Be served by *service*, if *door* lets it in."""
        self._service, self._door = service, door
        self.link = Link(service.loop, service.budget, self._go_on)
        self.answers = AnswerQueue(self.link, service)
        self.reader = Reader(self.link, self.answers, service)
        self._admitted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection, or turn it away."""
        link, tell = self.link, self._service.tell
        link.transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        host = str(address[0]) if isinstance(address, tuple) else ""
        link.peer = f"{host}:{address[1]}" if host else "somebody"
        if refusal := self._door.admit(self, host):
            tell(events.ConnectionRefused(job=events.NO_TOPOLOGY, peer=link.peer, reason=refusal))
            link.transport.abort()
            return
        self._admitted = True
        self._set_options(transport.get_extra_info("socket"))
        link.transport.set_write_buffer_limits(high=self._service.settings.read_size)
        tell(events.Connected(job=events.NO_TOPOLOGY, peer=link.peer))

    def _set_options(self, sock: socket.socket | None) -> None:
        if sock is None:
            return
        settings = self._service.settings
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
        return self._service.buffer if self.reader.wants_much else self._service.small_buffer

    def buffer_updated(self, size: int) -> None:
        """Take what was read."""
        link, service = self.link, self._service
        link.last = service.loop.time()
        self.reader.received(service.buffer[:size])
        if link.unsent:
            service.write_soon(link.write_out)

    def eof_received(self) -> bool:
        """Answer what was asked before, if anything was; then close."""
        self.link.ended = True
        self.reader.ended()
        return self.answers.is_busy and self.link.transport.get_extra_info("sslcontext") is None

    def pause_writing(self) -> None:
        """Ask for nothing more while the client does not read."""
        self.link.pause_writing()

    def resume_writing(self) -> None:
        """Go on."""
        self.link.resume_writing(self.answers.flush)

    def _go_on(self, paused_s: float) -> None:
        self.reader.go_on(paused_s)
        self.link.write_out()
        self.answers.close_if_done()

    def connection_lost(self, error: Exception | None) -> None:
        """Let go of everything."""
        topology = self._service.registry.topology_of(self.link) or events.NO_TOPOLOGY
        self.link.lost()
        self.reader.close()
        self.answers.close()
        self._door.gone(self)
        if self._admitted:
            reason = self.link.reason or (f"TLS: {error}" if isinstance(error, ssl.SSLError) else "")
            self._service.tell(events.Disconnected(job=topology, peer=self.link.peer, reason=reason))
