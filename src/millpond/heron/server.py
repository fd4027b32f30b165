"""The server: connections of all clients, their requests done on bounded threads, and what they may hold counted."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Container, Hashable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from millpond.errors import ConfigError
from millpond.events import Event
from millpond.heron.answers import Answer
from millpond.heron.budget import Budget
from millpond.heron.connection import Connection
from millpond.heron.events import ignore
from millpond.heron.handler import Handler, Work
from millpond.heron.inflow import Inflow, Spooling
from millpond.heron.keyed import KeyedWork, Piece
from millpond.heron.names import StateKey
from millpond.heron.registry import Registry
from millpond.heron.settings import ServerSettings, TlsSettings
from millpond.heron.states import StateStore
from millpond.heron.sweeping import sweep
from millpond.lanes import Workers
from millpond.listening import close_listener

log = logging.getLogger("millpond")

_BACKLOG = 1024
_LARGEST_READ = 1 << 20
_LAST_ANSWERS_S = 2.0


class HeronServer:
    """
    Serves *states* by Heron's protocol. Made, started and stopped on one loop, which :meth:`start` takes.

    Attributes:
        port: Where it listens, once it was started.
    """

    def __init__(self, states: StateStore, settings: ServerSettings, tell: Callable[[Event], None] = ignore) -> None:
        """Keep what is given; *tell* must be quick and raise nothing. The caller closes *states*' store."""
        self.states, self.settings, self.tell = states, settings, tell
        self.registry = Registry(settings.topologies, settings.strict)
        self.budget = Budget(settings.memory)
        self.connections: set[Connection] = set()
        self.handler = Handler(states, settings, self.registry, tell, self.later)
        # Two reads fill a window, so that one is written while the next comes.
        self.buffer = memoryview(bytearray(max(settings.read_size, min(_LARGEST_READ, settings.window // 2))))
        self.small_buffer = self.buffer[: settings.read_size]
        self.port = 0
        self._open: set[Connection] = set()
        self._all_ended = asyncio.Event()
        self._to_write: list[Connection] = []
        self.loop: asyncio.AbstractEventLoop
        self._workers: Workers
        self._work: KeyedWork
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """
        Listen.

        Raises:
            OSError: The address is taken, or not ours.
        """
        self.loop = asyncio.get_running_loop()
        context = None if self.settings.tls is None else tls_context(self.settings.tls)
        self._workers = Workers("heron", self.settings.threads)
        self._work = KeyedWork(self._workers, self.loop)
        timeouts: Any = {} if context is None else {"ssl_handshake_timeout": self.settings.packet_timeout}
        try:
            self._server = await self.loop.create_server(
                lambda: Connection(self),
                self.settings.host,
                self.settings.port,
                ssl=context,
                backlog=_BACKLOG,
                **timeouts,
            )
        except BaseException:
            self._workers.close(0.0)
            raise
        self.port = self._server.sockets[0].getsockname()[1]
        self._sweeper = self.loop.create_task(sweep(self))

    async def stop(self) -> None:
        """Let what is at work end, for a while; then close everything. Idempotent."""
        if self._server is None:
            return
        server, self._server = self._server, None
        await close_listener(server)  # what was just accepted is turned away
        deadline = self.loop.time() + self.settings.stop_timeout
        for connection in list(self.connections):
            connection.stop("stopping")
        await self._wait(self._work.idle, deadline)
        for connection in list(self.connections):
            connection.transport.close()
        await self._wait_for_ends(min(deadline, self.loop.time() + _LAST_ANSWERS_S))
        for connection in list(self.connections):
            connection.transport.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
        await asyncio.to_thread(self._workers.close, max(0.0, deadline - self.loop.time()))
        await self._wait_for_ends(self.loop.time() + _LAST_ANSWERS_S)

    async def _wait_for_ends(self, deadline: float) -> None:
        if self._open:
            self._all_ended.clear()
            await self._wait(self._all_ended, deadline)

    async def _wait(self, event: asyncio.Event, deadline: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), max(0.0, deadline - self.loop.time()))

    # What connections ask

    def admit(self, connection: Connection, address: str) -> str:
        """Take *connection* in; or say why not. Either way it is open until it says that it has :meth:`gone`."""
        self._open.add(connection)
        if self._server is None:
            return "the server stops"
        if not self.settings.admits(address):
            return "its address is not on the allow-list"
        if refusal := self._refuse_certificate(connection):
            return refusal
        if len(self.connections) >= self.settings.max_connections:
            return f"there are {len(self.connections):,} connections, which is the limit"
        self.connections.add(connection)
        return ""

    def _refuse_certificate(self, connection: Connection) -> str:
        wanted = self.settings.tls.client_names if self.settings.tls is not None else frozenset()
        if not wanted:
            return ""
        names = names_in(connection.transport.get_extra_info("peercert") or {})
        return "" if names & wanted else f"its certificate names {', '.join(sorted(names)) or 'nobody'}"

    def write_soon(self, connection: Connection) -> None:
        """
        Let *connection* send what it has after all connections that are ready have been read.

        A client that sleeps is woken once for several answers, which costs more than writing each of them.
        """
        if not self._to_write:
            self.loop.call_soon(self._write_all)
        self._to_write.append(connection)

    def _write_all(self) -> None:
        connections, self._to_write = self._to_write, []
        for connection in connections:
            connection.answers.write_out()

    def gone(self, connection: Connection) -> str:
        """Forget *connection*, and give the topology that it spoke for."""
        self._open.discard(connection)
        if not self._open:
            self._all_ended.set()
        if connection not in self.connections:
            return ""
        topology = self.registry.topology_of(connection) or ""
        self.connections.discard(connection)
        self.registry.closed(connection)
        return topology

    def evict(self, connection: Connection) -> None:
        """Close the connection whose place another one took."""
        connection.drop("another connection registered in its place")

    def can_do_at_once(self, work: Work) -> bool:
        """Tell whether *work* needs no other thread: the store never waits, and nothing else is at work on its key."""
        return self.states.instant and work.immediate and work.key not in self._work.busy

    @property
    def busy(self) -> Container[Hashable]:
        """The keys that a work has its place with."""
        return self._work.busy

    def do(
        self, connection: Connection, work: Work, finish: Callable[[Answer], None], spooling: Spooling | None = None
    ) -> None:
        """
        Do *work* on another thread, and call *finish* with its answer on the loop.

        It takes its place among those with its key at once, and begins when what *spooling* was fed is written.
        """

        def done(ended: Future[Answer]) -> None:
            error = ended.exception()
            if error is None:
                finish(ended.result())
            else:
                finish(self.handler.failed(connection, work, error, connection.peer))

        ready = spooling is None or not spooling.has_state
        piece = Piece(work.key, work.run, done, ready)
        self._work.submit(piece)
        if spooling is not None and not ready:
            self._when_written(spooling, lambda: self._work.make_ready(piece))

    def submit(self, run: Callable[[], Any]) -> Future[Any]:
        """Do *run* on another thread."""
        return self._workers.submit(run)

    def later(self, run: Callable[[], object]) -> object:
        """Do *run* on another thread, if there still is one; nobody waits for it."""
        return self._workers.call_later(lambda: _quietly(run))

    def new_spooling(self, written: Callable[[Spooling, int], None]) -> Spooling:
        """Give what takes a large state to the disk."""
        return Spooling(self.states.scratch, self._workers.lane(), written)

    def large_save(self, connection: Connection, inflow: Inflow) -> Work | bytes:
        """Say what becomes of a large save all of which has arrived; NotThatMessageError where it is none."""
        request = inflow.request()
        reqid, spooling = inflow.head.reqid, inflow.spooling
        if spooling is None:
            limit = self.settings.max_packet
            reason = f"a packet of {inflow.head.total - 4:,} bytes is over the limit of {limit:,}"
            return self.handler.refuse_save(reqid, request, reason)
        if not spooling.has_state:
            return self.handler.save_spilled(connection, reqid, request, connection.peer)

        def store(key: StateKey, plan: Any) -> int | None:
            return self.states.save_spooled(key, spooling.take(), plan).size

        return self.handler.save(connection, reqid, request, store, connection.peer)._replace(immediate=False)

    def _when_written(self, spooling: Spooling, then: Callable[[], None]) -> None:
        """Call *then* on the loop once all that was fed to *spooling* is written."""

        def tell(_: object) -> None:
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(then)

        spooling.lane.submit(lambda: None).add_done_callback(tell)

    def gauges(self) -> dict[str, float]:
        """Give what holds right now, for metrics."""
        return {
            "open_connections": len(self.connections),
            "held_bytes": self.budget.held,
            "requests_at_work": self._work.running,
        }


def _quietly(run: Callable[[], object]) -> None:
    try:
        run()
    except Exception:  # nobody waits for it, and a thread may not end by it
        log.exception("a piece of work that nobody waits for failed")


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


def names_in(certificate: Any) -> set[str]:
    """Give the names that a client's certificate was made for."""
    names = {value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI", "email")}
    names |= {value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"}
    return names
