r"""
A pack: pieces one after another, then the backup manifests of a commit as its tail, then a footer.

::

    pieces    files and change files, as the manifests say
    tail      one or more backup manifests, each with its own header line
    footer    32 bytes, numbers big-endian
              8: b"\x89MPPK\r\n\x1a"   8: start of the tail   8: its bytes   4: version   4: CRC-32

A restore has the place of its manifest in a marker, and needs no footer. The footer is for whoever has only the object.
The CRC-32 is over the 28 bytes before it.
"""

from __future__ import annotations

import struct
import zlib

from attrs import frozen

from millpond.errors import FormatError, StateCorruptError

FOOTER_SIZE = 32

_MAGIC = b"\x89MPPK\r\n\x1a"
_VERSION = 1
_FIELDS = struct.Struct(">8sQQI")
_CRC = struct.Struct(">I")


@frozen
class Tail:
    """
    The place of the manifests in a pack.

    Attributes:
        start: The first byte.
        length: Bytes.
    """

    start: int
    length: int


def encode_footer(tail: Tail) -> bytes:
    """Give the last bytes of a pack."""
    head = _FIELDS.pack(_MAGIC, tail.start, tail.length, _VERSION)
    return head + _CRC.pack(zlib.crc32(head))


def decode_footer(data: bytes, size: int) -> Tail:
    """
    Read the last ``FOOTER_SIZE`` bytes of a pack of *size* bytes.

    Raises:
        StateCorruptError: They are cut or changed, or name a place that is not in the pack.
        FormatError: It is no pack, or of a newer version.
    """
    if len(data) != FOOTER_SIZE:
        raise StateCorruptError(f"a pack is cut: its footer has {len(data)} bytes")
    magic, start, length, version = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        raise FormatError(f"not a pack: its last {FOOTER_SIZE} bytes begin with {data[:8]!r}")
    if _CRC.unpack_from(data, _FIELDS.size)[0] != zlib.crc32(data[: _FIELDS.size]):
        raise StateCorruptError("a pack is damaged: the checksum of its footer is wrong")
    if version != _VERSION:
        raise FormatError(f"a pack of version {version}, and this release reads {_VERSION}: use a newer Millpond")
    if start + length + FOOTER_SIZE != size:
        raise StateCorruptError(
            f"a pack is damaged: its tail is said to end at {start + length}, and it has {size} bytes"
        )
    return Tail(start, length)
