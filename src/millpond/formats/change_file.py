r"""
Changes in a file, in the order in which they are given, in checksummed frames.

All numbers are big-endian. The file is a header, data frames and one last frame::

    header   16 bytes   8: b"\x89MPCF\r\n\x1a"   4: version   4: CRC-32 of the 12 bytes before
    frame    20 bytes   4: b"DATA"   4: its place, from 0   4: records   4: bytes of payload   4: CRC-32
             payload    MessagePack: an array of [key, value] pairs; a value is binary, or nil for a deleted key
    last     20 bytes   like a frame, with b"LAST" and 16 bytes of payload: 8: records   8: bytes of all frames' payload

A frame's CRC-32 is over its first 16 bytes and its payload. The last frame tells a whole file from one that was cut
between two frames. ``docs/formats.md`` says the same in words.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec
from attrs import define

from millpond.errors import FormatError, StateCorruptError, StateNotFoundError

Change = tuple[bytes, bytes | None]
"""A key and its new value; None says that the key was deleted. The same as ``millpond.spi.Change``."""

MAX_RECORD = 1 << 30
"""The largest key and value together, in bytes."""

_MAGIC = b"\x89MPCF\r\n\x1a"
_VERSION = 1
_HEADER = struct.Struct(">8sII")
_FRAME = struct.Struct(">4sIIII")
_LAST = struct.Struct(">QQ")
_CHECKED = 16
_RECORDS = 1_000
_PAYLOAD = 256 << 10
_MAX_PAYLOAD = MAX_RECORD + _PAYLOAD + (64 << 10)

_DECODER = msgspec.msgpack.Decoder(list[tuple[bytes, bytes | None]])


def write(path: Path, changes: Iterable[Change], *, sync: bool = False) -> int:
    """
    Write *changes* into the new file *path*, and give its size in bytes; a failed write leaves no file.

    Holds one frame at a time: at most 1,000 changes, and 256 KiB and one change more.

    Args:
        path: Must not exist: it may be linked from an image.
        changes: In the order in which they shall be read.
        sync: Bring the file, not its folder, to stable storage before returning.

    Raises:
        FormatError: A key and its value are over ``MAX_RECORD``, or not bytes.
        OSError: It exists, or the disk is full.
    """
    with path.open("xb") as file:
        try:
            size = _write_frames(file, changes)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    return size


def _write_frames(file: BinaryIO, changes: Iterable[Change]) -> int:
    head = _HEADER.pack(_MAGIC, _VERSION, 0)[:12]
    size = file.write(head + struct.pack(">I", zlib.crc32(head)))
    place = records = total = 0
    for batch in _batches(changes):
        payload = _encode(batch)
        size += _write_frame(file, b"DATA", place, len(batch), payload)
        place, records, total = place + 1, records + len(batch), total + len(payload)
    return size + _write_frame(file, b"LAST", place, 0, _LAST.pack(records, total))


def _encode(batch: list[Change]) -> bytes:
    if not set(map(type, chain.from_iterable(batch))) <= {bytes, type(None)}:
        raise FormatError("a change must be a key of bytes, and a value of bytes or None")
    return msgspec.msgpack.encode(batch)


def _write_frame(file: BinaryIO, tag: bytes, place: int, records: int, payload: bytes) -> int:
    head = _FRAME.pack(tag, place, records, len(payload), 0)[:_CHECKED]
    crc = zlib.crc32(payload, zlib.crc32(head))
    file.write(head + struct.pack(">I", crc))
    file.write(payload)
    return _FRAME.size + len(payload)


def _batches(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Cut *changes* into lists of at most ``_RECORDS``, ended early where their bytes reach ``_PAYLOAD``."""
    batch: list[Change] = []
    size = 0
    for change in changes:
        key, value = change
        here = len(key) if value is None else len(key) + len(value)
        if here > MAX_RECORD:
            raise FormatError(f"a record of {here} bytes is over the limit of {MAX_RECORD}: its key is {key[:32]!r}…")
        batch.append(change)
        size += here
        if len(batch) == _RECORDS or size >= _PAYLOAD:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read(path: Path) -> Iterator[Change]:
    """
    Give the changes in *path*, in order, a frame in memory at a time.

    The file is opened at the first ``next`` and closed with the iterator. It is wholly checked only when the iterator
    has ended: act on what it gave before only if that can be undone.

    Raises:
        StateNotFoundError: There is no such file.
        StateCorruptError: It is empty, cut, or a byte has changed.
        FormatError: It is no change file, or of a newer version.
    """
    return chain.from_iterable(read_frames(path))


