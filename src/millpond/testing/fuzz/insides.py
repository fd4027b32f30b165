"""What is behind a digest, taken out of valid bytes and put back under a right one."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable, Sequence

import msgspec

from millpond.formats import java_text
from millpond.formats.digest import digest_bytes
from millpond.formats.envelope import seal, unseal
from millpond.testing.fuzz.mutation import changed, mutated

_DIGEST = b',"digest":"'
_LARGEST = 1 << 18


def json_mutated(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Change JSON as the tree that it is, or as bytes."""
    if chance.random() < 0.3:
        return mutated(data, others, chance)
    try:
        value = json.loads(data)
        for _ in range(chance.choice((1, 1, 2, 3))):
            value = changed(value, chance)
        text = json.dumps(value, ensure_ascii=chance.random() < 0.5, separators=(",", ":"))
    except (ValueError, RecursionError):
        return mutated(data, others, chance)
    return text.encode("utf-8", "surrogatepass")[:_LARGEST]


def enveloped(magic: str, kind: str, body: Callable[[bytes], bytes] = bytes) -> Callable[[bytes], bytes]:
    """Give what puts a header line in front of an inside."""
    return lambda data: seal(magic, 1, kind, body(data))


def body_of(magic: str, data: bytes) -> bytes:
    """Give what is behind a header line."""
    return unseal(magic, 1, data).body


def without_digest(checkpoint: bytes) -> bytes:
    """Give a V2 without the digest at its end."""
    head, found, _ = checkpoint.rpartition(_DIGEST)
    return head + b"}}" if found else checkpoint


def with_digest(checkpoint: bytes) -> bytes:
    """Put the digest at the end of a V2 that has room for one."""
    if not checkpoint.endswith(b"}}"):
        return checkpoint
    head = checkpoint[:-2]
    return head + _DIGEST + digest_bytes(head).encode("ascii") + b'"}}'


def framed(text: bytes) -> bytes:
    """Put Java's frame and checksum around a text."""
    return java_text.encode(text.decode("utf-8", "replace"))


def footed(head: bytes) -> bytes:
    """Put the checksum behind the fields of a pack's footer."""
    return head + struct.pack(">I", zlib.crc32(head))


def change_file_of(payload: bytes) -> bytes:
    """Make a change file of one frame with *payload*; all its checksums are right."""
    try:
        records = len(msgspec.msgpack.decode(payload, type=list[msgspec.Raw]))
    except (msgspec.MsgspecError, RecursionError):
        records = 3
    head = b"\x89MPCF\r\n\x1a" + struct.pack(">I", 1)
    last = struct.pack(">QQ", records, len(payload))
    return (
        head + struct.pack(">I", zlib.crc32(head)) + _frame(b"DATA", 0, records, payload) + _frame(b"LAST", 1, 0, last)
    )


def _frame(tag: bytes, place: int, records: int, payload: bytes) -> bytes:
    head = struct.pack(">4sIII", tag, place, records, len(payload))
    return head + struct.pack(">I", zlib.crc32(payload, zlib.crc32(head))) + payload
