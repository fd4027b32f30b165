"""
A text in the file frame of Samza's ``FileUtil``: Java's object-stream blocks around a checksum and modified UTF-8.

``ac ed 00 05``, then blocks of at most 1,024 bytes (``77`` and a length of one byte, or from 256 bytes on ``7a`` and a
length of four), whose content together is the CRC-32 of the text's UTF-8 as eight bytes, then the text in pieces, each
with its length as two bytes. All numbers are big-endian.
"""

from __future__ import annotations

import struct
import zlib

from millpond.errors import FormatError, StateCorruptError

MAX_SIZE = 64 << 20
"""The largest file in bytes."""

_HEADER = b"\xac\xed\x00\x05"
_SHORT, _LONG = 0x77, 0x7A
_BLOCK = 1024
_PIECE = 65_535


def encode(text: str) -> bytes:
    """
    Give the file's bytes, as Samza on a JVM whose default charset is UTF-8.

    Raises:
        FormatError: It is too long, or one of its pieces of 65,535 UTF-16 units is longer than 65,535 bytes in modified
            UTF-8: Samza fails there too, after it has begun the file.
    """
    content = struct.pack(">Q", _checksum(text)) + b"".join(map(_piece, _pieces(text)))
    if len(content) > MAX_SIZE // 2:
        raise FormatError(f"a text of {len(content)} bytes is over the limit of {MAX_SIZE // 2}")
    return _HEADER + b"".join(_block(content[at : at + _BLOCK]) for at in range(0, len(content), _BLOCK))


def _checksum(text: str) -> int:
    """Java turns a lone surrogate into a question mark when it encodes."""
    return zlib.crc32(text.encode("utf-8", "replace"))


def _pieces(text: str) -> list[bytes]:
    """Cut the text as Samza does, in modified UTF-8: a surrogate alone is three bytes, NUL is two."""
    if text.isascii() and len(text) <= _PIECE:
        return [_modified(text)]
    units = text.encode("utf-16-be", "surrogatepass")
    pieces = []
    while len(units) // 2 > _PIECE:
        pieces.append(_from_units(units[: 2 * _PIECE]))
        units = units[2 * _PIECE :]
    return [*pieces, _from_units(units)]


def _from_units(units: bytes) -> bytes:
    return _modified("".join(map(chr, struct.unpack(f">{len(units) // 2}H", units))))


def _modified(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def _piece(data: bytes) -> bytes:
    if len(data) > _PIECE:
        raise FormatError(f"Samza's file format cannot hold this text: a piece of it has {len(data)} bytes")
    return struct.pack(">H", len(data)) + data


def _block(data: bytes) -> bytes:
    return (bytes((_SHORT, len(data))) if len(data) < 256 else struct.pack(">BI", _LONG, len(data))) + data


def decode(data: bytes, what: str) -> str:
    """
    Read a file's bytes; *what* names it in errors.

    Raises:
        StateCorruptError: It has not the frame, is cut, has bytes too many, or its checksum is another, e.g. because it
            was written on a JVM with another default charset.
        FormatError: It is over ``MAX_SIZE``.
    """
    if len(data) > MAX_SIZE:
        raise FormatError(f"{what} has {len(data)} bytes, which is over the limit of {MAX_SIZE}")
    if not data.startswith(_HEADER):
        raise StateCorruptError(f"{what} does not begin as a file of Samza's: {data[:8]!r}")
    content = _unblock(data, what)
    if len(content) < 8:
        raise StateCorruptError(f"{what} is cut: its checksum is missing")
    text = _join(content, what)
    if struct.unpack_from(">Q", content)[0] != _checksum(text):
        raise StateCorruptError(f"{what} is damaged, or from a JVM whose default charset was not UTF-8: wrong checksum")
    return text


def _unblock(data: bytes, what: str) -> bytes:
    blocks, at = [], len(_HEADER)
    while at < len(data):
        start, size = _block_at(data, at, what)
        if size > len(data) - start:
            raise StateCorruptError(f"{what} is cut: a block of {size} bytes has {len(data) - start}")
        blocks.append(data[start : start + size])
        at = start + size
    return b"".join(blocks)


def _block_at(data: bytes, at: int, what: str) -> tuple[int, int]:
    """Give where a block's content starts, and its length."""
    if data[at] == _SHORT and at + 2 <= len(data):
        return at + 2, data[at + 1]
    if data[at] == _LONG and at + 5 <= len(data):
        return at + 5, int.from_bytes(data[at + 1 : at + 5], "big")
    raise StateCorruptError(f"{what} is damaged: no block begins at byte {at}")


def _join(content: bytes, what: str) -> str:
    pieces, at = [], 8
    while at < len(content):
        size = int.from_bytes(content[at : at + 2], "big")
        if at + 2 + size > len(content):
            raise StateCorruptError(f"{what} is cut: a piece of {size} bytes has {max(0, len(content) - at - 2)}")
        pieces.append(content[at + 2 : at + 2 + size])
        at += 2 + size
    try:
        text = b"".join(pieces).replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise StateCorruptError(f"{what} is damaged: {error}") from error
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