def read_frames(path: Path) -> Iterator[list[Change]]:
    """Give the changes as ``read`` does, a frame's at once."""
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise StateNotFoundError(f"there is no change file {path}") from error
    with file:
        reader = _Reader(file, str(path), os.fstat(file.fileno()).st_size)
        reader.check_header()
        yield from iter(reader.next_frame, None)


def count(path: Path) -> int:
    """
    Give the number of changes that the file's end states, without reading the others.

    Raises:
        StateNotFoundError, StateCorruptError, FormatError: As in ``read``; the frames are not checked.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise StateNotFoundError(f"there is no change file {path}") from error
    with file:
        reader = _Reader(file, str(path), os.fstat(file.fileno()).st_size)
        reader.check_header()
        return reader.stated_count()


@define
class _Reader:
    """
    Reads an open change file from its start.

    Attributes:
        file: Positioned by this reader alone.
        name: For errors.
        left: Bytes of the file that were not read yet.
        place: Of the next frame.
        records: Read so far.
        total: Bytes of payload read so far.
    """

    file: BinaryIO
    name: str
    left: int
    place: int = 0
    records: int = 0
    total: int = 0

    def check_header(self) -> None:
        """Read the header, or raise."""
        head = self._take(_HEADER.size, "its header")
        magic, version, crc = _HEADER.unpack(head)
        if magic != _MAGIC:
            raise FormatError(f"{self.name} is no change file: it begins with {head[:8]!r}")
        if crc != zlib.crc32(head[:12]):
            raise self._damage("its header")
        if version != _VERSION:
            raise FormatError(
                f"{self.name} is a change file of version {version}, and this release reads {_VERSION}: "
                "use a newer Millpond"
            )

    def next_frame(self) -> list[Change] | None:
        """Read a frame; None after the last one."""
        tag, records, payload = self._take_frame()
        if tag == b"LAST":
            self._check_end(payload)
            return None
        if tag != b"DATA":
            raise self._damage(f"frame {self.place}, whose kind is unknown")
        self.place, self.records, self.total = self.place + 1, self.records + records, self.total + len(payload)
        return self._decode(records, payload)

    def stated_count(self) -> int:
        """Jump to the last frame and give the count in it."""
        size = _FRAME.size + _LAST.size
        if self.left < size:
            raise StateCorruptError(f"{self.name} is cut: it has no last frame")
        self.file.seek(-size, os.SEEK_END)
        self.left = size
        head = self._take(_FRAME.size, "its last frame")
        tag, _, _, length, crc = _FRAME.unpack(head)
        payload = self._take(_LAST.size, "its last frame")
        if tag != b"LAST" or length != _LAST.size or crc != zlib.crc32(payload, zlib.crc32(head[:_CHECKED])):
            raise StateCorruptError(f"{self.name} is cut or damaged: it does not end with its last frame")
        return int(_LAST.unpack(payload)[0])

    def _take_frame(self) -> tuple[bytes, int, bytes]:
        what = f"frame {self.place}"
        head = self._take(_FRAME.size, what)
        tag, place, records, length, crc = _FRAME.unpack(head)
        if length > _MAX_PAYLOAD or records * 2 > length:
            raise self._damage(what)
        payload = self._take(length, what)
        if crc != zlib.crc32(payload, zlib.crc32(head[:_CHECKED])) or place != self.place:
            raise self._damage(what)
        return tag, records, payload

    def _decode(self, records: int, payload: bytes) -> list[Change]:
        try:
            changes: list[Change] = _DECODER.decode(payload)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._damage(f"frame {self.place - 1} ({error})") from error
        if len(changes) != records:
            raise self._damage(f"frame {self.place - 1}, which states {records} records and has {len(changes)}")
        return changes

    def _check_end(self, payload: bytes) -> None:
        if payload != _LAST.pack(self.records, self.total):
            raise StateCorruptError(f"{self.name} is damaged: it states other totals than were read")
        if self.left:
            raise StateCorruptError(f"{self.name} is damaged: {self.left} bytes are behind its last frame")

    def _take(self, size: int, what: str) -> bytes:
        """Read *size* bytes, which are compared with what the file has before they are allocated."""
        if size > self.left:
            raise StateCorruptError(f"{self.name} is cut: {what} needs {size} bytes, and {self.left} are left")
        data = self.file.read(size)
        if len(data) != size:
            raise StateCorruptError(f"{self.name} is cut: it became shorter while it was read")
        self.left -= size
        return data

    def _damage(self, what: str) -> StateCorruptError:
        return StateCorruptError(f"{self.name} is damaged: the checksum or the shape of {what} is wrong")
