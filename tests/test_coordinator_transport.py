"""Messages between processes: frames, secrets, TLS, hostile bytes, and connections that break."""

from __future__ import annotations

import datetime as dt
import gc
import ipaddress
import json
import logging
import secrets
import socket
import ssl
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from millpond.coordinator import (
    Coordinator,
    CoordinatorEnd,
    CoordinatorSettings,
    Member,
    MemberEnd,
    NothingKept,
    Participant,
    in_directory,
    wire,
)
from millpond.coordinator.binding import Address, Trust
from millpond.coordinator.ends import LocalHub
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.messages import Alive, Begin, Here, Joined, Order, Report, Saved
from millpond.coordinator.state import InlineState, Place
from millpond.coordinator.tcp_member import TcpLink
from millpond.coordinator.tcp_server import TcpCoordinatorEnd
from millpond.coordinator.wire import Sealer
from millpond.errors import ConfigError, FormatError, TransientError
from millpond.spi import Secret

SECRET = Secret("correct horse battery staple")
LOOPBACK = Address()


def alive(member: str = "a") -> Alive:
    return Alive(member=member, incarnation=f"{member}#1")


class Mailbox:
    """Takes what is delivered; a test waits for it."""

    def __init__(self) -> None:
        self.queue: Queue[Any] = Queue()

    def __call__(self, message: Any) -> None:
        self.queue.put(message)

    def next(self, timeout_s: float = 20.0) -> Any:
        return self.queue.get(timeout=timeout_s)

    def is_empty(self, timeout_s: float = 0.3) -> bool:
        try:
            self.queue.get(timeout=timeout_s)
        except Empty:
            return True
        return False


@contextmanager
def listening(trust: Trust | None = None, **said: Any) -> Iterator[tuple[TcpCoordinatorEnd, Mailbox]]:
    """A coordinator's end and what it got."""
    end, got = TcpCoordinatorEnd(LOOPBACK, trust, **said), Mailbox()
    end.open(got)
    try:
        yield end, got
    finally:
        end.close()


@contextmanager
def linked(*addresses: Address, trust: Trust | None = None, **said: Any) -> Iterator[TcpLink]:
    link = TcpLink(addresses, trust, retry_s=0.05, **said)
    try:
        yield link
    finally:
        link.close()


def joined(link: TcpLink, got: Mailbox, member: str = "a") -> tuple[Any, Mailbox]:
    """Open a member's end; give it once the coordinator has heard of it, and its orders."""
    end, orders = link.member_end(member), Mailbox()
    end.open(orders)
    end.send(alive(member))
    assert got.next() == alive(member)
    return end, orders


def begin(number: int) -> Begin:
    return Begin(epoch=1, transaction=TransactionId(1, 1), attempt=JobCheckpointId(1, number))


# --- both transports


def test_in_one_process_orders_and_reports_arrive() -> None:
    """The transport within a process delivers to the member that is meant, to all, and to whoever leads."""
    hub, got, a, b = LocalHub(), Mailbox(), Mailbox(), Mailbox()
    first, second = hub.member_end("a"), hub.member_end("b")
    first.open(a)
    second.open(b)
    first.send(alive())  # nobody leads: lost
    end = hub.coordinator_end()
    end.open(got)
    first.send(alive())
    assert got.next() == alive()
    end.send("b", begin(1))
    end.send("nobody", begin(1))
    end.broadcast(begin(2))
    assert [b.next(), b.next(), a.next()] == [begin(1), begin(2), begin(2)]
    later = hub.coordinator_end()
    later.open(a)
    end.close()  # it leads no more: that changes nothing
    second.send(alive("b"))
    assert a.next() == alive("b")
    again, anew = hub.member_end("a"), Mailbox()
    again.open(anew)
    first.close()  # an earlier start of the member: that changes nothing either
    later.send("a", begin(3))
    assert anew.next() == begin(3)


class Actor:
    """What an engine has: an object with a mailbox, to which bytes are sent."""

    def __init__(self) -> None:
        self.receive: Callable[[bytes], None] = lambda data: None


