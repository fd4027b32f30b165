"""Samza's ``KafkaChangelogSSPOffset``: the value of a changelog's entry in a V1, ``<checkpoint id>:<offset>``."""

from __future__ import annotations

from attrs import frozen

from millpond.checkpoint import CheckpointId
from millpond.errors import FormatError

_NONE = "null"


@frozen
class KafkaChangelogSSPOffset:
    """
    How far a changelog reached at a commit.

    Attributes:
        id: The commit's.
        offset: Of the newest record; None for an empty changelog.
    """

    id: CheckpointId
    offset: str | None


def encode(value: KafkaChangelogSSPOffset) -> str:
    """
    Give Samza's text.

    Raises:
        FormatError: Samza would not read the offset back: it is empty, has a colon, or is the text ``null``.
    """
    if value.offset is None:
        return f"{value.id}:{_NONE}"
    if value.offset in {"", _NONE} or ":" in value.offset:
        raise FormatError(f"Samza cannot read {value.offset!r} back as a changelog's offset")
    return f"{value.id}:{value.offset}"


def decode(text: str | None) -> KafkaChangelogSSPOffset:
    """
    Read Samza's text: the offset is all behind the first colon, so what Samza wrote comes back.

    Raises:
        FormatError: There is no colon, or no checkpoint id before it.
    """
    name, colon, offset = (text or "").partition(":")
    if not colon:
        raise FormatError(f"not a changelog's offset: {text!r:.200} (expected <checkpoint id>:<offset>)")
    try:
        commit = CheckpointId.parse(name)
    except ValueError as error:
        raise FormatError(f"not a changelog's offset: {text!r:.200} ({error})") from error
    return KafkaChangelogSSPOffset(commit, None if offset == _NONE else offset)
