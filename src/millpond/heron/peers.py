"""
Packets of Heron's clients: a blocking socket, and requests as its coordinator and stream managers write them.

What the client and the doubles are made of. One thread at a time uses a wire; another may break it off.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import field, frozen

from millpond.errors import FormatError, TransientError
from millpond.heron import messages
from millpond.heron.fields import bytes_field, bytes_head
from millpond.heron.framing import MalformedPacketError, encode, encode_head, packet_size, parse_head
from millpond.heron.messages import full_name, message
from millpond.heron.plan import SPILL, SPILL_LOCATION

_READ = 256 << 10


class ConnectionEndedError(TransientError):
    """The connection could not be made, or ended, or was too slow."""


@frozen
class Instance:
    """
    One task of a topology.

    Attributes:
        component: Its component.
        index: Its position among those of its component.
        task: Its number in the topology.
        stmgr: The stream manager that runs it.
    """

    component: str
    index: int
    task: int = 0
    stmgr: str = "stmgr-1"

    def fill(self, target: Any) -> None:
        """Write it into an ``Instance`` message."""
        target.instance_id = f"container_{self.stmgr.rpartition('-')[2]}_{self.component}_{self.task}"
        target.stmgr_id = self.stmgr
        target.info.task_id = self.task
        target.info.component_index = self.index
        target.info.component_name = self.component


@frozen
class Topology:
    """
    What runs.

    Attributes:
        spill: The folder through which states pass as files; None: they travel in packets.
    """

    name: str
    id: str
    instances: tuple[Instance, ...] = ()
    spill: str | None = None
    extra: Mapping[str, str] = field(factory=dict)

    def of(self, stmgr: str) -> tuple[Instance, ...]:
        """Give the instances of one stream manager."""
        return tuple(each for each in self.instances if each.stmgr == stmgr)

    def plan(self) -> Any:
        """Give it as a ``PhysicalPlan``."""
        plan = message("PhysicalPlan", "heron.proto.system")()
        plan.topology.id, plan.topology.name, plan.topology.state = self.id, self.name, 1
        settings = dict(self.extra)
        if self.spill is not None:
            settings |= {SPILL: "true", SPILL_LOCATION: self.spill}
        for key, value in settings.items():
            plan.topology.topology_config.kvs.add(key=key, value=value)
        for name in sorted({each.stmgr for each in self.instances}):
            plan.stmgrs.add(id=name, host_name="localhost", data_port=1, local_endpoint="/unused")
        for each in self.instances:
            each.fill(plan.instances.add())
        return plan


def register_coordinator(topology: Topology, reqid: bytes, *, old_name: bool = False) -> bytes:
    """Give a coordinator's registration; *old_name*: as builds before 2020-11 spell it."""
    name = "RegisterTMasterRequest" if old_name else "RegisterTManagerRequest"
    request = message(name)(topology_name=topology.name, topology_id=topology.id)
    return encode(full_name(name), reqid, request.SerializeToString())


def register_stream_manager(topology: Topology, stmgr: str, reqid: bytes, *, with_plan: bool = True) -> bytes:
    """Give a stream manager's registration; without a plan as those before 2018-07 send it."""
    name = "RegisterStMgrRequest"
    request = message(name)(topology_name=topology.name, topology_id=topology.id, stmgr_id=stmgr)
    if with_plan:
        request.physical_plan.CopyFrom(topology.plan())
    return encode(full_name(name), reqid, request.SerializePartialToString())


def save_head(instance: Instance, checkpoint: str, size: int | None, reqid: bytes) -> bytes:
    """Give a save up to its state of *size* bytes; None: there is no state."""
    name = "SaveInstanceStateRequest"
    request = message(name)()
    instance.fill(request.instance)
    about = bytes_field(1, request.instance.SerializeToString())
    inner = bytes_field(1, checkpoint.encode()) + (b"" if size is None else bytes_head(2, size))
    body = about + bytes_head(2, len(inner) + (size or 0)) + inner
    return encode_head(full_name(name), reqid, len(body) + (size or 0)) + body


def save_spilled(instance: Instance, checkpoint: str, location: str, reqid: bytes) -> bytes:
    """Give a save whose state lies in a file."""
    name = "SaveInstanceStateRequest"
    request = message(name)()
    instance.fill(request.instance)
    request.checkpoint.checkpoint_id, request.checkpoint.state_location = checkpoint, location
    return encode(full_name(name), reqid, request.SerializeToString())


