r"""
What lies under a number in a folder that keeps a coordinator's record: an election, or a record.

A header line (see :mod:`millpond.formats.envelope`) with the magic ``millpond-coordination``. An ``election`` is a JSON
object; a ``record`` is ``<epoch> <writer>\n`` and the record's own bytes.
"""

from __future__ import annotations

import re

import msgspec
from attrs import frozen

from millpond.errors import FormatError, StateCorruptError
from millpond.formats.envelope import seal, unseal

_MAGIC = "millpond-coordination"
_VERSION = 1
_HEAD = re.compile(rb"([1-9][0-9]{0,18}) ([0-9a-f]{32})\n")


class Election(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    An entry that makes somebody the leader.

    Attributes:
        epoch: Its own number.
        writer: 128 random bits in hex: who was elected.
        candidate: The same for people.
        millis: When, by the place's clock.
    """

    epoch: int
    writer: str
    candidate: str
    millis: int


@frozen
class RecordEntry:
    """
    An entry that holds a record.

    Attributes:
        epoch: Of the leadership that wrote it.
        writer: Who wrote it.
        data: The record.
    """

    epoch: int
    writer: str
    data: bytes


_ELECTION = msgspec.json.Decoder(Election)


def encode_election(election: Election) -> bytes:
    """Give the entry of *election*; FormatError if the candidate's name is no valid Unicode."""
    try:
        body = msgspec.json.encode(election)
    except (UnicodeEncodeError, OverflowError) as error:
        raise FormatError(f"an election that cannot be written: {error}") from error
    return seal(_MAGIC, _VERSION, "election", body)


def encode_record(entry: RecordEntry) -> bytes:
    """Give the entry of a record; FormatError if it is too large."""
    return seal(_MAGIC, _VERSION, "record", f"{entry.epoch} {entry.writer}\n".encode("ascii") + entry.data)


def decode(data: bytes) -> Election | RecordEntry:
    """
    Read an entry.

    Raises:
        StateCorruptError: It is empty, cut or changed.
        FormatError: It is no such entry, or of a newer version.
    """
    sealed = unseal(_MAGIC, _VERSION, data)
    if sealed.kind == "election":
        return _read_election(sealed.body)
    if sealed.kind == "record":
        return _read_record(sealed.body)
    raise FormatError(f"a {_MAGIC} entry of an unknown kind: {sealed.kind!r}")


def _read_election(body: bytes) -> Election:
    try:
        return _ELECTION.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(f"an election that is not of version {_VERSION}: {error}") from error


def _read_record(body: bytes) -> RecordEntry:
    match = _HEAD.match(body)
    if match is None:
        raise StateCorruptError("a coordinator's record entry does not say who wrote it")
    return RecordEntry(int(match[1]), match[2].decode("ascii"), body[match.end() :])
