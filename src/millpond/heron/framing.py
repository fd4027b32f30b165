"""
Packets: bytes on the wire to type name, request id and body, and back. Pure.

Every packet, in both directions, is ``N, T, name, REQID, B, body``: three big-endian 32-bit lengths, of which N counts
all that follows it, and 32 bytes that an answer repeats. Bytes behind the body are left over and mean nothing.
"""

from __future__ import annotations

import struct
import uuid
from functools import cache
from typing import NamedTuple

from millpond.errors import FormatError

REQID_SIZE = 32
NO_REQID = bytes(REQID_SIZE)
"""Of a one-way message."""

LARGEST = (1 << 31) - 1
"""The largest N: Java's peers read it as a signed number."""

LONGEST_NAME = 255
_FIXED = 4 + REQID_SIZE + 4
_LENGTH, _TWO_LENGTHS = struct.Struct(">I"), struct.Struct(">II")


class MalformedPacketError(FormatError):
    """No peer of Heron's writes such a packet: its connection ends."""


class Head(NamedTuple):
    """
    What comes before a body.

    Attributes:
        name: The message's full name.
        reqid: 32 bytes.
        start: Where the body begins, counted from the packet's first byte.
        size: The body's size.
        total: The packet's size, its length and what is left over included.
    """

    name: bytes
    reqid: bytes
    start: int
    size: int
    total: int


def new_reqid() -> bytes:
    """Give a request id as Heron's C++ peers make it: the first 32 characters of a random UUID."""
    return str(uuid.uuid4())[:REQID_SIZE].encode("ascii")


class Heads:
    """
    The heads of all packets with one type name, read and written in one step.

    Attributes:
        size: In bytes.
    """

    def __init__(self, name: str) -> None:
        """Take the type name."""
        text = name.encode("ascii")
        self._name = _LENGTH.pack(len(text)) + text
        self._form = struct.Struct(f">I{len(self._name)}s{REQID_SIZE}sI")
        self.size = self._form.size

    def write(self, reqid: bytes, size: int) -> bytes:
        """Give all of a packet that comes before a body of *size* bytes."""
        if len(reqid) != REQID_SIZE:
            raise ValueError(f"a request id has {REQID_SIZE} bytes, not {len(reqid)}")
        return self._form.pack(self.size - 4 + size, self._name, reqid, size)

    def read(self, data: bytes, at: int) -> tuple[int, bytes, int, int] | None:
        """
        Give size and request id of the packet that begins at *at*, and where its body begins and ends in *data*.

        None where it has another type, is malformed, or is not all there.
        """
        there = len(data) - at
        if there < self.size:
            return None
        total, name, reqid, size = self._form.unpack_from(data, at)
        total += 4
        start = at + self.size
        if total > there or name != self._name or self.size + size > total:
            return None
        return total, reqid, start, start + size


@cache
def heads_of(name: str) -> Heads:
    """Give the heads of packets with a type name of ours."""
    return Heads(name)


def encode_head(name: str, reqid: bytes, size: int) -> bytes:
    """Give all of a packet that comes before a body of *size* bytes."""
    return heads_of(name).write(reqid, size)


def encode(name: str, reqid: bytes, body: bytes) -> bytes:
    """Give a whole packet."""
    return encode_head(name, reqid, len(body)) + body


def packet_size(data: bytes | bytearray | memoryview, at: int = 0) -> int | None:
    """
    Give the size of the packet that begins at *at*, its length included; None while that cannot be told.

    Raises:
        MalformedPacketError: No packet has that size.
    """
    if len(data) - at < 4:
        return None
    (size,) = _LENGTH.unpack_from(data, at)
    if not _FIXED <= size <= LARGEST:
        raise MalformedPacketError(f"a packet says that it has {size:,} bytes: a packet has {_FIXED} to {LARGEST:,}")
    return 4 + int(size)


def parse_head(data: bytes | bytearray | memoryview, at: int = 0) -> Head | None:
    """
    Give the head of the packet that begins at *at*; None while it is not all there.

    Raises:
        MalformedPacketError: Its lengths contradict one another.
    """
    if len(data) - at < 8:
        packet_size(data, at)
        return None
    size, name_size = _TWO_LENGTHS.unpack_from(data, at)
    if not _FIXED <= size <= LARGEST:
        packet_size(data, at)
    total = 4 + size
    if name_size > LONGEST_NAME or name_size + _FIXED + 4 > total:
        raise MalformedPacketError(f"a type name of {name_size:,} bytes in a packet of {total:,}")
    start = 8 + name_size + REQID_SIZE + 4
    if len(data) - at < start:
        return None
    (size,) = _LENGTH.unpack_from(data, at + start - 4)
    if start + size > total:
        raise MalformedPacketError(f"a body of {size:,} bytes in a packet of {total:,}")
    name_end = at + 8 + name_size
    name, reqid = data[at + 8 : name_end], data[name_end : name_end + REQID_SIZE]
    return Head(bytes(name), bytes(reqid), start, size, total)


def decode(data: bytes) -> tuple[str, bytes, bytes]:
    """
    Give type name, request id and body of one whole packet.

    Raises:
        MalformedPacketError: It is none, or not all of one.
    """
    head = parse_head(data)
    if head is None or head.total > len(data):
        raise MalformedPacketError(f"{len(data):,} bytes are not a whole packet")
    return head.name.decode("latin-1"), head.reqid, data[head.start : head.start + head.size]
