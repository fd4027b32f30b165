"""
A store's marker: Samza's ``KafkaStateCheckpointMarker`` with one more field, ``millpond``, which Samza ignores.

The field says which topic of that name it was, from which offset on the log holds the whole store, and whose commit
wrote the record at the marker's offset. Its digest is over all that the marker says and over whose state it is, so that
a marker that was changed, or was brought to another task, is noticed.
"""

from __future__ import annotations

import hashlib

from attrs import frozen

from millpond.checkpoint import CheckpointId, SystemStreamPartition
from millpond.errors import FormatError
from millpond.formats import changelog_marker, samza_text
from millpond.formats.changelog_marker import KafkaStateCheckpointMarker

_VERSION = 1
_KNOWN = frozenset({"version", "changelog-ssp", "changelog-offset", "millpond"})
_WHAT = "'millpond' of this changelog marker"


@frozen
class Origin:
    """
    What only our own markers say.

    Attributes:
        identity: The topic's.
        since: From this offset on the log holds each live key of the store.
        id: The commit that wrote the record at the marker's offset.
        epoch: The claim under which it did.
        sealed: The offset behind that record is the mark of the commit's end, as the log's capability ``seals`` says.
    """

    identity: str
    since: int
    id: CheckpointId
    epoch: int
    sealed: bool = False


@frozen
class Marker:
    """
    Where a store's changes were at a commit.

    Attributes:
        ssp: The changelog's partition, in Samza's words.
        offset: Of the newest record; None: there was none.
        origin: None: Samza wrote the marker, or it comes from a V1 checkpoint.
    """

    ssp: SystemStreamPartition
    offset: int | None
    origin: Origin | None = None

    @property
    def stop(self) -> int:
        """The offset behind the newest record."""
        return 0 if self.offset is None else self.offset + 1

    @property
    def end(self) -> int:
        """The offset behind all that belongs to the commit: a record of another one has this offset or a later one."""
        return self.stop + (self.origin is not None and self.origin.sealed)


def encode(marker: Marker, owner: str) -> str:
    """Give the text: Samza's, with our field behind; *owner* says whose state it is."""
    text = _samza(marker)
    if marker.origin is None:
        return text
    fields: dict[str, object] = {**_fields(marker.origin), "digest": _digest(marker, owner)}
    return f'{text[:-1]},"millpond":{samza_text.encode_text(fields)}}}'


def _samza(marker: Marker) -> str:
    offset = None if marker.offset is None else str(marker.offset)
    return changelog_marker.encode(KafkaStateCheckpointMarker(marker.ssp, offset))


def _fields(origin: Origin) -> dict[str, object]:
    fields: dict[str, object] = {
        "version": _VERSION,
        "topic": origin.identity,
        "since": origin.since,
        "id": str(origin.id),
        "epoch": origin.epoch,
    }
    return {**fields, "sealed": True} if origin.sealed else fields


def _digest(marker: Marker, owner: str) -> str:
    assert marker.origin is not None
    said = "\0".join((owner, _samza(marker), samza_text.encode_text(_fields(marker.origin))))
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def decode(text: str, owner: str) -> Marker:
    """
    Read a marker, *owner*'s or Samza's.

    Raises:
        FormatError: It is none, of a newer version, was changed, or is another owner's.
    """
    found = changelog_marker.decode(text)
    fields = samza_text.object_of(samza_text.parse_text(text, "this changelog marker"), "this changelog marker")
    if strange := fields.keys() - _KNOWN:
        raise FormatError(f"this changelog marker has a field {min(strange)[:40]!r}, which nobody writes")
    marker = Marker(found.ssp, _offset(found.offset), _origin(fields.get("millpond")))
    if marker.origin is not None and text != encode(marker, owner):
        raise FormatError("this changelog marker was changed, or is of another task, store or job")
    return marker


def _offset(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise FormatError(f"the offset {text!r:.40} of this changelog marker is no number that a log could give")
    return int(text)


def _origin(value: object) -> Origin | None:
    if value is None:
        return None
    fields = samza_text.object_of(value, _WHAT)
    if (version := _number(fields, "version")) != _VERSION:
        raise FormatError(f"{_WHAT} is of version {version}, and this release reads {_VERSION}: use a newer Millpond")
    try:
        id = CheckpointId.parse(_text(fields, "id"))
    except ValueError as error:
        raise FormatError(f"{_WHAT}: {error}") from error
    sealed = fields.get("sealed", False)
    if not isinstance(sealed, bool):
        raise FormatError(f"sealed of {_WHAT} must be true, or left out")
    return Origin(_text(fields, "topic"), _number(fields, "since"), id, _number(fields, "epoch"), sealed)


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or isinstance(value, samza_text.Number):
        raise FormatError(f"{name} of {_WHAT} must be a string")
    return value


def _number(fields: dict[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, samza_text.Number):
        raise FormatError(f"{name} of {_WHAT} must be a number")
    return samza_text.parse_integer(value, 64, f"{name} of {_WHAT}")
