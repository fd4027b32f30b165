"""The coordinator's end over TCP: one thread with an event loop, however many members."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from attrs import define, field

from millpond.coordinator.binding import Address, Trust
from millpond.coordinator.ends import CoordinatorEnd
from millpond.coordinator.messages import Order, Report
from millpond.coordinator.wire import (
    MAX_GREETING,
    PROTOCOL,
    Addressed,
    ClientHello,
    Sealer,
    ServerHello,
    ServerProof,
    hello_of,
    is_proof,
    new_nonce,
    proof,
    read_frame,
    report_of,
    to_json,
)
from millpond.errors import ConfigError, FormatError, TransientError
from millpond.listening import close_listener

log = logging.getLogger("millpond")


@define(eq=False)
class _Connection:
    """One member process; several members may speak through it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    where: str
    orders: Sealer
    reports: Sealer
    members: set[str] = field(factory=set)


class TcpCoordinatorEnd(CoordinatorEnd):
    """
    Listens for members. What does not belong to the protocol ends its own connection and nothing else.

    Attributes:
        address: Where it listens, with the real port, once it is open.
    """

    def __init__(
        self,
        address: Address,
        trust: Trust | None = None,
        *,
        greeting_timeout_s: float = 10.0,
        idle_timeout_s: float = 120.0,
        max_connections: int = 4096,
        max_unsent: int = 16 << 20,
    ) -> None:
        """
        Prepare; :meth:`open` listens.

        Args:
            address: Where to listen.
            trust: How members prove who they are.
            greeting_timeout_s: A newcomer that has not proved itself by then is cut off.
            idle_timeout_s: A connection on which nothing comes for so long is ended; members send every few seconds.
            max_connections: More are refused.
            max_unsent: A member that leaves so many bytes of orders unread is cut off.

        Raises:
            ConfigError: Others could reach that address, and nobody would have to prove anything.
        """
        self.address = address
        self._trust = trust or Trust()
        self._trust.check_binding(address)
        self._greeting_timeout_s = greeting_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._max_connections = max_connections
        self._max_unsent = max_unsent
        self._deliver: Callable[[Report], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._connections: set[_Connection] = set()
        self._greeting = 0
        self._routes: dict[str, _Connection] = {}

    # ------------------------------------------------------------------------------------------ the coordinator's side

    def open(self, deliver: Callable[[Report], None]) -> None:
        """Listen, and deliver reports on the loop's thread."""
        self._deliver = deliver
        ready: Future[Address] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="millpond-coordinator-tcp", daemon=True
        )
        self._thread.start()
        self.address = ready.result(30.0)

    def send(self, member: str, order: Order) -> None:
        """Put *order* on the member's connection."""
        self._call(lambda: self._send(member, order))

    def broadcast(self, order: Order) -> None:
        """Put *order* on every connection, once."""
        self._call(lambda: self._broadcast(order))

    def close(self) -> None:
        """End all connections and the thread."""
        self._deliver = None
        stop = self._stop
        if stop is not None:
            self._call(stop.set)
        if self._thread is not None:
            self._thread.join(10.0)

    def _call(self, act: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: orders are lost, as they may be
                loop.call_soon_threadsafe(act)

    # ------------------------------------------------------------------------------------------ the loop's thread

    async def _serve(self, ready: Future[Address]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await asyncio.start_server(
                self._talk,
                self.address.host,
                self.address.port,
                ssl=self._trust.tls,
                ssl_handshake_timeout=self._greeting_timeout_s if self._trust.tls is not None else None,
                backlog=512,
            )
        except OSError as error:
            ready.set_exception(_cannot_listen(self.address, error))
            return
        port = server.sockets[0].getsockname()[1]
        ready.set_result(Address(host=self.address.host, port=port))
        await self._stop.wait()
        await close_listener(server)
        for connection in list(self._connections):
            connection.writer.transport.abort()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 5.0)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak with one newcomer until it goes, errs, or is cut off."""
        where = str(writer.get_extra_info("peername"))
        connection: _Connection | None = None
        try:
            if self._greeting + len(self._connections) >= self._max_connections:
                raise FormatError(f"there are {self._max_connections} connections already")
            self._greeting += 1
            try:
                async with asyncio.timeout(self._greeting_timeout_s):
                    connection = await self._greet(reader, writer, where)
            finally:
                self._greeting -= 1
            self._connections.add(connection)
            while True:
                async with asyncio.timeout(self._idle_timeout_s):
                    content = await read_frame(reader)
                self._take(connection, report_of(connection.reports.open(content)))
        except FormatError as error:
            log.warning("coordinator: the connection from %s is ended: %s", where, error)
        except (OSError, EOFError, TimeoutError) as error:
            log.debug("coordinator: the connection from %s has ended: %r", where, error)
        finally:
            if connection is not None:
                self._drop(connection)
            writer.transport.abort()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, where: str) -> _Connection:
        secret, nonce = self._trust.secret, new_nonce()
        plain = Sealer(None, "", "", "")
        writer.write(plain.frame(to_json(ServerHello(PROTOCOL, nonce, secret is not None))))
        await writer.drain()
        hello = hello_of(await read_frame(reader, MAX_GREETING), ClientHello)
        if not is_proof(hello.proof, proof(secret, "client", nonce, hello.nonce)):
            raise FormatError("it does not know the shared secret")
        writer.write(plain.frame(to_json(ServerProof(proof(secret, "server", nonce, hello.nonce)))))
        await writer.drain()
        orders, reports = (Sealer(secret, direction, nonce, hello.nonce) for direction in ("orders", "reports"))
        return _Connection(reader, writer, where, orders, reports)

    def _take(self, connection: _Connection, report: Report) -> None:
        self._routes[report.member] = connection
        connection.members.add(report.member)
        deliver = self._deliver
        if deliver is not None:
            deliver(report)

    def _send(self, member: str, order: Order) -> None:
        connection = self._routes.get(member)
        if connection is not None:
            self._write(connection, _encoded(Addressed(member, order)))

    def _broadcast(self, order: Order) -> None:
        data = _encoded(Addressed("", order))
        for connection in list(self._connections):
            self._write(connection, data)

    def _write(self, connection: _Connection, data: bytes | None) -> None:
        if data is None or connection not in self._connections:
            return
        if connection.writer.transport.get_write_buffer_size() + len(data) > self._max_unsent:
            log.warning(
                "coordinator: the member process at %s reads nothing: its connection is ended", connection.where
            )
            connection.writer.transport.abort()
            self._drop(connection)
            return
        connection.writer.write(connection.orders.frame(data))

    def _drop(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        for member in connection.members:
            if self._routes.get(member) is connection:
                del self._routes[member]


def _encoded(addressed: Addressed) -> bytes | None:
    try:
        return to_json(addressed)
    except FormatError as error:
        log.error("coordinator: an order to %s cannot be sent: %s", addressed.to or "all members", error)
        return None


def _cannot_listen(address: Address, error: OSError) -> Exception:
    if address.port == 0 or error.errno is None:
        return ConfigError(f"cannot listen at {address}: {error}")
    return TransientError(f"cannot listen at {address}: {error}; is another coordinator still there?")
