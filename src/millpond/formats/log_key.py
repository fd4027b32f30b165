"""Samza's ``KafkaCheckpointLogKey``: the key of a record in the checkpoint topic: what it is compacted by, so exact."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from millpond.errors import FormatError
from millpond.formats import samza_text
from millpond.formats.samza_text import Number, kind_of, object_of

TYPE_V1 = "checkpoint"
TYPE_V2 = "checkpoint-v2"

_WHAT = "this key of the checkpoint topic"
_GROUPER = "systemstreampartition-grouper-factory"


@frozen
class KafkaCheckpointLogKey:
    """
    Whose record it is, and of which kind.

    Attributes:
        type: ``TYPE_V1``, ``TYPE_V2`` or another, which Samza skips.
        task: The task's name.
        grouper: The name of Samza's class that spreads the input over the tasks; not empty.
    """

    type: str
    task: str
    grouper: str


def encode(key: KafkaCheckpointLogKey) -> bytes:
    """
    Give the key's bytes, which are always the same for equal keys.

    Raises:
        FormatError: The grouper is empty, or a field is not text.
    """
    fields = {_GROUPER: key.grouper, "taskName": key.task, "type": key.type}
    for name in fields:
        _text(fields, name)
    if not key.grouper:
        raise FormatError(f"the {_GROUPER} of a checkpoint's key must not be empty")
    return samza_text.encode_bytes(fields)


def decode(data: bytes | None) -> KafkaCheckpointLogKey:
    """
    Read a key; of any type, with its fields in any order and others among them.

    Raises:
        FormatError: It is no key, or has no task (which Samza reads as a key for the task null).
    """
    fields = object_of(samza_text.parse(data, _WHAT), _WHAT)
    grouper = _text(fields, _GROUPER)
    if not grouper:
        raise FormatError(f"the {_GROUPER} of {_WHAT} must not be empty")
    return KafkaCheckpointLogKey(_text(fields, "type"), _text(fields, "taskName"), grouper)


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or isinstance(value, Number):
        raise FormatError(f"the {name} of {_WHAT} must be a string, not {kind_of(value)}")
    return value