class Leads(CoordinatorEnd):
    """A coordinator's end over actors."""

    def __init__(self, own: Actor, members: dict[str, Actor]) -> None:
        self.own = own
        self.members = members

    def open(self, deliver: Callable[[Report], None]) -> None:
        self.own.receive = lambda data: deliver(wire.report_of(data))

    def send(self, member: str, order: Order) -> None:
        self.members[member].receive(wire.to_json(wire.Addressed(member, order)))

    def broadcast(self, order: Order) -> None:
        for member in self.members:
            self.send(member, order)

    def close(self) -> None:
        self.own.receive = lambda data: None


class Follows(MemberEnd):
    """A member's end over actors."""

    def __init__(self, own: Actor, coordinator: Actor) -> None:
        self.own = own
        self.coordinator = coordinator

    def open(self, deliver: Callable[[Order], None]) -> None:
        self.own.receive = lambda data: deliver(wire.addressed_of(data).order)

    def send(self, report: Report) -> None:
        self.coordinator.receive(wire.to_json(report))

    def close(self) -> None:
        self.own.receive = lambda data: None


class Host(Participant):
    """A host without state, which saves when it is asked to."""

    def __init__(self, name: str, end: MemberEnd) -> None:
        self.member = Member(name, Place(name), NothingKept(), end, self)
        self.finished: list[JobCheckpointId] = []

    def begin(self, attempt: JobCheckpointId) -> None:
        self.member.save(attempt)

    def completed(self, attempt: JobCheckpointId) -> None:
        self.finished.append(attempt)


def test_somebody_elses_message_passing_carries_them(tmp_path: Path) -> None:
    """Actors that pass plain bytes to one another are a transport by two small classes; nobody knows the difference."""
    actor, members = Actor(), {"a": Actor(), "b": Actor()}
    settings = CoordinatorSettings(job="job", members={name: Place(name) for name in members}, interval_s=1e6)
    with in_directory(tmp_path, "job") as metadata:
        leading = Coordinator(settings, metadata, lambda: Leads(actor, members))
        thread = threading.Thread(target=leading.run)
        thread.start()
        first, second = (Host(name, Follows(own, actor)) for name, own in members.items())
        with first.member, second.member:
            while not (first.member.may_process and second.member.may_process):
                first.member.poll(0.02)
                second.member.poll(0.02)
            leading.request()
            while not (first.finished and second.finished):
                first.member.poll(0.02)
                second.member.poll(0.02)
        leading.close()
        thread.join(20)
    assert first.finished == second.finished


@pytest.mark.parametrize("trust", [None, Trust(secret=SECRET)], ids=["open", "secret"])
def test_over_tcp_orders_and_reports_arrive(trust: Trust | None) -> None:
    """Two members of one process share a connection; each gets its own orders, and those for all once."""
    with listening(trust) as (end, got), linked(end.address, trust=trust) as link:
        first, a = joined(link, got, "a")
        _, b = joined(link, got, "b")
        end.send("b", begin(1))
        end.broadcast(begin(2))
        assert [b.next(), b.next(), a.next()] == [begin(1), begin(2), begin(2)]
        saved = Saved(
            member="a",
            incarnation="a#1",
            transaction=TransactionId(1, 1),
            attempt=JobCheckpointId(1, 2),
            state=InlineState(bytes(range(256)) * 1000),
        )
        first.send(saved)
        assert got.next() == saved
        first.close()
        end.send("a", begin(3))
        assert a.is_empty()


def test_ten_thousand_messages_arrive_in_order() -> None:
    """On one connection nothing is lost and nothing overtakes, in both directions (heron 14, 15)."""
    trust = Trust(secret=SECRET)
    with listening(trust) as (end, got), linked(end.address, trust=trust) as link:
        member, orders = joined(link, got)
        for number in range(1, 10_001):
            end.send("a", begin(number))
            if number % 10 == 0:
                member.send(Alive(member="a", incarnation=str(number)))
        assert [orders.next().attempt.number for _ in range(10_000)] == list(range(1, 10_001))
        assert [int(got.next().incarnation) for _ in range(1000)] == list(range(10, 10_001, 10))


def test_port_0_is_a_free_one_that_is_told() -> None:
    """A coordinator that listens at port 0 says which port it got (heron 13)."""
    with listening() as (end, _), listening() as (other, _):
        assert 0 < end.address.port != other.address.port > 0


def test_a_port_that_is_taken_is_an_error() -> None:
    """Listening where somebody listens already may work later, and the message says so."""
    with listening() as (end, _), pytest.raises(TransientError, match="is another coordinator still there"):
        TcpCoordinatorEnd(end.address).open(Mailbox())


