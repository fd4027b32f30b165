"""
What a served checkpoint manager of Heron's protocol costs beside a bare asyncio server and a bare copy, interleaved.

    python benchmarks/heron.py [--seconds 3] [--repetitions 5] [--megabytes 64] [--connections 1000] [--directory DIR]

Servers run in processes of their own. The echo is made of asyncio's streams, with the frames of the saves: it reads a
length and what it counts, and sends it back; one of a protocol class, which parses nothing either, stands beside it.
The copy is a file that is copied and synced; the same over a socket, synced too, stands beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from table import Row, at_least, at_most, show

from millpond.heron import peers
from millpond.heron.framing import packet_size
from millpond.heron.peers import Instance, Topology

HOST = "127.0.0.1"
TOPOLOGY = Topology("bench", "bench-1")
INSTANCE = Instance("count", 0)
REQID = bytes(range(32))
CONNECTIONS = 16
MIB = 1 << 20


# ------------------------------------------------------------------------------------------------- servers


@contextmanager
def child(target: Callable[..., None], *arguments: object) -> Iterator[tuple[int, int]]:
    """Run *target* in a process of its own until the block ends; give its port and its number."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    try:
        yield ours.recv(), process.pid or 0
    finally:
        ours.send(None)
        process.join(20)
        process.kill()


def serve_heron(pipe: Connection, root: str, kind: str) -> None:
    """Serve out of memory or of a folder."""
    from millpond.blob.memory import MemoryBlobStore
    from millpond.heron.folder import FolderStore
    from millpond.heron.running import running
    from millpond.heron.scratch import Scratch
    from millpond.heron.settings import ServerSettings
    from millpond.heron.states import StateStore

    blobs = FolderStore(Path(root)) if kind == "folder" else MemoryBlobStore()
    scratch = blobs.scratch if isinstance(blobs, FolderStore) else Scratch(Path(root))
    settings = ServerSettings(topologies={"bench": "bench-1"}, max_connections=20_000)
    with running(StateStore(blobs, scratch), settings) as server:
        pipe.send(server.port)
        pipe.recv()
    scratch.close()


def serve_echo(pipe: Connection, kind: str) -> None:
    """Send every frame back, by streams or by a protocol class."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        if kind == "streams":
            server = await asyncio.start_server(_echo_stream, HOST, 0)
        else:
            server = await loop.create_server(EchoProtocol, HOST, 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await loop.run_in_executor(None, pipe.recv)
        os._exit(0)

    asyncio.run(run())


async def _echo_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readexactly(4)
            writer.write(head + await reader.readexactly(int.from_bytes(head, "big")))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


class EchoProtocol(asyncio.Protocol):
    """Finds frames and sends them back."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport, self.buffer = transport, bytearray()

    def data_received(self, data: bytes) -> None:
        """Send whole frames back."""
        self.buffer += data
        while len(self.buffer) >= 4 and len(self.buffer) >= (size := 4 + int.from_bytes(self.buffer[:4], "big")):
            self.transport.write(bytes(self.buffer[:size]))  # type: ignore[attr-defined]
            del self.buffer[:size]


def serve_copy(pipe: Connection, path: str) -> None:
    """Take frames over a socket, write each to a file, sync it, and answer one byte."""
    listener = socket.create_server((HOST, 0))
    pipe.send(listener.getsockname()[1])
    sock, _ = listener.accept()
    buffer = memoryview(bytearray(256 << 10))
    while head := sock.recv(4, socket.MSG_WAITALL):
        left = int.from_bytes(head, "big")
        with Path(path).open("wb", buffering=0) as file:
            while left:
                count = sock.recv_into(buffer[: min(left, len(buffer))])
                file.write(buffer[:count])
                left -= count
            os.fsync(file.fileno())
        sock.send(b"!")


# ------------------------------------------------------------------------------------------------- small saves


def save_packet(state: bytes, checkpoint: str) -> bytes:
    """Give a whole save."""
    return peers.save_head(INSTANCE, checkpoint, len(state), REQID) + state


def rate(port: int, packet: bytes, seconds: float) -> float:
    """Give how many packets a second are answered over CONNECTIONS connections, one at a time on each."""
    with ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection((HOST, port))) for _ in range(CONNECTIONS)]
        waiting = stack.enter_context(selectors.DefaultSelector())
        for sock in socks:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            waiting.register(sock, selectors.EVENT_READ, [0])
            sock.sendall(packet)
        answered, begun = 0, time.perf_counter()
        buffer = bytearray(64 << 10)
        expected = 0
        while time.perf_counter() - begun < seconds:
            for chosen, _ in waiting.select(1):
                have = chosen.data
                count = chosen.fileobj.recv_into(buffer)  # type: ignore[union-attr]
                if not expected:
                    expected = packet_size(buffer) or 0
                have[0] += count
                if have[0] >= expected:
                    have[0] = 0
                    answered += 1
                    chosen.fileobj.sendall(packet)  # type: ignore[union-attr]
        return answered / (time.perf_counter() - begun)


