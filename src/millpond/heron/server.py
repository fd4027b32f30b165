"""The server: listens, lets connections in, and ends all that it began."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from millpond.errors import ConfigError
from millpond.events import Event
from millpond.heron.admission import Admission
from millpond.heron.connection import Connection
from millpond.heron.events import ignore
from millpond.heron.service import Service
from millpond.heron.settings import ServerSettings, TlsSettings
from millpond.heron.states import StateStore
from millpond.heron.sweeping import sweep
from millpond.listening import close_listener

_BACKLOG = 1024
_LAST_ANSWERS_S = 2.0


class HeronServer:
    """
    Serves *states* by Heron's protocol. Made, started and stopped on one loop, which :meth:`start` takes.

    Attributes:
        port: Where it listens, once it was started.
        loop: Where it runs then.
        service: What all its connections share.
    """

    def __init__(self, states: StateStore, settings: ServerSettings, tell: Callable[[Event], None] = ignore) -> None:
        """Keep what is given; *tell* must be quick and raise nothing. The caller closes *states*' store."""
        self.settings = settings
        self.port = 0
        self.loop: asyncio.AbstractEventLoop
        self.service: Service
        self._states, self._tell = states, tell
        self._door: Admission
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def connections(self) -> Collection[Connection]:
        """Those that were let in, and have not ended."""
        return self._door.connections

    async def start(self) -> None:
        """
        Listen.

        Raises:
            OSError: The address is taken, or not ours.
        """
        self.loop = asyncio.get_running_loop()
        context = None if self.settings.tls is None else tls_context(self.settings.tls)
        self.service = Service(self._states, self.settings, self._tell, self.loop)
        self._door = Admission(self.service)
        timeouts: Any = {} if context is None else {"ssl_handshake_timeout": self.settings.packet_timeout}
        try:
            self._server = await self.loop.create_server(
                lambda: Connection(self.service, self._door),
                self.settings.host,
                self.settings.port,
                ssl=context,
                backlog=_BACKLOG,
                **timeouts,
            )
        except BaseException:
            self.service.close(0.0)
            raise
        self.port = self._server.sockets[0].getsockname()[1]
        self._sweeper = self.loop.create_task(sweep(self._door.connections, self.service))

    async def stop(self) -> None:
        """Let what is at work end, for a while; then close everything. Idempotent."""
        if self._server is None:
            return
        server, self._server, self._door.is_open = self._server, None, False
        await close_listener(server)  # what was just accepted is turned away
        deadline = self.loop.time() + self.settings.stop_timeout
        for connection in list(self.connections):
            connection.link.stop("stopping")
        await self._wait(self.service.idle, deadline)
        for connection in list(self.connections):
            connection.link.transport.close()
        await self._wait(self._door.all_ended, min(deadline, self.loop.time() + _LAST_ANSWERS_S))
        for connection in list(self.connections):
            connection.link.transport.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
        await asyncio.to_thread(self.service.close, max(0.0, deadline - self.loop.time()))
        await self._wait(self._door.all_ended, self.loop.time() + _LAST_ANSWERS_S)

    async def _wait(self, event: asyncio.Event, deadline: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), max(0.0, deadline - self.loop.time()))

    def gauges(self) -> dict[str, float]:
        """Give what holds right now, for metrics."""
        return {"open_connections": len(self.connections), **self.service.gauges()}


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """
    Make the context of a server.

    Raises:
        ConfigError: A file is missing, or is not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
        if settings.client_ca is not None:
            context.load_verify_locations(settings.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the TLS files cannot be used: {error}") from None
    return context