def test_a_member_finds_the_next_coordinator() -> None:
    """When a coordinator is gone its members connect to the one that leads now, at another address."""
    with listening() as (first, got), listening() as (second, later), linked(first.address, second.address) as link:
        member, orders = joined(link, got)
        first.close()
        deadline = threading.Event()
        while later.queue.empty():
            member.send(alive())  # as a member does regularly
            assert not deadline.wait(0.05)
        second.send("a", begin(7))
        assert orders.next() == begin(7)


def test_a_coordinator_that_hangs_is_left() -> None:
    """A connection on which nothing comes is made anew, though the other end's machine keeps it open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        hanging = Address(port=server.getsockname()[1])
        with listening() as (end, got), linked(hanging, end.address, timeout_s=0.3) as link:
            joined(link, got)


def test_what_is_idle_for_too_long_is_connected_anew() -> None:
    """A leader that stops in the middle is left by its members after their idle time, and they come again."""
    with listening() as (end, got), linked(end.address, idle_timeout_s=0.3) as link:
        member, _ = joined(link, got)
        first = dict(end._routes)["a"]
        waiting = threading.Event()
        while end._routes.get("a") in (first, None):
            member.send(alive())
            assert not waiting.wait(0.05)


# --- who may speak


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "coordinator.example"])
def test_only_the_loopback_may_be_open(host: str) -> None:
    """Where others could connect, a secret or mutual TLS is asked for; one-sided TLS is not enough."""
    with pytest.raises(ConfigError, match="anybody"):
        TcpCoordinatorEnd(Address(host=host, port=1))
    one_sided = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(ConfigError, match="CERT_REQUIRED"):
        TcpCoordinatorEnd(Address(host=host, port=1), Trust(tls=one_sided))
    mutual = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    mutual.verify_mode = ssl.CERT_REQUIRED
    TcpCoordinatorEnd(Address(host=host, port=1), Trust(tls=mutual))
    TcpCoordinatorEnd(Address(host=host, port=1), Trust(secret=SECRET))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_the_loopback_may_be_open(host: str) -> None:
    """On the loopback nobody has to prove anything."""
    TcpCoordinatorEnd(Address(host=host, port=1))


def test_a_short_secret_is_refused() -> None:
    """A secret that can be guessed is a ConfigError, which says how to make one and does not show it."""
    with pytest.raises(ConfigError, match="openssl rand") as refused:
        Trust(secret=Secret("sesame"))
    assert "sesame" not in str(refused.value) and "sesame" not in repr(Trust(secret=SECRET))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (Trust(secret=SECRET), None),
        (None, Trust(secret=SECRET)),
        (Trust(secret=SECRET), Trust(secret=Secret("x" * 32))),
    ],
    ids=["none given", "none asked for", "another"],
)
def test_a_member_without_the_secret_gets_nothing_through(
    theirs: Trust | None, ours: Trust | None, caplog: pytest.LogCaptureFixture
) -> None:
    """With no secret, a needless one, or a wrong one, nothing is delivered either way, and the log says why."""
    with listening(theirs) as (end, got), linked(end.address, trust=ours) as link:
        member, orders = link.member_end("a"), Mailbox()
        member.open(orders)
        member.send(alive())
        end.broadcast(begin(1))
        assert got.is_empty(0.5) and orders.is_empty(0.1)
    assert "secret" in caplog.text


class Wire:
    """A connection that a test speaks by hand."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection((address.host, address.port), 10)
        self.nonce = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def frame(self) -> bytes:
        size = struct.unpack(">I", self.exactly(4))[0]
        return self.exactly(size)

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def send(self, body: bytes) -> None:
        self.socket.sendall(struct.pack(">I", len(body)) + body)

    def greet(self, secret: Secret | None = None) -> None:
        hello = json.loads(self.frame())
        self.nonce = "11" * 16
        self.send(wire.to_json(wire.ClientHello(self.nonce, wire.proof(secret, "client", hello["nonce"], self.nonce))))
        self.frame()
        self.sealer = Sealer(secret, "reports", hello["nonce"], self.nonce)

    def is_closed(self) -> bool:
        try:
            while self.socket.recv(1 << 16):
                pass
            return True
        except ConnectionError:
            return True


REPORT = wire.to_json(Alive(member="a", incarnation="x"))


