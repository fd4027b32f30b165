"""Samza's ``KafkaStateCheckpointMarker``: what the changelog backend returns for a store."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from millpond.checkpoint import Markers, SystemStreamPartition
from millpond.errors import FormatError
from millpond.formats import samza_text
from millpond.formats.samza_text import Number, kind_of, object_of, parse_integer

FACTORY = "org.apache.samza.storage.KafkaChangelogStateBackendFactory"
"""The key of these markers in a V2: the name of Samza's class."""

_WHAT = "this changelog marker"


@frozen
class KafkaStateCheckpointMarker:
    """
    Where a store's changelog was at a commit. Two that differ in the version alone are equal, as in Samza.

    Attributes:
        ssp: The changelog's partition.
        offset: Of its newest record; None for an empty changelog.
        version: Of the marker; 16 bits. Samza writes 1, and does not look at it.
    """

    ssp: SystemStreamPartition
    offset: str | None
    version: int = field(default=1, eq=False)


def encode(marker: KafkaStateCheckpointMarker) -> str:
    """Give Samza's text; raises FormatError where a value is not of its type."""
    ssp = marker.ssp
    place = {"system": ssp.system, "partition": ssp.partition, "stream": ssp.stream, "keyBucket": ssp.key_bucket}
    fields = {"version": marker.version, "changelog-ssp": place, "changelog-offset": marker.offset}
    return samza_text.encode_text(fields)


def decode(text: str | None) -> KafkaStateCheckpointMarker:
    """
    Read Samza's text.

    Better than Samza: a partition or a key bucket that is no number is an error, not 0; so is a missing changelog.

    Raises:
        FormatError: It is no marker, e.g. that of another backend.
    """
    if not text:
        raise FormatError(f"{_WHAT} is empty")
    if len(text) > samza_text.MAX_SIZE:
        raise FormatError(f"{_WHAT} is over the limit of {samza_text.MAX_SIZE} characters")
    fields = object_of(samza_text.parse_text(text, _WHAT), _WHAT)
    version = _integer(fields.get("version", Number("0")), 16, "version")
    return KafkaStateCheckpointMarker(_read_ssp(fields.get("changelog-ssp")), _read_offset(fields), version)


def _read_ssp(value: object) -> SystemStreamPartition:
    fields = object_of(value, f"'changelog-ssp' of {_WHAT}")
    return SystemStreamPartition(
        _name(fields, "system"),
        _name(fields, "stream"),
        _integer(fields.get("partition"), 32, "partition"),
        _integer(fields.get("keyBucket", Number("-1")), 32, "keyBucket"),
    )


def _read_offset(fields: Mapping[str, object]) -> str | None:
    offset = fields.get("changelog-offset")
    if offset is None:
        return None
    if not isinstance(offset, str):
        raise FormatError(f"the offset of {_WHAT} must be a string, not {kind_of(offset)}")
    return str(offset)


def _name(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or isinstance(value, Number):
        raise FormatError(f"the {name} of {_WHAT} must be a string, not {kind_of(value)}")
    return value


def _integer(value: object, bits: int, name: str) -> int:
    if not isinstance(value, Number):
        raise FormatError(f"the {name} of {_WHAT} must be a number, not {kind_of(value)}")
    return parse_integer(value, bits, f"the {name} of {_WHAT}")


def changelog_offsets(markers: Mapping[str, Markers]) -> dict[SystemStreamPartition, str | None]:
    """
    Give the changelogs and offsets among a checkpoint's markers, as Samza's ``scmsToSSPOffsetMap`` does.

    Raises:
        FormatError: A marker under ``FACTORY`` is not one of the changelog backend.
    """
    decoded = (decode(text) for text in markers.get(FACTORY, {}).values())
    return {marker.ssp: marker.offset for marker in decoded}
