"""A topic's own file: what it is called, its identity, its partitions and settings; made once, never changed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec
from attrs import frozen

from millpond.errors import FormatError, StateCorruptError

FILE_NAME = "TOPIC"
_VERSION = 1
_LARGEST = 1 << 20


@frozen
class TopicFile:
    """
    What a topic is.

    Attributes:
        name: Its name.
        identity: 16 random bytes.
        partitions: How many.
        settings: By Kafka's names.
    """

    name: str
    identity: bytes
    partitions: int
    settings: Mapping[str, str]


def encode(topic: TopicFile) -> bytes:
    """Give a line with version and checksum, then JSON."""
    fields = {
        "name": topic.name,
        "identity": topic.identity.hex(),
        "partitions": topic.partitions,
        "settings": dict(sorted(topic.settings.items())),
    }
    body = msgspec.json.encode(fields)
    return b"millpond-topic %d %08x\n%s\n" % (_VERSION, zlib.crc32(body), body)


def decode(data: bytes, where: str) -> TopicFile:
    """
    Read it.

    Raises:
        FormatError: It is of a newer version.
        StateCorruptError: It is damaged.
    """
    head, _, body = data[:_LARGEST].partition(b"\n")
    words = head.split(b" ")
    body = body.removesuffix(b"\n")
    if len(words) != 3 or words[0] != b"millpond-topic" or words[2] != b"%08x" % zlib.crc32(body):
        raise StateCorruptError(f"{where} is damaged: its checksum or its shape is wrong")
    if words[1] != b"%d" % _VERSION:
        raise FormatError(f"{where} is of version {words[1]!r:.20}, and this release reads {_VERSION}")
    try:
        fields = msgspec.json.decode(body, type=_Fields)
        return TopicFile(fields.name, bytes.fromhex(fields.identity), fields.partitions, fields.settings)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StateCorruptError(f"{where} is damaged: {error}") from error


class _Fields(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    identity: str
    partitions: int
    settings: dict[str, str]