@pytest.mark.parametrize(
    "hostile",
    [
        struct.pack(">I", 0),
        struct.pack(">I", 0xFFFFFFFF) + b"x",
        struct.pack(">I", 1 << 30),
        struct.pack(">I", 3) + b"abc",
        struct.pack(">I", 2) + b"{}",
        struct.pack(">I", 20_000) + b"[" * 20_000,
        struct.pack(">I", 4) + b'"\xff"{',
        struct.pack(">I", 17) + b'{"type":"Unknown"',
        struct.pack(">I", 30) + b'{"type":"Alive","member":"a"}  ',
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
    ],
)
@pytest.mark.parametrize("greeted", [True, False])
def test_hostile_bytes_end_their_connection_only(hostile: bytes, greeted: bool) -> None:
    """Whatever comes, before or after the greeting, ends that connection; another member's goes on undisturbed."""
    with listening(greeting_timeout_s=5.0) as (end, got), linked(end.address) as link:
        _, orders = joined(link, got)
        bad = Wire(end.address)
        if greeted:
            bad.greet()
        else:
            bad.frame()
        bad.socket.sendall(hostile)
        bad.socket.shutdown(socket.SHUT_WR)
        assert bad.is_closed()
        bad.socket.close()
        end.send("a", begin(1))
        assert orders.next() == begin(1)


@given(st.binary(min_size=1, max_size=300))
def test_no_bytes_are_taken_for_a_message_of_ours(data: bytes) -> None:
    """Random bytes are a FormatError for each decoder, never another exception."""
    for read in (wire.report_of, wire.addressed_of, lambda some: wire.hello_of(some, wire.ClientHello)):
        with suppress(FormatError):
            read(data)


def test_a_newcomer_that_says_nothing_is_cut_off() -> None:
    """Who does not greet in time, or sends one byte at a time for ever, does not stay."""
    with listening(greeting_timeout_s=0.2) as (end, _):
        silent = Wire(end.address)
        silent.frame()
        silent.socket.sendall(b"\x00")
        assert silent.is_closed()
        silent.socket.close()


def test_a_message_may_come_byte_by_byte() -> None:
    """How a message is cut into pieces on its way changes nothing."""
    with listening() as (end, got):
        slow = Wire(end.address)
        slow.greet()
        for byte in struct.pack(">I", len(REPORT)) + REPORT:
            slow.socket.sendall(bytes([byte]))
        assert got.next() == Alive(member="a", incarnation="x")
        slow.socket.close()


@pytest.mark.parametrize("over", [0, 1])
def test_the_largest_message_and_one_byte_more(over: int) -> None:
    """A report of exactly the limit is taken; one byte more ends the connection before it is read."""
    with listening() as (end, got):
        large = Wire(end.address)
        large.greet()
        body = REPORT[:-1] + b" " * (wire.MAX_FRAME + 32 + over - len(REPORT)) + REPORT[-1:]
        with suppress(OSError):
            large.send(body)
        assert large.is_closed() if over else got.next() == Alive(member="a", incarnation="x")
        large.socket.close()


@pytest.mark.parametrize("trick", ["changed", "repeated", "left out", "forged", "turned round"])
def test_a_frame_is_believed_only_as_the_next_one_of_who_knows_the_secret(trick: str) -> None:
    """Somebody in between who changes, repeats, leaves out, forges or turns round a frame gets none through."""
    with listening(Trust(secret=SECRET)) as (end, got):
        middle = Wire(end.address)
        middle.greet(SECRET)
        frames = [middle.sealer.frame(REPORT) for _ in range(2)]
        middle.socket.sendall(frames[0])
        assert isinstance(got.next(), Alive)
        match trick:
            case "changed":
                middle.socket.sendall(frames[1][:-1] + b" ")
            case "repeated":
                middle.socket.sendall(frames[0])
            case "left out":
                middle.socket.sendall(middle.sealer.frame(REPORT))
            case "forged":
                middle.send(secrets.token_bytes(32) + REPORT)
            case "turned round":
                other = Sealer(SECRET, "orders", "", middle.nonce)
                middle.socket.sendall(other.frame(REPORT))
        assert middle.is_closed() and got.is_empty()
        middle.socket.close()


