"""
A task's head: who may write, and which record is the newest. Values and decisions; no I/O.

One node holds both, so its version is the fence: each claim and each write replaces the head, on condition that it is
of the version that was read, in one multi-operation with the record. A later claim, or a write that was taken for lost
and arrives late, therefore finds another version and changes nothing.
"""

from __future__ import annotations

import msgspec
from attrs import evolve, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import FencedError, FormatError
from millpond.formats.envelope import seal, unseal
from millpond_zookeeper.layout import RecordName

_MAGIC = "millpond-head"
_VERSION = 1


@frozen
class Newest:
    """
    The newest record.

    Attributes:
        name: The record's.
        writer: Who wrote it.
    """

    name: RecordName
    writer: str


@frozen
class Head:
    """
    What a task's head says.

    Attributes:
        claim: Who may write.
        last: The highest number that a record ever had; 0 before the first.
        newest: None while there is no record.
    """

    claim: Claim
    last: int = 0
    newest: Newest | None = None

    def taken_by(self, writer: str) -> Head:
        """Give the head after the task was claimed for *writer*."""
        return evolve(self, claim=Claim(self.claim.task, self.claim.epoch + 1, writer))

    def with_record(self, name: RecordName) -> Head:
        """Give the head after its writer has written a record."""
        return evolve(self, last=name.number, newest=Newest(name, self.claim.writer))

    def holds(self, claim: Claim, id: CheckpointId) -> bool:
        """Whether the newest record is the checkpoint *id* of *claim*: then an answer was lost, and not the write."""
        newest = self.newest
        return newest is not None and newest.writer == claim.writer and newest.name.id == id

    def refuse_others(self, claim: Claim) -> None:
        """Raise FencedError if another than *claim* may write."""
        if self.claim.writer != claim.writer:
            raise FencedError(
                f"epoch {claim.epoch} has lost the task {claim.task!r}: it belongs to epoch {self.claim.epoch} (writer "
                f"{self.claim.writer}) now; stop, and write nothing more"
            )

    def refuse_unseen(self, claim: Claim, after: CheckpointId | None) -> None:
        """Raise FencedError if the newest record is another writer's, and not the one that was seen."""
        newest = self.newest
        if newest is not None and newest.writer != claim.writer and newest.name.id != after:
            raise FencedError(
                f"the newest checkpoint of task {claim.task!r} is {newest.name.id}, but its owner (epoch "
                f"{claim.epoch}) builds on {after or 'none'}: claim the task, read its last checkpoint, and begin from "
                "there"
            )


def lost(claim: Claim) -> FencedError:
    """Give the error of a claim whose head is gone."""
    return FencedError(
        f"epoch {claim.epoch} has lost the task {claim.task!r}: nobody's claim is there any more; stop, and write "
        "nothing more"
    )


class _Newest(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    writer: str


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    task: str
    epoch: int
    writer: str
    last: int
    newest: _Newest | None


_DECODER = msgspec.json.Decoder(_Head)


def encode(head: Head) -> bytes:
    """Give the bytes of *head*; FormatError if a name is no valid Unicode."""
    newest = None if head.newest is None else _Newest(str(head.newest.name), head.newest.writer)
    claim = head.claim
    try:
        body = msgspec.json.encode(_Head(claim.task, claim.epoch, claim.writer, head.last, newest))
    except (UnicodeEncodeError, OverflowError) as error:
        raise FormatError(f"a head that cannot be written: {error}") from error
    return seal(_MAGIC, _VERSION, "head", body)


def decode(data: bytes) -> Head:
    """
    Read a head.

    Raises:
        StateCorruptError: It is empty, cut or changed.
        FormatError: It is no head, or of a newer version.
    """
    try:
        read = _DECODER.decode(unseal(_MAGIC, _VERSION, data).body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(f"a head that is not of version {_VERSION}: {error}") from error
    return Head(Claim(read.task, read.epoch, read.writer), read.last, _newest(read.newest))


def _newest(read: _Newest | None) -> Newest | None:
    if read is None:
        return None
    name = RecordName.parse(read.name)
    if name is None:
        raise FormatError(f"a head that names {read.name!r}, which is no record")
    return Newest(name, read.writer)


def owned(checkpoint: Checkpoint, claim: Claim) -> Checkpoint:
    """Give *checkpoint* with *claim* as its writer."""
    return checkpoint if checkpoint.claim == claim else evolve(checkpoint, claim=claim)
