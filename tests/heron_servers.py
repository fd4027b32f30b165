"""Served checkpoint managers for tests, and raw sockets to speak to them byte by byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from attrs import define, field

from millpond.blob import BlobStore
from millpond.blob.memory import MemoryBlobStore
from millpond.events import Event
from millpond.heron import messages, peers
from millpond.heron.client import CheckpointClient
from millpond.heron.double import CoordinatorDouble, StreamManagerDouble
from millpond.heron.folder import FolderStore
from millpond.heron.framing import decode, packet_size
from millpond.heron.names import StateKey
from millpond.heron.peers import Instance, Topology, Wire
from millpond.heron.rules import StateRules
from millpond.heron.running import running
from millpond.heron.scratch import Scratch
from millpond.heron.server import HeronServer
from millpond.heron.settings import ServerSettings
from millpond.heron.states import StateStore

HOST = "127.0.0.1"
NAME, ID = "word-count", "word-count-7f3a"
COUNT0, COUNT1, SAY0 = Instance("count", 0, 1), Instance("count", 1, 2), Instance("say", 0, 3, "stmgr-2")
TOPOLOGY = Topology(NAME, ID, (COUNT0, COUNT1, SAY0))
REQID = bytes(range(0x20, 0x40))
TIMEOUT_S = 30.0


class _Closable(Protocol):
    def close(self) -> None: ...


Closing = TypeVar("Closing", bound=_Closable)


@define
class Ear:
    """A listener that remembers, and lets a test wait."""

    heard: list[Event] = field(factory=list)
    _news: threading.Condition = field(factory=threading.Condition)

    def __call__(self, event: Event) -> None:
        with self._news:
            self.heard.append(event)
            self._news.notify_all()

    def of(self, kind: type) -> list[Any]:
        with self._news:
            return [event for event in self.heard if isinstance(event, kind)]

    def wait(self, kind: type, count: int = 1) -> list[Any]:
        """Wait until so many events of *kind* were heard."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.of(kind)) >= count, TIMEOUT_S), (
                f"no {count} {kind}: {self.heard}"
            )
        return self.of(kind)

    def comes(self, wanted: Callable[[Event], bool]) -> bool:
        """Wait until an event was heard that is *wanted*; False: none came in time."""
        with self._news:
            return self._news.wait_for(lambda: any(map(wanted, self.heard)), TIMEOUT_S)


@define
class Served:
    """A running server and what is behind it. The clients that it gives are closed with it, whatever a test does."""

    server: HeronServer
    states: StateStore
    ear: Ear
    blobs: BlobStore
    clients: ExitStack

    @property
    def port(self) -> int:
        return self.server.port

    def stmgr(self, name: str = "stmgr-1", topology: Topology = TOPOLOGY, **more: Any) -> StreamManagerDouble:
        return self._kept(StreamManagerDouble(HOST, self.port, topology, name, **more))

    def coordinator(self, topology: Topology = TOPOLOGY, **more: Any) -> CoordinatorDouble:
        return self._kept(CoordinatorDouble(HOST, self.port, topology, **more))

    def client(self, topology: Topology = TOPOLOGY, **more: Any) -> CheckpointClient:
        return self._kept(CheckpointClient(HOST, self.port, topology, **more))

    def wire(self, **more: Any) -> Wire:
        return self._kept(Wire(HOST, self.port, TIMEOUT_S, **more))

    def raw(self) -> Raw:
        return self._kept(Raw(self.socket()))

    def socket(self) -> socket.socket:
        return self._kept(socket.create_connection((HOST, self.port), TIMEOUT_S))

    def _kept(self, client: Closing) -> Closing:
        self.clients.callback(client.close)
        return client

    def stored(self, instance: Instance, checkpoint: str) -> bytes:
        """Give what is stored of *instance*, read and verified."""
        found = self.states.fetch(key(instance, checkpoint))
        try:
            return b"".join(found.chunks(1 << 20))
        finally:
            found.close()

    def ask(self, what: Callable[[], Any]) -> Any:
        """Give what *what* gives on the server's loop."""
        done: list[Any] = []
        asked = threading.Event()

        def look() -> None:
            done.append(what())
            asked.set()

        self.server.loop.call_soon_threadsafe(look)
        assert asked.wait(TIMEOUT_S)
        return done[0]


class Raw:
    """A socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def packet(self) -> bytes:
        """Give the next whole packet."""
        while (size := packet_size(self._buffer)) is None or len(self._buffer) < size:
            data = self.socket.recv(1 << 20)
            assert data, f"the connection ended with {self._buffer!r}"
            self._buffer += data
        packet, self._buffer = self._buffer[:size], self._buffer[size:]
        return packet

    def answer(self) -> tuple[str, bytes, Any]:
        """Give the next packet's name, request id and message."""
        name, reqid, body = decode(self.packet())
        short = name.rpartition(".")[2]
        return short, reqid, messages.parse(short, body)

    def is_closed(self) -> bool:
        """Tell whether the server has closed the connection; waits for that or for a byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def serving(
    root: Path,
    blobs: BlobStore | None = None,
    rules: StateRules | None = None,
    also: tuple[BlobStore, ...] = (),
    **given: Any,
) -> Iterator[Served]:
    """Serve the word-count topology out of *blobs*, else out of memory."""
    blobs = MemoryBlobStore() if blobs is None else blobs
    scratch = blobs.scratch if isinstance(blobs, FolderStore) else Scratch(root / "scratch")
    ear = Ear()
    states = StateStore(blobs, scratch, rules, also, ear)
    settings = ServerSettings(**{"topologies": {NAME: ID}, **given})
    try:
        with ExitStack() as clients, running(states, settings, ear) as server:
            yield Served(server, states, ear, blobs, clients)
    finally:
        scratch.close()


def key(instance: Instance, checkpoint: str, topology: str = NAME) -> StateKey:
    return StateKey(topology, checkpoint, instance.component, instance.index)


def save_packet(instance: Instance, checkpoint: str, state: bytes | None, reqid: bytes = REQID) -> bytes:
    """Give a whole save."""
    return peers.save_head(instance, checkpoint, None if state is None else len(state), reqid) + (state or b"")
