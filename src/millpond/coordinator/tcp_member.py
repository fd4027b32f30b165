"""A member process's end over TCP: one connection for all of its members, made again whenever it breaks."""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import cycle

from attrs import define

from millpond.coordinator.binding import Address, Trust
from millpond.coordinator.ends import MemberEnd
from millpond.coordinator.messages import Order, Report
from millpond.coordinator.wire import (
    HEAD,
    MAX_GREETING,
    PROTOCOL,
    ClientHello,
    Sealer,
    ServerHello,
    ServerProof,
    addressed_of,
    frame_size,
    hello_of,
    is_proof,
    new_nonce,
    proof,
    to_json,
)
from millpond.errors import ConfigError, FormatError

log = logging.getLogger("millpond")

_MOST_UNSENT = 10_000


class TcpLink:
    """
    A connection to whoever leads, shared by the members of one process. Any thread.

    It tries the addresses in turn until a coordinator answers, and again when the connection breaks. What cannot be
    sent meanwhile is lost, but for what is waiting when the very first connection is made.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        trust: Trust | None = None,
        *,
        timeout_s: float = 10.0,
        idle_timeout_s: float = 20.0,
        retry_s: float = 0.2,
    ) -> None:
        """
        Prepare; the first member that opens its end connects.

        Args:
            addresses: Where coordinators may listen; a standby listens once it leads.
            trust: How both ends prove who they are.
            timeout_s: How long connecting, greeting and each piece of sending may take.
            idle_timeout_s: A connection on which nothing comes for so long is made anew; a coordinator sends regularly.
            retry_s: The pause after each address that did not answer.

        Raises:
            ConfigError: There is no address, or one has no port.
        """
        if not addresses or any(address.port == 0 for address in addresses):
            raise ConfigError(f"a member needs the addresses of its coordinators, with ports, not {list(addresses)}")
        self._addresses = cycle(addresses)
        self._trust = trust or Trust()
        self._timeout_s = timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._retry_s = retry_s
        self._deliver: dict[str, Callable[[Order], None]] = {}
        self._lock = threading.Lock()
        self._unsent: deque[bytes] = deque(maxlen=_MOST_UNSENT)
        self._to_send = threading.Condition(self._lock)
        self._ended = threading.Event()
        self._socket: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._told = ""

    def member_end(self, member: str) -> MemberEnd:
        """Give the end of *member*."""
        return _TcpMemberEnd(self, member)

    def begin(self, member: str, deliver: Callable[[Order], None]) -> None:
        """Deliver the orders for *member* from now on."""
        with self._lock:
            self._deliver[member] = deliver
            if not self._threads and not self._ended.is_set():
                self._threads = [threading.Thread(target=self._run, name="millpond-member-tcp", daemon=True)]
                self._threads[0].start()

    def end(self, member: str, deliver: Callable[[Order], None] | None) -> None:
        """Deliver nothing more for *member*, unless a later start of it has taken over."""
        with self._lock:
            if self._deliver.get(member) is deliver:
                self._deliver.pop(member, None)

    def send(self, report: Report) -> None:
        """Put *report* behind what waits to be sent; FormatError if it cannot be written at all."""
        data = to_json(report)
        with self._to_send:
            self._unsent.append(data)
            self._to_send.notify()

    def close(self) -> None:
        """Send what waits, for a moment, then end the connection and the threads; idempotent."""
        with self._to_send:
            if not self._ended.is_set() and self._socket is not None:
                self._to_send.wait_for(lambda: not self._unsent, 1.0)
            self._ended.set()
            self._to_send.notify_all()
        self._break()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(self._timeout_s)

    # ------------------------------------------------------------------------------------------------------- connection

    def _run(self) -> None:
        while not self._ended.is_set():
            address = next(self._addresses)
            try:
                self._talk(address)
            except (OSError, EOFError) as error:
                log.debug("no coordinator at %s: %r", address, error)
            except FormatError as error:
                self._tell_once(f"the coordinator at {address} cannot be spoken to: {error}")
            except Exception:  # whatever it is, the members are lost unless somebody goes on connecting
                log.exception("the connection to the coordinator at %s has failed", address)
            finally:
                self._break()
            self._ended.wait(self._retry_s)

    def _tell_once(self, text: str) -> None:
        """Warn of what goes wrong at each try, once until it changes."""
        if text != self._told:
            log.warning("%s", text)
        self._told = text

    def _talk(self, address: Address) -> None:
        connection = self._connect(address)
        reports, orders = self._greet(connection)
        self._told = ""
        connection.settimeout(self._idle_timeout_s)
        sender = threading.Thread(
            target=self._send_all, args=(connection, reports), name="millpond-member-tcp-send", daemon=True
        )
        with self._lock:
            self._socket = connection
        sender.start()
        try:
            while not self._ended.is_set():
                addressed = addressed_of(orders.open(_read_frame(connection)))
                self._give(addressed.to, addressed.order)
        finally:
            self._break()
            with self._to_send:
                self._unsent.clear()
                self._to_send.notify_all()
            sender.join(self._timeout_s)

    def _connect(self, address: Address) -> socket.socket:
        plain = socket.create_connection((address.host, address.port), self._timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._trust.tls is None:
                return plain
            return self._trust.tls.wrap_socket(plain, server_hostname=self._trust.server_name or address.host)
        except BaseException:
            plain.close()
            raise

    def _greet(self, connection: socket.socket) -> tuple[Sealer, Sealer]:
        """Prove that we know the secret, and let the coordinator prove it."""
        try:
            secret, plain = self._trust.secret, Sealer(None, "", "", "")
            hello = hello_of(_read_frame(connection, MAX_GREETING), ServerHello)
            if hello.millpond != PROTOCOL:
                raise FormatError(f"it speaks protocol {hello.millpond}, and this release {PROTOCOL}")
            if hello.secret != (secret is not None):
                wants = "asks for a shared secret, and none is set" if hello.secret else "knows no shared secret"
                raise FormatError(f"it {wants} here: give both ends the same")
            nonce = new_nonce()
            connection.sendall(plain.frame(to_json(ClientHello(nonce, proof(secret, "client", hello.nonce, nonce)))))
            answer = hello_of(_read_frame(connection, MAX_GREETING), ServerProof)
            if not is_proof(answer.proof, proof(secret, "server", hello.nonce, nonce)):
                raise FormatError("it does not know the shared secret")
            return Sealer(secret, "reports", hello.nonce, nonce), Sealer(secret, "orders", hello.nonce, nonce)
        except BaseException:
            connection.close()
            raise

    def _send_all(self, connection: socket.socket, reports: Sealer) -> None:
        while True:
            with self._to_send:
                while not self._unsent and self._socket is connection and not self._ended.is_set():
                    self._to_send.wait(1.0)
                if self._socket is not connection or self._ended.is_set():
                    return
                data = self._unsent.popleft()
                if not self._unsent:
                    self._to_send.notify_all()
            try:
                connection.sendall(reports.frame(data))
            except OSError:
                self._break()
                return

    def _give(self, member: str, order: Order) -> None:
        with self._lock:
            found = list(self._deliver.values()) if not member else [self._deliver.get(member)]
        for deliver in found:
            if deliver is not None:
                deliver(order)

    def _break(self) -> None:
        with self._lock:
            connection, self._socket = self._socket, None
        if connection is not None:
            with suppress(OSError):  # the other end may have broken it already
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


@define
class _TcpMemberEnd(MemberEnd):
    _link: TcpLink
    _member: str
    _deliver: Callable[[Order], None] | None = None

    def open(self, deliver: Callable[[Order], None]) -> None:
        self._deliver = deliver
        self._link.begin(self._member, deliver)

    def send(self, report: Report) -> None:
        self._link.send(report)

    def close(self) -> None:
        self._link.end(self._member, self._deliver)


def _read_frame(connection: socket.socket, limit: int | None = None) -> bytes:
    head = _read_exactly(connection, HEAD.size)
    return _read_exactly(connection, frame_size(head) if limit is None else frame_size(head, limit))


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    pieces, left = [], size
    while left:
        piece = connection.recv(min(left, 1 << 16))
        if not piece:
            raise EOFError("the coordinator has ended the connection")
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
