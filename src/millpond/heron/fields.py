"""
Protobuf's wire format where a message is not parsed whole: one field after another, and tags and lengths. Pure.

From the encoding that protobuf's documentation describes: a tag is a varint of field number and kind; kind 2 is a
length and bytes. Groups (kinds 3 and 4) appear in none of Heron's messages and are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from attrs import frozen

from millpond.heron.messages import NotThatMessageError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 10
_ONE_BYTE = [bytes([value]) for value in range(0x80)]
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}

Data = bytes | bytearray | memoryview


@frozen
class Tag:
    """
    What comes before a field's content.

    Attributes:
        number: The field's number.
        kind: How its content is written.
        size: The content's size; of a varint, unknown and 0.
        end: Where the content begins.
    """

    number: int
    kind: int
    size: int
    end: int


def varint(value: int) -> bytes:
    """Write *value*, which is not negative."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def bytes_head(number: int, size: int) -> bytes:
    """Give the tag and the length of a field of *size* bytes."""
    return _tag(number) + varint(size)


@cache
def _tag(number: int) -> bytes:
    return varint(number << 3 | BYTES)


def bytes_field(number: int, content: bytes) -> bytes:
    """Give a whole field of bytes or text."""
    return b"%b%b%b" % (_tag(number), varint(len(content)), content)


def read_varint(data: Data, at: int) -> tuple[int, int] | None:
    """
    Give the varint at *at* and where it ends; None where *data* ends within it.

    Raises:
        NotThatMessageError: It is longer than any.
    """
    value, shift = 0, 0
    for place in range(at, min(len(data), at + LONGEST_VARINT)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    if len(data) - at >= LONGEST_VARINT:
        raise NotThatMessageError("a number in a message has more than ten bytes")
    return None


def read_tag(data: Data, at: int) -> Tag | None:
    """
    Give the tag at *at*, with the length if there is one; None where *data* ends within it.

    Raises:
        NotThatMessageError: It is no tag.
    """
    found = read_varint(data, at)
    if found is None:
        return None
    number, kind = found[0] >> 3, found[0] & 7
    if not 0 < number < 1 << 29 or kind not in (VARINT, FIXED64, BYTES, FIXED32):
        raise NotThatMessageError(f"a message has no field {number} of kind {kind}")
    if kind != BYTES:
        return Tag(number, kind, _FIXED_SIZES.get(kind, 0), found[1])
    length = read_varint(data, found[1])
    return None if length is None else Tag(number, kind, length[0], length[1])


def fields(data: Data) -> Iterator[tuple[int, int, int, int]]:
    """
    Give number, start, content's start and end of each field of a whole message.

    Raises:
        NotThatMessageError: It is none.
    """
    at = 0
    while at < len(data):
        tag = read_tag(data, at)
        if tag is None:
            raise NotThatMessageError("a message ends within a field")
        if tag.kind == VARINT:
            value = read_varint(data, tag.end)
            end = len(data) + 1 if value is None else value[1]
        else:
            end = tag.end + tag.size
        if end > len(data):
            raise NotThatMessageError("a message ends within a field")
        yield tag.number, at, tag.end, end
        at = end


def without(data: bytes, number: int) -> bytes:
    """Give a message without its fields *number*; what is behind damage is left out."""
    kept = []
    try:
        for found, start, _, end in fields(data):
            if found != number:
                kept.append(data[start:end])
    except NotThatMessageError:
        pass
    return b"".join(kept)
