r"""
A segment's bytes: a header, then frames.

All numbers are big-endian::

    header  48 bytes   8: b"\x89MPLG\r\n\x1a"   4: version   16: the topic's identity   4: partition   8: first offset
                       4: zero   4: CRC-32 of the 44 bytes before
    frame   56 bytes   4: kind   8: owner   8: epoch   8: number   8: first offset   4: records   8: bytes of payload
                       4: CRC-32 of the payload   4: CRC-32 of the 52 bytes before
            payload

Kinds: ``DATA`` records of an append that others decide; ``KEPT`` records that compaction left; ``CMIT`` and ``ABRT``
decide an append; ``SEAL`` ends a segment and states the offset that follows. Owner, epoch and number name the append.
The payload of records is MessagePack: changes, their offsets (nil: dense from the first), and runs of records with the
same time and headers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import chain

import msgspec
from attrs import define, frozen

from millpond.errors import FormatError, StateCorruptError
from millpond.spi import Change

DATA, KEPT, COMMIT, ABORT, SEAL = b"DATA", b"KEPT", b"CMIT", b"ABRT", b"SEAL"
KINDS = (DATA, KEPT, COMMIT, ABORT, SEAL)

_MAGIC = b"\x89MPLG\r\n\x1a"
_VERSION = 1
_HEADER = struct.Struct(">8sI16sIQII")
_FRAME = struct.Struct(">4sQQQQIQII")

HEADER_SIZE = _HEADER.size
FRAME_SIZE = _FRAME.size

Run = tuple[int, int, dict[str, bytes]]
"""How many records follow one another with the same time, in milliseconds since 1970, and the same headers."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(tuple[list[tuple[bytes, bytes | None]], list[int] | None, list[Run]])


@frozen
class AppendId:
    """
    Names one append of one claim of an owner.

    Attributes:
        owner: The owner's number.
        epoch: Of its claim.
        number: Which append of that claim, from 1.
    """

    owner: int
    epoch: int
    number: int


NOBODY = AppendId(0, 0, 0)
"""The append of frames that belong to none."""


@frozen
class Frame:
    """
    A frame without its payload.

    Attributes:
        kind: One of ``KINDS``.
        append: Whose it is.
        first: The offset of its first record; for ``SEAL`` the offset that follows.
        count: Its records.
        length: Bytes of payload.
        crc: Of the payload.
    """

    kind: bytes
    append: AppendId
    first: int
    count: int
    length: int
    crc: int

    @property
    def size(self) -> int:
        """Bytes of the whole frame."""
        return FRAME_SIZE + self.length


@define
class Records:
    """
    Records in columns.

    Attributes:
        changes: Keys and values.
        offsets: One for each.
        runs: Times and headers, for all of them in order.
    """

    changes: list[Change]
    offsets: list[int]
    runs: list[Run]


def encode_header(identity: bytes, partition: int, first: int) -> bytes:
    """Give a segment's header; *identity* has 16 bytes."""
    head = _HEADER.pack(_MAGIC, _VERSION, identity, partition, first, 0, 0)[:-4]
    return head + struct.pack(">I", zlib.crc32(head))


def check_header(data: bytes, identity: bytes, partition: int, first: int, where: str) -> None:
    """
    Check that *data* is the header of this segment.

    Raises:
        FormatError: It is of a newer version.
        StateCorruptError: It is damaged, or another segment's.
    """
    if len(data) < HEADER_SIZE:
        raise StateCorruptError(f"{where} is cut: it has not even its header")
    magic, version, found, number, offset, _, crc = _HEADER.unpack(data[:HEADER_SIZE])
    if magic != _MAGIC or crc != zlib.crc32(data[: HEADER_SIZE - 4]):
        raise StateCorruptError(f"{where} is damaged: the checksum or the shape of its header is wrong")
    if version != _VERSION:
        raise FormatError(f"{where} is of version {version}, and this release reads {_VERSION}: use a newer Millpond")
    if (found, number, offset) != (identity, partition, first):
        raise StateCorruptError(f"{where} is in another one's place: it is of partition {number}, from {offset} on")


def encode_frame(kind: bytes, append: AppendId, first: int, count: int = 0, payload: bytes = b"") -> bytes:
    """Give a whole frame."""
    head = _FRAME.pack(
        kind, append.owner, append.epoch, append.number, first, count, len(payload), zlib.crc32(payload), 0
    )[:-4]
    return b"".join((head, struct.pack(">I", zlib.crc32(head)), payload))


def decode_frame(data: bytes) -> Frame | None:
    """Read the fixed part of a frame; None if it is none."""
    if len(data) < FRAME_SIZE:
        return None
    kind, owner, epoch, number, first, count, length, crc, own = _FRAME.unpack(data[:FRAME_SIZE])
    if kind not in KINDS or own != zlib.crc32(data[: FRAME_SIZE - 4]):
        return None
    return Frame(kind, AppendId(owner, epoch, number), first, count, length, crc)


def encode_records(changes: Sequence[Change], offsets: Sequence[int] | None, runs: Sequence[Run]) -> bytes:
    """
    Give the payload of records.

    Raises:
        FormatError: A key is no bytes, or a value neither bytes nor None.
    """
    if not set(map(type, chain.from_iterable(changes))) <= {bytes, type(None)} or any(c[0] is None for c in changes):
        raise FormatError("a change must be a key of bytes, and a value of bytes or None")
    return _ENCODER.encode((changes, offsets, runs))


def decode_records(frame: Frame, payload: bytes, where: str) -> Records:
    """
    Read the records of a frame.

    Raises:
        StateCorruptError: They are not what was written.
    """
    damaged = f"{where} is damaged: the checksum or the shape of the records from offset {frame.first} on is wrong"
    if len(payload) != frame.length or zlib.crc32(payload) != frame.crc:
        raise StateCorruptError(damaged)
    try:
        changes, offsets, runs = _DECODER.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise StateCorruptError(damaged) from error
    if offsets is None:
        offsets = list(range(frame.first, frame.first + frame.count))
    if not len(changes) == len(offsets) == frame.count == sum(run[0] for run in runs):
        raise StateCorruptError(damaged)
    return Records(changes, offsets, runs)


def run_at(runs: Sequence[Run], index: int) -> tuple[int, Mapping[str, bytes]]:
    """Give the time and the headers of the record at *index*."""
    for count, millis, headers in runs:
        if index < count:
            return millis, headers
        index -= count
    raise IndexError(index)
