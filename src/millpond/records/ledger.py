"""
One task's numbered records: who may write, and what was written.

Records are numbered densely from 1, and each number is created once. A claim is itself a record, and its number is
its epoch. A writer takes the number after its newest one, so a later claim stands in its way: that is the fence. Three
rules keep it standing though records are removed:

* The newest record is never removed without another in its place, so no number is used twice.
* A writer looks before it writes: the newest record must be its own. So one that slept for ever is refused even if the
  claims that replaced it are gone. Where a look is a request, one serves several writes of a writer that stayed awake
  (:mod:`millpond.records.looking`).
* A claim outlives its replacement by ``CLAIM_LIFE``, by the clock of the place. So one that slept between that look and
  its write is refused too. Nothing that was created is taken back: a later claimant may have read it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta

from attrs import define, evolve, field, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.clock import Clock
from millpond.errors import FencedError, FormatError, MillpondError, StateNotFoundError, TransientError
from millpond.formats import record as record_format
from millpond.formats.record import ClaimRecord
from millpond.points import reached
from millpond.records.folder import NamedFolder, RecordFolder, record_name
from millpond.records.looking import Look
from millpond.records.pins import PinBoard
from millpond.records.reader import Numbered, RecordReader

CLAIM_LIFE = timedelta(days=30)
"""How long a replaced claim stays at least."""

_ATTEMPTS = 64
_CLAIMS_PER_SWEEP = 256


@frozen
class _Written:
    number: int
    id: CheckpointId | None = None


@define
class TaskRecords:
    """
    The records of one task. Any thread may read; writing calls do not overlap.

    Every method may raise TransientError when the place does not answer, and StateCorruptError or FormatError when a
    record that it needs cannot be read; the message names that record.
    """

    task: str
    _folder: RecordFolder
    _pins: PinBoard
    _reader: RecordReader
    _clock: Clock
    _looks: dict[str, Look] = field(factory=dict, init=False)  # by writer: its newest look
    _last: dict[str, _Written] = field(factory=dict, init=False)  # by writer: its newest record, as far as is known

    @classmethod
    def of(cls, task: str, records: RecordFolder, pins: NamedFolder, clock: Clock) -> TaskRecords:
        """Keep the records of *task* in *records*, and its pins in *pins*; *clock* is this machine's."""
        return cls(task, records, PinBoard(task, pins), RecordReader(task, records), clock)

    # Claims

    def claim(self) -> Claim:
        """Take the right to write from whoever has it; durable when it returns."""
        writer = secrets.token_hex(16)
        number = 0
        for _ in range(_ATTEMPTS):
            number = max(number, self._reader.newest_number()) + 1
            claim = Claim(self.task, number, writer)
            reached("records.before-claim")
            # A claimant that slept before its creation is not the newest, and is refused to nobody: it claims again.
            if self._create_claim(number, claim) and self._reader.newest_number() == number:
                self._last[writer] = _Written(number)
                reached("records.claimed")
                self._sweep(number)
                return claim
        raise TransientError(f"{_ATTEMPTS} others claimed the task {self.task!r} at the same time: try again")

    def _create_claim(self, number: int, claim: Claim) -> bool:
        """Record *claim* as *number*; True also if it is there because the answer to this was lost."""
        data = record_format.encode_claim(claim, self._folder.now_millis())
        if self._folder.create(record_name(number), data):
            return True
        found = self._read_rival(number)
        return found is not None and found.is_by(claim)

    def _sweep(self, newest_claim: int) -> None:
        """Remove claims that no sleeper can need any more; the next claim tries again what fails here."""
        with suppress(MillpondError):
            self._folder.tidy()
            self._delete(self._outlived_claims(newest_claim))

    def _outlived_claims(self, newest_claim: int) -> list[int]:
        oldest_kept = self._folder.now_millis() - CLAIM_LIFE // timedelta(milliseconds=1)
        outlived = []
        for number in sorted(self._reader.numbers())[:_CLAIMS_PER_SWEEP]:
            found = self._reader.read(number) if number < newest_claim else None
            if found is not None and isinstance(found.record, ClaimRecord):
                if found.record.millis > oldest_kept:
                    break  # Later claims are younger.
                outlived.append(number)
        return outlived

    # Writing

    def write(self, claim: Claim, checkpoint: Checkpoint, after: CheckpointId | None) -> None:
        """
        Publish *checkpoint* under *claim*; see ``CheckpointManager.write``.

        Raises:
            FencedError: There is a later claim, or another writer's checkpoint beyond *after*.
            FormatError: It cannot be encoded; nothing was written.
        """
        checkpoint = checkpoint if checkpoint.claim == claim else evolve(checkpoint, claim=claim)
        data = record_format.encode_checkpoint(checkpoint)
        last = self._last_before(claim, checkpoint.id, after)
        self._last[claim.writer] = _Written(self._publish(claim, checkpoint.id, data, last), checkpoint.id)

    def _last_before(self, claim: Claim, id: CheckpointId, after: CheckpointId | None) -> int:
        """Give the newest number before that of *id*, which must be the claim's own."""
        last = self._last.get(claim.writer)
        if last is not None and last.id not in (None, id) and self._may_write_after(claim, last):
            return last.number
        newest = self._newest_own(claim)
        if newest.number == claim.epoch:
            self._refuse_unseen(claim, after)
        return newest.number - 1 if newest.id == id else newest.number

    def _may_write_after(self, claim: Claim, last: _Written) -> bool:
        """Whether the claim's record *last* is the newest, as far as has to be known before a write."""
        look, now = self._looks.get(claim.writer), self._look_now()
        if look is not None and self._folder.listing_costs and look.serves(now.wall_s, now.monotonic_s):
            self._looks[claim.writer] = evolve(look, writes=look.writes + 1)
            return True
        if last.number != self._reader.newest_number():
            return False
        self._looks[claim.writer] = now
        return True

    def _look_now(self) -> Look:
        return Look(self._clock.millis() / 1000, self._clock.monotonic())

    def _publish(self, claim: Claim, id: CheckpointId, data: bytes, last: int) -> int:
        """Create the first record after *last* that is not ours already, and give its number."""
        for number in range(last + 1, last + 1 + _ATTEMPTS):
            if self._folder.create(record_name(number), data):
                self._reader.keep(number, data)
                return number
            found = self._read_rival(number)
            if found is None or not found.is_by(claim):
                raise self._fenced(claim)
            if found.id == id:
                return number  # The answer was lost, not the write.
        raise TransientError(f"{_ATTEMPTS} own records of task {self.task!r} are unaccounted for")

    def _read_rival(self, number: int) -> Numbered | None:
        try:
            return self._reader.read(number, anew=True)
        except FormatError:
            return None  # We can read whatever we write: it is another's, of a later release.

    def _newest_own(self, claim: Claim) -> Numbered:
        """Read the newest record, which is the claim's own unless it was replaced (FencedError)."""
        look = self._look_now()
        newest = self._reader.newest()
        if newest is None or not newest.is_by(claim):
            raise self._fenced(claim)
        self._looks[claim.writer] = look
        return newest

    def _refuse_unseen(self, claim: Claim, after: CheckpointId | None) -> None:
        """Refuse a writer's first record if it has not seen the newest checkpoint before its claim."""
        newest = self._reader.last_checkpoint()
        if newest is None or newest.id == after:
            return
        raise FencedError(
            f"the newest checkpoint of task {self.task!r} is {newest.id}, but its owner (epoch {claim.epoch}) builds "
            f"on {after or 'none'}: claim the task, read its last checkpoint, and begin from there"
        )

    def _fenced(self, claim: Claim) -> FencedError:
        owner = None
        with suppress(MillpondError):  # The answer stands without the owner's name.
            newest = self._reader.newest()
            owner = newest.claim if newest is not None and not newest.is_by(claim) else None
        found = (
            "its claim is gone" if owner is None else f"it belongs to epoch {owner.epoch} (writer {owner.writer}) now"
        )
        return FencedError(
            f"epoch {claim.epoch} has lost the task {self.task!r}: {found}; stop, and write nothing more"
        )

    # Reading

    def read_last(self) -> Checkpoint | None:
        """Give the newest checkpoint; None when it is proven that there is none."""
        found = self._reader.last_checkpoint()
        return None if found is None else found.checkpoint

    def read(self, id: CheckpointId) -> Checkpoint:
        """Give the checkpoint *id*, listed or pinned; StateNotFoundError if there is none."""
        listed = self._reader.find(id)
        found = self._pins.find(id) if listed is None else listed.checkpoint
        if found is None:
            raise self._no_checkpoint(id)
        return found

    def _no_checkpoint(self, id: CheckpointId) -> StateNotFoundError:
        return StateNotFoundError(f"the task {self.task!r} has no checkpoint {id}")

    def ids(self) -> list[CheckpointId]:
        """Give the ids of the listed checkpoints, newest first."""
        return [found.id for found in self._reader.newest_first() if found.id is not None]

    # Removing and keeping

    def delete(self, claim: Claim, ids: Collection[CheckpointId]) -> None:
        """Remove the records *ids*, missing ones are fine; FencedError to a replaced writer."""
        look, numbers = self._look_now(), self._reader.numbers()
        last = self._last.get(claim.writer)
        if last is not None and numbers[:1] == [last.number]:
            self._looks[claim.writer] = look
        else:
            self._newest_own(claim)
            numbers = self._reader.numbers()
        doomed = [found.number for found in self._reader.read_all(numbers) if found.id in ids]
        if numbers[0] in doomed:
            self._hold_place(claim, numbers[0] + 1)
        self._delete(doomed)

    def _hold_place(self, claim: Claim, number: int) -> None:
        """Repeat the claim as record *number*: the newest number has to stay taken."""
        if not self._create_claim(number, claim):
            raise self._fenced(claim)
        self._last[claim.writer] = _Written(number)

    def _delete(self, numbers: Collection[int]) -> None:
        if numbers:
            reached("records.before-removal")
            self._folder.delete([record_name(number) for number in numbers])

    def pin(self, id: CheckpointId, name: str) -> None:
        """Keep a copy of the record *id* as the pin *name*; ConfigError if that pins another id."""
        listed = self._reader.find(id)
        data = self._pins.data_of(id) if listed is None else listed.data
        if data is None:
            raise self._no_checkpoint(id)
        if self._pins.put(name, id, data) and not self._is_kept(listed, id, name):
            # A writer drops the record, then looks at the pins, then removes the data. Having found no record, we do
            # not know whether it has seen the pin: the data may be gone.
            self._pins.remove(name)
            raise StateNotFoundError(
                f"checkpoint {id} of task {self.task!r} was superseded while it was being pinned: pin a newer one"
            )

    def _is_kept(self, listed: Numbered | None, id: CheckpointId, name: str) -> bool:
        """Whether what was read to be pinned is still there, so that whoever drops it later sees the pin."""
        if listed is not None and self._reader.read(listed.number, anew=True) is not None:
            return True
        return self._pins.holds_elsewhere(id, name)

    def unpin(self, name: str) -> None:
        """Remove the pin *name*; a missing one is fine."""
        self._pins.remove(name)

    def pins(self) -> Mapping[str, CheckpointId]:
        """Give the pins, name to id, sorted by name."""
        return self._pins.ids()
