"""
The rules of Samza's ``KafkaCheckpointManager``, record by record: what it gives for each task, or that it stops.

Source: the behaviour of Samza 1.8.0's class, recorded in the golden cases ``topic-read``; the test of this model holds
it to each of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen

_TYPES = {"checkpoint": 1, "checkpoint-v2": 2}


class SamzaStopsError(Exception):
    """The job would not start."""


@frozen
class Record:
    """A record of the checkpoint topic, as any consumer gets it."""

    key: bytes | None
    value: bytes | None
    millis: int = 0


@frozen
class Read:
    """What Samza holds of a task: nothing (None), once a V1 could not be read; and then it takes nothing more."""

    version: int
    offsets: dict[str, str | None] | None
    millis: int


def samza_reads(
    records: Iterable[Record],
    versions: Sequence[int],
    grouper: str,
    *,
    validate: bool = True,
    max_age_ms: int = 600_000,
) -> dict[str, Read]:
    """Give what Samza holds after the records; SamzaStopsError if one of them stops it."""
    held: dict[str, Read] = {}
    for record in records:
        try:
            found = _look(record, versions, grouper, validate)
            if found is None:
                continue
            task, new = found
            old = held.get(task)
            if old is not None and old.offsets is None:
                raise _WrongError(f"the checkpoint of {task} is null already")
        except _WrongError as error:
            if validate:
                raise SamzaStopsError(str(error)) from error
            continue
        if (
            old is None
            or versions.index(new.version) <= versions.index(old.version)
            or (new.millis - old.millis > max_age_ms)
        ):
            held[task] = new
    return held


class _WrongError(Exception):
    """An error that is only fatal with validation."""


def _look(record: Record, versions: Sequence[int], grouper: str, validate: bool) -> tuple[str, Read] | None:
    if record.key is None:
        raise SamzaStopsError("a record without a key")
    key = _json(record.key)
    if not isinstance(key, dict) or not isinstance(key.get("type"), str):
        raise _WrongError("no key")
    if validate and key.get("systemstreampartition-grouper-factory") != grouper:
        raise _WrongError("another grouper")
    version = _TYPES.get(key["type"])
    if version is None or version not in versions:
        return None
    read = _v1 if version == 1 else _v2
    return key["taskName"], Read(version, read(record.value), record.millis)


def _v1(value: bytes | None) -> dict[str, str | None] | None:
    """Whatever is wrong with a V1 makes it null."""
    try:
        entries = _json(value)
        found = {}
        for entry in entries.values():
            if len(entry) < 4 or not all(isinstance(entry[name], str) for name in ("system", "stream", "partition")):
                return None
            ssp = f"SystemStreamPartition [{entry['system']}, {entry['stream']}, {int(entry['partition'])}]"
            found[ssp] = entry.get("offset")
    except (_WrongError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found


def _v2(value: bytes | None) -> dict[str, str | None]:
    document = _json(value)
    if document is None or not isinstance(document.get("state-checkpoint-markers"), dict):
        raise _WrongError("no V2")
    found: dict[str, str | None] = {}
    for key, offset in document["input-offsets"].items():
        parts = key.split(".")
        try:
            found[f"SystemStreamPartition [{parts[0]}, {parts[1]}, {int(parts[2])}]"] = offset
        except (IndexError, ValueError) as error:
            raise _WrongError(f"a dotted name: {key}") from error
    return found


def _json(data: bytes | None) -> Any:
    if data is None:
        raise _WrongError("a tombstone")
    try:
        return json.loads(data)
    except ValueError as error:
        raise _WrongError("no JSON") from error
