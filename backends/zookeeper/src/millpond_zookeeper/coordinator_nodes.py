"""
The coordinator's nodes and what they hold; values, no I/O.

::

    <root>/<job>/coordinator/epoch      the newest leadership; its version is the fence of all earlier ones
    <root>/<job>/coordinator/leading    ephemeral: there while a leader's session lives
    <root>/<job>/coordinator/record     the record, in a wrapping that says who wrote it in place of what
    <root>/<job>/coordinator/parts      what is larger than a node
"""

from __future__ import annotations

import re

import msgspec
from attrs import frozen

from millpond.errors import FormatError
from millpond.formats.envelope import seal, unseal
from millpond_zookeeper.layout import job_path

_LEADER_MAGIC = "millpond-leader"
_RECORD_MAGIC = "millpond-coordinated"
_VERSION = 1
_STATE = re.compile(r"([0-9]{1,10})-([0-9a-f]{1,16})")


@frozen
class CoordinatorPaths:
    """
    The nodes of one job's coordinator.

    Attributes:
        base: The node above all of them.
    """

    base: str

    @classmethod
    def of(cls, root: str, job: str, job_id: str) -> CoordinatorPaths:
        """Give a job's; ConfigError if its name is too long."""
        return cls(f"{job_path(root, job, job_id)}/coordinator")

    @property
    def epoch(self) -> str:
        """Who led last."""
        return f"{self.base}/epoch"

    @property
    def leading(self) -> str:
        """Who leads now."""
        return f"{self.base}/leading"

    @property
    def record(self) -> str:
        """The record."""
        return f"{self.base}/record"

    @property
    def parts(self) -> str:
        """The node above what is larger than a node."""
        return f"{self.base}/parts"


@frozen
class Leader:
    """
    One leadership, as the nodes name it.

    Attributes:
        epoch: Its number; 0: there never was one.
        candidate: Who was elected.
        token: Random; no other leadership has it.
    """

    epoch: int = 0
    candidate: str = ""
    token: str = ""


class _Leader(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    candidate: str
    token: str


class _By(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    token: str
    after: str | None
    size: int


@frozen
class Wrapped:
    """
    The record in its wrapping.

    Attributes:
        epoch: Of the leadership that wrote it.
        token: Of that leadership.
        after: The version that it took the place of; None: there was none.
        data: The record.
    """

    epoch: int
    token: str
    after: str | None
    data: bytes


_LEADER = msgspec.json.Decoder(_Leader)
_BY = msgspec.json.Decoder(_By)


def encode_leader(leader: Leader) -> bytes:
    """Give the bytes of *leader*; FormatError if its name is no valid Unicode."""
    try:
        body = msgspec.json.encode(_Leader(leader.epoch, leader.candidate, leader.token))
    except UnicodeEncodeError as error:
        raise FormatError(f"the candidate {leader.candidate!r} cannot be written: {error}") from error
    return seal(_LEADER_MAGIC, _VERSION, "leader", body)


def decode_leader(data: bytes) -> Leader:
    """Read who leads; StateCorruptError or FormatError if that cannot be."""
    try:
        read = _LEADER.decode(unseal(_LEADER_MAGIC, _VERSION, data).body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(f"a leader that is not of version {_VERSION}: {error}") from error
    return Leader(read.epoch, read.candidate, read.token)


def wrap(wrapped: Wrapped) -> bytes:
    """Give the bytes of a record in its wrapping: a line of JSON, and the record behind it."""
    by = _By(wrapped.epoch, wrapped.token, wrapped.after, len(wrapped.data))
    return seal(_RECORD_MAGIC, _VERSION, "record", msgspec.json.encode(by) + b"\n" + wrapped.data)


def unwrap(data: bytes) -> Wrapped:
    """Read a record in its wrapping; StateCorruptError or FormatError if that cannot be."""
    line, _, record = unseal(_RECORD_MAGIC, _VERSION, data).body.partition(b"\n")
    try:
        by = _BY.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(f"a wrapping that is not of version {_VERSION}: {error}") from error
    if by.size != len(record):
        raise FormatError(f"a wrapping that says {by.size} bytes around a record of {len(record)}")
    return Wrapped(by.epoch, by.token, by.after, record)


def version_text(version: int, zxid: int) -> str:
    """Give the word for one state of the record: the node's version, and the transaction that made it."""
    return f"{version}-{zxid:x}"


def node_version(expected: str | None) -> int | None:
    """Give the node's version in such a word; None if it is none. No record is an empty node of version 0."""
    if expected is None:
        return 0
    match = _STATE.fullmatch(expected)
    return None if match is None else int(match[1])