def small_saves(root: Path, seconds: float, repetitions: int) -> list[Row]:
    """Measure saves of 1 kB over 16 connections to the memory store beside the echoes."""
    packet = save_packet(os.urandom(1000), "1717000000000000000-1717000300")
    rates: dict[str, list[float]] = {"ours": [], "streams": [], "protocol": []}
    costs: dict[str, list[float]] = {name: [] for name in rates}
    with (
        child(serve_heron, str(root / "small"), "memory") as ours,
        child(serve_echo, "streams") as streams,
        child(serve_echo, "protocol") as protocol,
    ):
        for number in range(repetitions + 1):
            for name, (port, pid) in (("ours", ours), ("streams", streams), ("protocol", protocol)):
                spent, begun = processor_s(pid), time.perf_counter()
                measured = rate(port, packet, seconds if number else 0.5)
                answered = measured * (time.perf_counter() - begun)
                if number:
                    rates[name].append(measured / 1000)
                    costs[name].append((processor_s(pid) - spent) / answered * 1e6)
    what = f"saves of 1 kB over {CONNECTIONS} connections, memory store, beside an echo"
    cost = "processor time of such a save, beside that of an echo by asyncio's streams"
    return [
        Row(f"{what} by asyncio's streams", rates["ours"], rates["streams"], "k/s", ">= 0.5x", at_least(0.5)),
        Row(f"{what} by a protocol class", rates["ours"], rates["protocol"], "k/s", "", at_least(0)),
        Row(cost, costs["ours"], costs["streams"], "us", "", at_least(0)),
    ]


def processor_s(pid: int) -> float:
    """Give the seconds for which the threads of a process were on a processor."""
    spent = [(task / "schedstat").read_text("ascii").split()[0] for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(map(int, spent)) / 1e9


# ------------------------------------------------------------------------------------------------- a large save


class Peak:
    """Looks at a process's resident memory again and again; gives what it rose by in the block, in MB."""

    def __init__(self, pid: int) -> None:
        self._statm = Path(f"/proc/{pid}/statm")

    def __enter__(self) -> Self:
        self._idle = self._highest = resident(self._statm)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.rise = (self._highest - self._idle) / 1e6

    def _look(self) -> None:
        while not self._stop.wait(0.002):
            self._highest = max(self._highest, resident(self._statm))


def resident(statm: Path) -> int:
    """Give a process's resident bytes."""
    return int(statm.read_text("ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def large_save(root: Path, size: int, repetitions: int) -> list[Row]:
    """Measure one save of *size* bytes to the file store beside a bare copy of a file, and one over a socket."""
    state = os.urandom(MIB) * (size // MIB)
    source = root / "source"
    source.write_bytes(state)
    speeds: dict[str, list[float]] = {"ours": [], "file": [], "socket": []}
    risen: list[float] = []
    with (
        child(serve_heron, str(root / "large"), "folder") as (heron, pid),
        child(serve_copy, str(root / "copied")) as (copy, _),
        socket.create_connection((HOST, heron)) as ours,
        socket.create_connection((HOST, copy)) as bare,
    ):
        ways: dict[str, Callable[[int], None]] = {
            "ours": lambda number: save_one(ours, state, f"17-{number}"),
            "file": lambda _: copy_file(source, root / "copy"),
            "socket": lambda _: send_one(bare, state),
        }
        for number in range(repetitions + 1):
            for name, way in ways.items():
                with Peak(pid) as peak:
                    begun = time.perf_counter()
                    way(number)
                    took = time.perf_counter() - begun
                if number:
                    speeds[name].append(size / 1e6 / took)
                if name == "ours":
                    risen.append(peak.rise)
    what = f"one save of {size // MIB} MiB to the file store, beside"
    rise = Row(f"memory of such a save, beside its {size // MIB} MiB", risen, [size / 1e6], "MB", "<= 3x", at_most(3))
    return [
        Row(f"{what} a synced copy of a file", speeds["ours"], speeds["file"], "MB/s", ">= 0.7x", at_least(0.7)),
        Row(f"{what} a synced copy over a socket", speeds["ours"], speeds["socket"], "MB/s", "", at_least(0)),
        rise,
    ]


def save_one(sock: socket.socket, state: bytes, checkpoint: str) -> None:
    """Save a state and wait for the answer."""
    sock.sendall(peers.save_head(INSTANCE, checkpoint, len(state), REQID))
    sock.sendall(state)
    answer = sock.recv(4096)
    assert b"\x0a\x04\x08\x01\x12\x00" in answer, answer


def send_one(sock: socket.socket, state: bytes) -> None:
    """Send a state with its length and wait for a byte."""
    sock.sendall(len(state).to_bytes(4, "big"))
    sock.sendall(state)
    sock.recv(1)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file and sync the copy."""
    with source.open("rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing, MIB)
        writing.flush()
        os.fsync(writing.fileno())


# ------------------------------------------------------------------------------------------------- idle ones


def idle(root: Path, count: int) -> list[Row]:
    """Measure what *count* idle connections add to the server, and what it has then altogether."""
    with child(serve_heron, str(root / "idle"), "memory") as (port, pid), ExitStack() as stack:
        statm = Path(f"/proc/{pid}/statm")
        ask = peers.get(INSTANCE, "", REQID)
        with socket.create_connection((HOST, port)) as first:
            first.sendall(ask)
            first.recv(4096)
        before = resident(statm)
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection((HOST, port)))
            sock.sendall(ask)
            sock.recv(4096)
        after = resident(statm)
    name = f"{count:,} idle connections"
    return [
        Row(f"{name}: what they add", [(after - before) / 1e6], [], "MB", "<= 50", at_most(50)),
        Row(f"{name}: the whole process", [after / 1e6], [], "MB", "", at_most(0)),
    ]


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--seconds", type=float, default=3.0, help="of each measurement of small saves")
    words.add_argument("--repetitions", type=int, default=5)
    words.add_argument("--megabytes", type=int, default=64, help="the large state")
    words.add_argument("--connections", type=int, default=1000, help="idle ones")
    words.add_argument("--directory", type=Path, default=None, help="where the file store is made; on a real disk")
    given = words.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        root = Path(folder)
        rows = small_saves(root, given.seconds, given.repetitions)
        rows += large_save(root, given.megabytes * MIB, given.repetitions)
        rows += idle(root, given.connections)
    show(rows)


if __name__ == "__main__":
    main()
