"""
A checkpoint or a claim as a numbered record in a directory or an object store.

A header line (see :mod:`millpond.formats.envelope`) with the magic ``millpond-record`` and the kind ``checkpoint`` or
``claim``. Behind it a checkpoint is a V2 as Samza reads it, a claim a JSON object.
"""

from __future__ import annotations

import msgspec
from attrs import frozen

from millpond.checkpoint import Checkpoint, Claim
from millpond.errors import FormatError
from millpond.formats import checkpoint_v2
from millpond.formats.envelope import seal, unseal

_MAGIC = "millpond-record"
_VERSION = 1


@frozen
class CheckpointRecord:
    """
    A record that publishes a checkpoint.

    Attributes:
        checkpoint: What was published; its claim says by whom.
    """

    checkpoint: Checkpoint


@frozen
class ClaimRecord:
    """
    A record that takes the right to write.

    Attributes:
        claim: The right.
        millis: When it was taken, in milliseconds since 1970, by the clock of its taker.
    """

    claim: Claim
    millis: int


class _Claim(msgspec.Struct, forbid_unknown_fields=True):
    task: str
    epoch: int
    writer: str
    millis: int


_CLAIM = msgspec.json.Decoder(_Claim)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Give the record of *checkpoint*; raises FormatError as ``checkpoint_v2.encode`` does."""
    return seal(_MAGIC, _VERSION, "checkpoint", checkpoint_v2.encode(checkpoint))


def encode_claim(claim: Claim, millis: int) -> bytes:
    """
    Give the record of *claim*, taken at *millis* (milliseconds since 1970).

    Raises:
        FormatError: A name is no valid Unicode, or a number does not fit into 64 bits.
    """
    try:
        body = msgspec.json.encode(_Claim(claim.task, claim.epoch, claim.writer, millis))
    except (UnicodeEncodeError, OverflowError) as error:
        raise FormatError(f"a claim that cannot be written: {error}") from error
    return seal(_MAGIC, _VERSION, "claim", body)


def decode(data: bytes) -> CheckpointRecord | ClaimRecord:
    """
    Read a record.

    Raises:
        StateCorruptError: It is empty, cut or changed. An empty file is never taken for an absent one.
        FormatError: It is no record, or of a newer version.
    """
    sealed = unseal(_MAGIC, _VERSION, data)
    if sealed.kind == "checkpoint":
        return CheckpointRecord(checkpoint_v2.decode(sealed.body))
    if sealed.kind == "claim":
        return _read_claim(sealed.body)
    raise FormatError(f"a record of an unknown kind: {sealed.kind!r}")


def _read_claim(body: bytes) -> ClaimRecord:
    try:
        read = _CLAIM.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(f"a claim that is not of version {_VERSION}: {error}") from error
    return ClaimRecord(Claim(read.task, read.epoch, read.writer), read.millis)
