"""
Checkpoints as records of the topic, and back. Pure.

One commit is several records with the same headers: the checkpoint under a key of its own, in our envelope, and the
newest checkpoint in each version that Samza reads. The version that is read first is the last: where an append is not
atomic it is the commit point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import StateCorruptError
from millpond.formats import checkpoint_v1, checkpoint_v2
from millpond.formats import record as record_format
from millpond.formats.record import CheckpointRecord, ClaimRecord
from millpond.spi import Change, VersionPolicy
from millpond_changelog.checkpoints.keys import Keys
from millpond_changelog.checkpoints.view import Found

ID = "millpond-id"
EPOCH = "millpond-epoch"
WRITER = "millpond-writer"
JOB = "millpond-job"

NOTHING = CheckpointId(0, 0)
"""The id of what stands for no checkpoint: a tombstone under Samza's keys would stop a job of Samza's."""


@frozen
class Mark:
    """
    Which commit a record is of, as its headers say.

    Attributes:
        id: The checkpoint.
        writer: Who wrote it.
    """

    id: CheckpointId
    writer: str


def headers_of(id: CheckpointId, claim: Claim) -> dict[str, bytes]:
    """Give the headers of the records of a commit."""
    return {ID: str(id).encode(), EPOCH: str(claim.epoch).encode(), WRITER: claim.writer.encode()}


def mark_of(found: Found) -> Mark | None:
    """Give which commit of ours a record is of; None if it is nobody's that we know, such as Samza's."""
    if ID not in found.headers or WRITER not in found.headers:
        return None
    try:
        return Mark(CheckpointId.parse(found.headers[ID].decode()), found.headers[WRITER].decode())
    except ValueError:
        return None


def commit_changes(checkpoint: Checkpoint, keys: Keys, versions: VersionPolicy) -> list[Change]:
    """Give the records that publish *checkpoint*; FormatError if it cannot be written at all."""
    kept = (keys.kept(checkpoint.id), record_format.encode_checkpoint(checkpoint))
    return [kept, *newest_changes(checkpoint, keys, versions)]


def newest_changes(checkpoint: Checkpoint, keys: Keys, versions: VersionPolicy) -> list[Change]:
    """Give the records that make *checkpoint* the newest in each version that is written."""
    encoders = {1: checkpoint_v1.encode, 2: checkpoint_v2.encode}
    return [(keys.newest(version), encoders[version](checkpoint)) for version in in_order(versions)]


def in_order(versions: VersionPolicy) -> Sequence[int]:
    """Give the versions to write, the one that is read first at last."""
    read = versions.read
    return sorted(versions.write, key=lambda each: -read.index(each) if each in read else -len(read))


def decode_newest(found: Found) -> Checkpoint:
    """Read a newest checkpoint, which may be Samza's; FormatError or StateCorruptError if that is not possible."""
    return checkpoint_v1.decode(found.value) if found.version == 1 else checkpoint_v2.decode(found.value)


def decode_kept(task: str, data: bytes) -> Checkpoint:
    """Read a checkpoint that is kept, or a pin."""
    record = record_format.decode(data)
    if not isinstance(record, CheckpointRecord):
        raise StateCorruptError("it is a claim, and a checkpoint is expected")
    claim = record.checkpoint.claim
    if claim is not None and claim.task != task:
        raise StateCorruptError(f"it belongs to the task {claim.task!r}, not to {task!r}")
    return record.checkpoint


def decode_claim(task: str, found: Found | None) -> Claim | None:
    """Read a claim; None if there is none."""
    if found is None:
        return None
    record = record_format.decode(found.value)
    if not isinstance(record, ClaimRecord) or record.claim.task != task:
        raise StateCorruptError(f"it is no claim of the task {task!r}")
    return record.claim


def job_of(headers: Mapping[str, bytes]) -> str | None:
    """Give the job that a claim was made for; None if it does not say."""
    return headers[JOB].decode("utf-8", "replace") if JOB in headers else None