def test_a_member_that_reads_nothing_is_cut_off() -> None:
    """Orders that pile up for one member end its connection, and fill nobody's memory."""
    with listening(max_unsent=1 << 16) as (end, got):
        stuck = Wire(end.address)
        stuck.greet()
        stuck.send(REPORT)
        got.next()
        for number in range(200_000):
            end.send("a", begin(number))
            if number % 1000 == 0 and not end._routes:
                break
        waiting = threading.Event()
        for _ in range(200):
            if not end._connections:
                break
            waiting.wait(0.05)
        assert not end._connections
        stuck.socket.close()


def test_more_connections_than_allowed_are_refused() -> None:
    """Newcomers beyond the limit are cut off, and those that are there stay."""
    with listening(max_connections=2) as (end, got), linked(end.address) as link:
        _, orders = joined(link, got)
        second = Wire(end.address)
        second.greet()
        third = Wire(end.address)
        assert third.is_closed()
        end.send("a", begin(1))
        assert orders.next() == begin(1)
        for one in (second, third):
            one.socket.close()


def test_closing_leaves_no_thread_and_no_socket() -> None:
    """After both ends are closed their threads have ended, and the port is free again."""
    with listening() as (end, got), linked(end.address) as link:
        joined(link, got)
        address = end.address
    assert not [
        t for t in threading.enumerate() if t.name.startswith(("millpond-coordinator-tcp", "millpond-member-tcp"))
    ]
    again = TcpCoordinatorEnd(address)
    again.open(Mailbox())
    again.close()
    again.close()


def test_a_coordinator_that_closes_leaves_no_socket_of_a_newcomer() -> None:
    """Connections that come in the moment of the close are closed by it, and not left to the garbage collector."""
    for count in range(1, 8):
        with ExitStack() as outlasting, warnings.catch_warnings():
            warnings.simplefilter("error")
            with listening() as (end, _):
                newcomers = [outlasting.enter_context(Wire(end.address)) for _ in range(count)]
            del end
            gc.collect()
            assert all(newcomer.is_closed() for newcomer in newcomers)


# --- TLS


def certificate(folder: Path, name: str, issuer: tuple[Any, Any] | None) -> tuple[Any, Any]:
    """Make a key and a certificate for *name*, signed by *issuer*, and put both into files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[1].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
    )
    made = builder.sign(issuer[0] if issuer else key, hashes.SHA256())
    (folder / f"{name}.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return key, made


@pytest.fixture
def tls(tmp_path: Path) -> Callable[[bool, str], ssl.SSLContext]:
    """Give contexts of a small authority of one's own, and of a foreign one."""
    for prefix in ("", "foreign-"):
        authority = certificate(tmp_path, f"{prefix}authority", None)
        certificate(tmp_path, f"{prefix}end", authority)

    def context(is_server: bool, prefix: str = "") -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        made.load_verify_locations(tmp_path / "authority.pem")
        made.verify_mode = ssl.CERT_REQUIRED
        if prefix != "none":
            made.load_cert_chain(tmp_path / f"{prefix}end.pem")
        return made

    return context


@pytest.mark.parametrize("secret", [None, SECRET], ids=["tls", "tls and secret"])
def test_mutual_tls_carries_messages(tls: Callable[..., ssl.SSLContext], secret: Secret | None) -> None:
    """With certificates of one authority on both ends messages pass, with a secret besides or without."""
    trust = Trust(secret=secret, tls=tls(True))
    with listening(trust) as (end, got), linked(end.address, trust=Trust(secret=secret, tls=tls(False))) as link:
        _, orders = joined(link, got)
        end.send("a", begin(1))
        assert orders.next() == begin(1)


def test_over_tls_both_directions_at_once_lose_nothing(tls: Callable[..., ssl.SSLContext]) -> None:
    """Reports and orders that cross on one TLS connection all arrive: no two threads work on one TLS object."""
    with listening(Trust(tls=tls(True))) as (end, got), linked(end.address, trust=Trust(tls=tls(False))) as link:
        for start in range(20):
            member, orders = joined(link, got, f"m{start}")
            for number in range(1, 201):
                end.send(f"m{start}", begin(number))
                member.send(Alive(member=f"m{start}", incarnation=str(number)))
            assert [orders.next().attempt.number for _ in range(200)] == list(range(1, 201))
            assert [int(got.next().incarnation) for _ in range(200)] == list(range(1, 201))


