"""Reads one task's numbered records; damage is named and never passed over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import define, field, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import FormatError, StateCorruptError, TransientError
from millpond.formats import record as record_format
from millpond.formats.record import CheckpointRecord, ClaimRecord
from millpond.records.folder import RecordFolder, record_name, record_number

_ATTEMPTS = 64


@frozen
class Numbered:
    """
    One record and its number.

    Attributes:
        number: Its number.
        record: What it says.
        data: Its bytes.
    """

    number: int
    record: CheckpointRecord | ClaimRecord
    data: bytes

    @property
    def claim(self) -> Claim | None:
        """Who wrote it; None when Samza did."""
        return self.record.claim if isinstance(self.record, ClaimRecord) else self.record.checkpoint.claim

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that it publishes; None for a claim."""
        return self.record.checkpoint if isinstance(self.record, CheckpointRecord) else None

    @property
    def id(self) -> CheckpointId | None:
        """The id of the checkpoint that it publishes; None for a claim."""
        return self.record.checkpoint.id if isinstance(self.record, CheckpointRecord) else None

    def is_by(self, claim: Claim) -> bool:
        """Tell whether the writer of *claim* wrote it."""
        return self.claim is not None and self.claim.writer == claim.writer


@contextmanager
def named(where: str) -> Iterator[None]:
    """Put *where* in front of what an error of the block says about a record."""
    try:
        yield
    except (FormatError, StateCorruptError) as error:
        raise type(error)(f"the record {where} cannot be read: {error}") from error


def decode_own(task: str, data: bytes) -> CheckpointRecord | ClaimRecord:
    """Decode *data*; StateCorruptError if it is another task's record."""
    record = record_format.decode(data)
    claim = record.claim if isinstance(record, ClaimRecord) else record.checkpoint.claim
    if claim is not None and claim.task != task:
        raise StateCorruptError(f"it belongs to the task {claim.task!r}, not to {task!r}")
    return record


@define
class RecordReader:
    """Reads the records of *task*. Any thread may use it; what was read once is kept while it is listed."""

    task: str
    folder: RecordFolder
    _kept: dict[int, Numbered] = field(factory=dict, init=False)  # records never change

    def numbers(self) -> list[int]:
        """List the numbers that are taken, newest first."""
        listed = {number for name in self.folder.names() if (number := record_number(name)) is not None}
        self._kept = {number: kept for number, kept in list(self._kept.items()) if number in listed}
        return sorted(listed, reverse=True)

    def newest_number(self) -> int:
        """Give the newest number that is taken, or 0."""
        return max(self.numbers(), default=0)

    def read(self, number: int, *, anew: bool = False) -> Numbered | None:
        """Read record *number*, from its place if *anew*; None if it is not there."""
        kept = None if anew else self._kept.get(number)
        if kept is not None:
            return kept
        data = self.folder.read(record_name(number))
        if data is None:
            return None
        with named(self.folder.where(record_name(number))):
            found = Numbered(number, decode_own(self.task, data), data)
        self._kept[number] = found
        return found

    def keep(self, number: int, data: bytes) -> None:
        """Spare reading record *number*, which was just created with *data*."""
        self._kept[number] = Numbered(number, decode_own(self.task, data), data)

    def newest(self) -> Numbered | None:
        """Read the newest record anew; None if there is none."""
        for _ in range(_ATTEMPTS):
            number = self.newest_number()
            if number == 0:
                return None
            if (found := self.read(number, anew=True)) is not None:
                return found
        raise self._too_fast()

    def newest_first(self) -> Iterator[Numbered]:
        """Read all records, newest first; what is removed meanwhile is left out."""
        return self.read_all(self.numbers())

    def read_all(self, numbers: Sequence[int]) -> Iterator[Numbered]:
        """Read the records *numbers*, in this order; what is not there is left out."""
        for number in numbers:
            if (found := self.read(number)) is not None:
                yield found

    def last_checkpoint(self) -> Numbered | None:
        """Read the newest checkpoint; None when it is proven that there is none."""
        for _ in range(_ATTEMPTS):
            found, complete = self._look_for_last()
            if complete:
                return found
        raise self._too_fast()

    def _look_for_last(self) -> tuple[Numbered | None, bool]:
        """Give the newest checkpoint, and whether no record vanished from the listing before it was read."""
        for number in self.numbers():
            found = self.read(number)
            if found is None:
                return None, False
            if found.checkpoint is not None:
                return found, True
        return None, True

    def _too_fast(self) -> TransientError:
        return TransientError(f"the records of task {self.task!r} change faster than they can be read")

    def find(self, id: CheckpointId) -> Numbered | None:
        """
        Find the newest record of checkpoint *id*; None if there is none.

        Damage to other records is an error only if *id* is not found: it may be the damaged one.
        """
        damage: FormatError | StateCorruptError | None = None
        for number in self.numbers():
            try:
                found = self.read(number)
            except (FormatError, StateCorruptError) as error:
                damage = damage or error
                continue
            if found is not None and found.id == id:
                return found
        if damage is not None:
            raise damage
        return None