def get(instance: Instance, checkpoint: str, reqid: bytes) -> bytes:
    """Give a get."""
    name = "GetInstanceStateRequest"
    request = message(name)(checkpoint_id=checkpoint)
    instance.fill(request.instance)
    return encode(full_name(name), reqid, request.SerializeToString())


def clean(oldest: str | None, reqid: bytes, *, everything: bool = False) -> bytes:
    """Give a clean; *oldest* None leaves the field out."""
    name = "CleanStatefulCheckpointRequest"
    request = message(name)(clean_all_checkpoints=everything)
    if oldest is not None:
        request.oldest_checkpoint_preserved = oldest
    return encode(full_name(name), reqid, request.SerializeToString())


@frozen
class Received:
    """
    A packet that came back.

    Attributes:
        name: The message's name, without its package.
    """

    name: str
    reqid: bytes
    message: Any


class Wire:
    """A connection to a checkpoint manager; every wait ends after *timeout_s* seconds."""

    def __init__(
        self, host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None = None, largest: int = 1 << 31
    ) -> None:
        """
        Connect. Packets above *largest* bytes are not taken.

        Raises:
            ConnectionEndedError: Nobody listens, or not in time.
        """
        self._where, self._timeout_s, self._largest = f"{host}:{port}", timeout_s, largest
        self._buffer = bytearray()
        try:
            self.socket = _connect(host, port, timeout_s, tls)
        except OSError as error:
            raise ConnectionEndedError(f"cannot connect to the checkpoint manager at {self._where}: {error}") from error

    def send(self, *pieces: bytes) -> None:
        """Send *pieces*; ConnectionEndedError where that fails."""
        try:
            for piece in pieces:
                self.socket.sendall(piece)
        except OSError as error:
            raise ConnectionEndedError(f"the checkpoint manager at {self._where} took no more: {error}") from error

    def send_file(self, path: Path, size: int) -> None:
        """Send *size* bytes of a file; ConnectionEndedError where it is shorter by now."""
        with path.open("rb") as file:
            while size:
                piece = file.read(min(_READ, size))
                if not piece:
                    raise ConnectionEndedError(f"{path} became shorter while it was sent")
                self.send(piece)
                size -= len(piece)

    def receive(self) -> Received:
        """
        Give the next packet.

        Raises:
            ConnectionEndedError: None came in time, or the connection has ended.
            FormatError: It is no packet, or not the message that it says.
        """
        packet = b"".join(self.receive_pieces())
        head = parse_head(packet)
        if head is None:
            raise MalformedPacketError("a packet without a head")
        name = head.name.decode("latin-1").rpartition(".")[2]
        return Received(name, head.reqid, messages.parse(name, packet[head.start : head.start + head.size]))

    def receive_pieces(self) -> Iterator[bytes]:
        """Give the next packet as the pieces in which it comes; all have to be taken before the next."""
        deadline = time.monotonic() + self._timeout_s
        while (head := parse_head(self._buffer)) is None:
            self._fill(deadline)
        total = packet_size(self._buffer) or 0
        if total > self._largest:
            raise FormatError(f"an answer of {total:,} bytes is over the limit of {self._largest:,}")
        first = bytes(self._buffer[: head.start])
        del self._buffer[: head.start]
        yield first
        left = total - head.start
        while left:
            if not self._buffer:
                self._fill(time.monotonic() + self._timeout_s)
            piece = bytes(self._buffer[:left])
            del self._buffer[: len(piece)]
            left -= len(piece)
            yield piece

    def _fill(self, deadline: float) -> None:
        try:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            data = self.socket.recv(_READ)
        except OSError as error:
            raise ConnectionEndedError(f"no answer from the checkpoint manager at {self._where}: {error}") from error
        if not data:
            raise ConnectionEndedError(f"the checkpoint manager at {self._where} closed the connection")
        self.socket.settimeout(self._timeout_s)
        self._buffer += data

    def break_off(self) -> None:
        """End the connection, from any thread: who waits for an answer gets ConnectionEndedError."""
        with suppress(OSError):  # closed by now
            # Not the method of a TLS socket, which changes what the other thread is using.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; idempotent."""
        self.socket.close()


def _connect(host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None) -> socket.socket:
    plain = socket.create_connection((host, port), timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
