"""
The coordinator's durable record: which job checkpoints are whole, newest first.

A header line (see :mod:`millpond.formats.envelope`) with the magic ``millpond-coordinator`` and the kind
``job-record``, and behind it JSON. Inline state is base64 in it. Heron keeps ``StatefulConsistentCheckpoints`` in the
same role.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.metadata import MAX_RECORD
from millpond.coordinator.state import MemberState
from millpond.errors import FormatError
from millpond.formats.envelope import seal, unseal

MAGIC = "millpond-coordinator"
VERSION = 1
_KIND = "job-record"


class JobCheckpoint(msgspec.Struct, frozen=True):
    """
    One checkpoint of every member of a job; whole, or it is not here.

    Attributes:
        id: The attempt that made it.
        millis: When it was whole, by the coordinator's clock, in milliseconds since 1970; for people only.
        members: Each member's part.
        name: Set for a savepoint, which no retention removes.
        based_on: The job checkpoint to which the members had been restored when it began; None: they began empty.
    """

    id: JobCheckpointId
    millis: int
    members: Mapping[str, MemberState]
    name: str = ""
    based_on: JobCheckpointId | None = None


class JobRecord(msgspec.Struct, frozen=True):
    """
    All that outlives a coordinator.

    Attributes:
        job: The job's name.
        job_id: Its id.
        checkpoints: The retained ones, newest first.
        transaction: The newest restore after which members were told to process. It is written before they are, so a
            coordinator that was replaced cannot start members on what it takes for the newest.
    """

    job: str
    job_id: str = "1"
    checkpoints: tuple[JobCheckpoint, ...] = ()
    transaction: TransactionId | None = None

    @property
    def newest(self) -> JobCheckpoint | None:
        """The newest job checkpoint; None: none was ever whole."""
        return self.checkpoints[0] if self.checkpoints else None

    @property
    def ids(self) -> tuple[JobCheckpointId, ...]:
        """The ids that are retained, newest first."""
        return tuple(checkpoint.id for checkpoint in self.checkpoints)

    def find(self, id: JobCheckpointId) -> JobCheckpoint | None:
        """Give the retained checkpoint *id*; None if there is none."""
        return next((checkpoint for checkpoint in self.checkpoints if checkpoint.id == id), None)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(JobRecord)


def encode(record: JobRecord) -> bytes:
    """
    Give the bytes of *record*.

    Raises:
        FormatError: A name is no valid Unicode, or it is larger than ``MAX_RECORD``; the message says what to do.
    """
    try:
        body = _ENCODER.encode(record)
    except (UnicodeEncodeError, OverflowError) as error:
        raise FormatError(f"a coordinator record that cannot be written: {error}") from error
    if len(body) > MAX_RECORD - 4096:
        raise FormatError(
            f"the coordinator record of job {record.job!r} has {len(body):,} bytes, over the limit of {MAX_RECORD:,}: "
            f"retain fewer job checkpoints, or let members keep their state by location"
        )
    return seal(MAGIC, VERSION, _KIND, body)


def decode(data: bytes) -> JobRecord:
    """
    Read a record.

    Raises:
        StateCorruptError: It is empty, cut or changed.
        FormatError: It is no record of a coordinator, or of a newer version.
    """
    sealed = unseal(MAGIC, VERSION, data)
    if sealed.kind != _KIND:
        raise FormatError(f"a {MAGIC} of an unknown kind: {sealed.kind!r}")
    try:
        return _DECODER.decode(sealed.body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(f"a coordinator record that is not of version {VERSION}: {error}") from error
