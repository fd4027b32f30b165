"""
Checkpoint V1: one flat map of inputs and changelogs, Samza's bytes but for the order, which is a hash's in Samza.

``{"SystemStreamPartition [system, stream, partition]":{"system":…,"partition":"…","offset":…,"stream":…},…}``
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from millpond.checkpoint import Checkpoint, CheckpointId, SystemStreamPartition
from millpond.errors import FormatError
from millpond.formats import changelog_offset, samza_text
from millpond.formats.changelog_marker import changelog_offsets
from millpond.formats.changelog_offset import KafkaChangelogSSPOffset
from millpond.formats.samza_text import Number, kind_of, object_of, parse_integer

_WHAT = "this checkpoint (V1)"
_NO_ID = CheckpointId(0, 0)


class _Entry(msgspec.Struct):
    system: str
    partition: str
    offset: str | None
    stream: str


_ENTRIES = msgspec.json.Decoder(dict[str, _Entry])


def encode(checkpoint: Checkpoint) -> bytes:
    """
    Give a V1 with the checkpoint's offsets and, as Samza does, its changelog markers; it has no place for more.

    Raises:
        FormatError: A changelog marker cannot be read, an offset is not text, or Samza could not read one back.
    """
    entries: dict[SystemStreamPartition, str | None] = dict(checkpoint.offsets)
    for ssp, offset in changelog_offsets(checkpoint.markers).items():
        entries[ssp] = changelog_offset.encode(KafkaChangelogSSPOffset(checkpoint.id, offset))
    return encode_offsets(entries)


def encode_offsets(offsets: Mapping[SystemStreamPartition, str | None]) -> bytes:
    """Give a V1's bytes; None for an input without an offset. Raises FormatError if one is neither text nor None."""
    if not set(map(type, offsets.values())) <= {str, type(None)}:
        raise FormatError("an offset must be a string or None")
    entries = {
        str(ssp): {"system": ssp.system, "partition": str(ssp.partition), "offset": offset, "stream": ssp.stream}
        for ssp, offset in offsets.items()
    }
    if len(entries) != len(offsets):
        raise FormatError("two inputs of this checkpoint have the same display name, so a V1 cannot hold both")
    return samza_text.encode_bytes(entries)


def decode(data: bytes) -> Checkpoint:
    """
    Read a V1: all entries are ``offsets``, changelogs among them; one without an offset is left out.

    The id is that of the first entry that has one, else ``0-0``: V1 has none of its own.

    Raises:
        FormatError: It is no V1, where Samza would take it for an absent one.
    """
    offsets = {ssp: offset for ssp, offset in decode_offsets(data).items() if offset is not None}
    return Checkpoint(next((found for offset in offsets.values() if (found := _id_in(offset))), _NO_ID), offsets)


def _id_in(offset: str) -> CheckpointId | None:
    if ":" not in offset:
        return None
    try:
        return changelog_offset.decode(offset).id
    except FormatError:
        return None


def decode_offsets(data: bytes) -> dict[SystemStreamPartition, str | None]:
    """
    Read a V1's entries, None where one has no offset; of the same input given twice the last wins.

    Better than Samza: a key bucket, which only the outer key has, is read from there.

    Raises:
        FormatError: It is no V1.
    """
    try:
        entries = _ENTRIES.decode(data)
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError):
        entries = _read_leniently(data)
    return {_ssp(key, entry): entry.offset for key, entry in entries.items()}


def _ssp(key: str, entry: _Entry) -> SystemStreamPartition:
    partition = parse_integer(entry.partition, 32, f"the partition of {key[:200]!r} in {_WHAT}")
    front = f"SystemStreamPartition [{entry.system}, {entry.stream}, {entry.partition}"
    bucket = -1
    if len(key) > len(front) + 3 and key.startswith(front + ", ") and key.endswith("]"):
        bucket = parse_integer(key[len(front) + 2 : -1], 32, f"the key bucket of {key[:200]!r} in {_WHAT}")
    return SystemStreamPartition(entry.system, entry.stream, partition, bucket)


def _read_leniently(data: bytes) -> dict[str, _Entry]:
    """Read what Samza's parser takes although nobody writes it so, or say what is wrong."""
    document = object_of(samza_text.parse(data, _WHAT), _WHAT)
    return {key: _read_entry(key, object_of(value, f"{key[:200]!r} in {_WHAT}")) for key, value in document.items()}


def _read_entry(key: str, fields: Mapping[str, object]) -> _Entry:
    if len(fields) < 4:
        raise FormatError(f"{key[:200]!r} in {_WHAT} has {len(fields)} fields (system, partition, offset, stream)")
    system, partition, stream = (_text(key, fields, name) for name in ("system", "partition", "stream"))
    offset = None if fields.get("offset") is None else _text(key, fields, "offset")
    return _Entry(system, partition, offset, stream)


def _text(key: str, fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or isinstance(value, Number):
        raise FormatError(f"the {name} of {key[:200]!r} in {_WHAT} must be a string, not {kind_of(value)}")
    return value