class Told(logging.Handler):
    """Takes what is logged as a warning; a test waits for it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts = Mailbox()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts(record.getMessage())


@pytest.fixture
def told() -> Iterator[Mailbox]:
    handler = Told()
    logging.getLogger("millpond").addHandler(handler)
    yield handler.texts
    logging.getLogger("millpond").removeHandler(handler)


def test_a_coordinator_with_a_foreign_certificate_is_told_of(
    tls: Callable[..., ssl.SSLContext], tmp_path: Path, told: Mailbox
) -> None:
    """A member that cannot believe its coordinator's certificate says so, once, and does not wait in silence."""
    doubting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    doubting.load_verify_locations(tmp_path / "foreign-authority.pem")
    with listening(Trust(tls=tls(True))) as (end, _), linked(end.address, trust=Trust(tls=doubting)) as link:
        link.member_end("a").open(Mailbox())
        assert "TLS with the coordinator at 127.0.0.1" in (text := told.next()) and "certificate" in text
        assert told.is_empty(0.3)


def test_a_member_without_any_coordinator_says_so(told: Mailbox) -> None:
    """When no coordinator answers for long, the log warns once, with all the addresses, and the member tries on."""
    with listening() as (gone, _):
        address = gone.address
    with linked(address, address, timeout_s=0.2) as link:
        link.member_end("a").open(Mailbox())
        assert f"no connection to a coordinator at {address}, {address}" in told.next()
        assert told.is_empty(0.3)
        again, got = TcpCoordinatorEnd(address), Mailbox()
        again.open(got)
        joined(link, got)
        again.close()


def test_two_addresses_that_fail_in_two_ways_are_told_of_once_each(told: Mailbox) -> None:
    """A coordinator that asks for a secret, and a standby that does not listen, do not take turns in the log."""
    with listening() as (gone, _):
        standby = gone.address
    with listening(Trust(secret=SECRET)) as (end, _), linked(end.address, standby, timeout_s=0.2) as link:
        link.member_end("a").open(Mailbox())
        texts = sorted([told.next(), told.next()])
        assert "no connection to a coordinator" in texts[0]
        assert f"the coordinator at {end.address} cannot be spoken to" in texts[1]
        assert told.is_empty(1.0)


@pytest.mark.parametrize("member", ["none", "foreign-"])
def test_mutual_tls_refuses_strangers(tls: Callable[..., ssl.SSLContext], member: str) -> None:
    """A member without a certificate, or with one of another authority, gets nothing through."""
    with (
        listening(Trust(tls=tls(True))) as (end, got),
        linked(end.address, trust=Trust(tls=tls(False, member))) as link,
    ):
        stranger = link.member_end("a")
        stranger.open(Mailbox())
        stranger.send(alive())
        assert got.is_empty(0.5)


# --- addresses and messages


@pytest.mark.parametrize("text", ["", "x", ":1", "host:", "host:x", "host:70000", "host:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """Text that is not ``host:port`` is a ConfigError."""
    with pytest.raises(ConfigError, match="not an address"):
        Address.parse(text)


@pytest.mark.parametrize("text", ["127.0.0.1:80", "[::1]:80", "host.example:65535"])
def test_an_address_is_read_and_shown(text: str) -> None:
    """What is read is shown in the same way."""
    assert str(Address.parse(text)) == text


def test_a_member_needs_addresses_with_ports() -> None:
    """No address, or one without a port, is a ConfigError."""
    for addresses in ([], [Address()]):
        with pytest.raises(ConfigError, match="addresses"):
            TcpLink(addresses)


def test_a_message_over_the_limit_is_refused_where_it_is_made() -> None:
    """State that is too large for a message is a FormatError that says to keep it by location."""
    report = Saved(
        member="a",
        incarnation="x",
        transaction=TransactionId(1, 1),
        attempt=JobCheckpointId(1, 1),
        state=InlineState(bytes(wire.MAX_FRAME)),
    )
    with pytest.raises(FormatError, match="by location"):
        wire.to_json(report)


def test_every_message_survives_the_wire() -> None:
    """Each kind of report and order is read back equal from its bytes."""
    reports: list[Report] = [alive(), Joined(member="ü", incarnation="x", place=Place("c", 1, 2, (0, 64)))]
    assert [wire.report_of(wire.to_json(report)) for report in reports] == reports
    orders: list[Order] = [Here(epoch=3), begin(9)]
    for order in orders:
        assert wire.addressed_of(wire.to_json(wire.Addressed("a", order))).order == order
