"""Records between processes: one connection from each task to each of the next stage, made anew at each restore."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from queue import Empty, Full, Queue

import msgspec

from millpond.coordinator import JobCheckpointId, TransactionId

_HEAD = struct.Struct(">I")
_MAX = 1 << 20


class Hello(msgspec.Struct, tag=True):
    """The first message on a connection: from whom, and after which restore."""

    sender: str
    transaction: TransactionId


class Records(msgspec.Struct, tag=True):
    """Some records."""

    items: list[str]


class Barrier(msgspec.Struct, tag=True):
    """Everything before it belongs into the sender's part of the attempt."""

    attempt: JobCheckpointId


class End(msgspec.Struct, tag=True):
    """The sender's input has ended."""


Message = Hello | Records | Barrier | End
_DECODER = msgspec.msgpack.Decoder(Message)


class BrokenChannelError(Exception):
    """A peer is gone, and what was sent to it may be lost."""


def _send(connection: socket.socket, message: Message) -> None:
    data = msgspec.msgpack.encode(message)
    connection.sendall(_HEAD.pack(len(data)) + data)


def _receive(connection: socket.socket) -> Message:
    (size,) = _HEAD.unpack(_exactly(connection, _HEAD.size))
    if size > _MAX:
        raise BrokenChannelError(f"a message of {size:,} bytes")
    return _DECODER.decode(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


class Inlet:
    """Takes connections from the stage before; a thread for each puts what comes into one bounded queue."""

    def __init__(self, path: str) -> None:
        """Listen at *path*."""
        Path(path).unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen(16)
        self._queue: Queue[tuple[str, TransactionId, Message]] = Queue(200)
        self._ended = threading.Event()
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def get(self, timeout_s: float) -> tuple[str, TransactionId, Message] | None:
        """Give sender, restore and message; None if nothing came."""
        with suppress(Empty):
            return self._queue.get(timeout=timeout_s) if timeout_s else self._queue.get_nowait()
        return None

    def close(self) -> None:
        """End."""
        self._ended.set()
        self._server.close()
        with self._lock:
            for connection in self._connections:
                connection.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                self._connections.add(connection)
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        try:
            hello = _receive(connection)
            if isinstance(hello, Hello):
                while not self._ended.is_set():
                    self._put((hello.sender, hello.transaction, _receive(connection)))
        except (OSError, EOFError, BrokenChannelError, msgspec.MsgspecError):
            pass  # the sender is gone, or has begun anew after a restore: both are the coordinator's to sort out
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _put(self, item: tuple[str, TransactionId, Message]) -> None:
        while not self._ended.is_set():
            with suppress(Full):
                self._queue.put(item, timeout=0.5)
                return


class Outlet:
    """Connections to the stage after, for one restore."""

    def __init__(self, sender: str, transaction: TransactionId, paths: Iterable[tuple[str, str]]) -> None:
        """Connect to all *paths*, pairs of a task and its socket; BrokenChannelError if one is not there."""
        self._connections: dict[str, socket.socket] = {}
        receiver = ""
        try:
            for receiver, path in paths:
                self._connections[receiver] = connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(10.0)
                connection.connect(path)
                _send(connection, Hello(sender, transaction))
        except OSError as error:
            self.close()
            raise BrokenChannelError(f"{receiver} does not take records: {error}") from error

    def send(self, receiver: str, message: Message) -> None:
        """Send *message*; BrokenChannelError if the receiver is gone."""
        try:
            _send(self._connections[receiver], message)
        except OSError as error:
            raise BrokenChannelError(f"{receiver} takes no more records: {error}") from error

    def send_all(self, message: Message) -> None:
        """Send *message* to everybody."""
        for receiver in self._connections:
            self.send(receiver, message)

    def close(self) -> None:
        """End."""
        for connection in self._connections.values():
            connection.close()
