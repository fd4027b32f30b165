"""
A coordinator's record under dense numbers, in any place that can create a name only if it is absent.

An election and each record take the next number; an election's number is its epoch. A leader takes the number after its
newest one, so a later election stands in its way: that is the fence, the same as that of :mod:`millpond.records.ledger`
and for the same reasons. A record may be removed once there is a newer one; the newest entry and elections of the last
thirty days stay, so that no number is used twice while somebody sleeps over it.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from attrs import define, field

from millpond.blob.checkpoints import refuse_unfit
from millpond.blob.folder import BlobFolder
from millpond.blob.layout import job_prefix
from millpond.blob.store import BlobStore
from millpond.checkpoints.directory import DirectoryFolder
from millpond.coordinator import entries
from millpond.coordinator.entries import Election, RecordEntry
from millpond.coordinator.metadata import MAX_RECORD, CoordinatorMetadata, Leadership, StoredRecord
from millpond.coordinator.vigil import Hold, LeaseVigil, LockVigil, Vigil
from millpond.errors import (
    FencedError,
    FormatError,
    MillpondError,
    StateCorruptError,
    StoreClosedError,
    TransientError,
)
from millpond.local import job_folder
from millpond.records import CLAIM_LIFE, RecordFolder, record_name, record_number

FOLDER = ".coordinator"
"""Where it lies beside the folders of a job's tasks, none of which begins with a dot."""

_ATTEMPTS = 16
_SWEPT = 64


class NumberedLeadership(Leadership):
    """An election that was won, and what keeps it."""

    def __init__(self, candidate: str, epoch: int, writer: str, hold: Hold) -> None:
        """Lead under *epoch* while *hold* holds."""
        self.candidate = candidate
        self.epoch = epoch
        self.writer = writer
        self.newest = epoch  # the newest number that is known to be ours
        self._hold = hold

    def check(self) -> None:
        """Return while nobody else can lead."""
        self._hold.check()

    def resign(self) -> None:
        """Let a standby have it."""
        self._hold.release()


@define
class NumberedMetadata(CoordinatorMetadata):
    """
    Keeps the record in *folder*; *vigil* says when a standby may take over.

    Attributes:
        folder: Where elections and records lie under their numbers.
        vigil: How leaders show that they live.
    """

    folder: RecordFolder
    vigil: Vigil
    _led: list[NumberedLeadership] = field(factory=list, init=False)
    _ended: threading.Event = field(factory=threading.Event, init=False)
    _writing: threading.Lock = field(factory=threading.Lock, init=False)

    # ---------------------------------------------------------------------------------------------------------- leading

    def lead(self, candidate: str, timeout_s: float) -> Leadership:
        """Wait until nobody leads, then take the next number as an election."""
        for _ in range(_ATTEMPTS):
            self._refuse_closed()
            try:
                number, hold = self.vigil.wait(self._newest_number, timeout_s, self._ended)
            except TransientError:
                self._refuse_closed()
                raise
            if (leadership := self._elected(candidate, number + 1, hold)) is not None:
                return leadership
        raise TransientError(f"{_ATTEMPTS} others were elected at the same time: stand again")

    def _elected(self, candidate: str, epoch: int, hold: Hold) -> NumberedLeadership | None:
        """Create the election *epoch*; None if somebody else was faster."""
        won = False
        leadership = NumberedLeadership(candidate, epoch, secrets.token_hex(16), hold)
        try:
            won = self._create_election(leadership)
            if won:
                leadership.check()
                self._led.append(leadership)
                self._sweep_elections(epoch)
        finally:
            if leadership not in self._led:
                leadership.resign()
        return leadership if won else None

    def _create_election(self, leadership: NumberedLeadership) -> bool:
        """Create it; True also if the answer to an earlier try was lost."""
        election = Election(leadership.epoch, leadership.writer, leadership.candidate, self.folder.now_millis())
        if self.folder.create(record_name(leadership.epoch), entries.encode_election(election)):
            return self._newest_number() == leadership.epoch
        found = self._read(leadership.epoch)
        return found is not None and found.writer == leadership.writer

    def leader(self) -> tuple[int, str] | None:
        """Give the newest election."""
        for number in self._numbers():
            found = self._read(number)
            if isinstance(found, Election):
                return found.epoch, found.candidate
        return None

    def _sweep_elections(self, newest: int) -> None:
        """Remove elections that no sleeper can need any more; the next election tries again what fails here."""
        with suppress(MillpondError):
            self.folder.tidy()
            oldest_kept = self.folder.now_millis() - CLAIM_LIFE // timedelta(milliseconds=1)
            for number in sorted(self._numbers())[:_SWEPT]:
                found = self._read(number) if number < newest else None
                if isinstance(found, Election):
                    if found.millis > oldest_kept:
                        return
                    self.folder.delete([record_name(number)])

    # ---------------------------------------------------------------------------------------------------------- records

    def read(self) -> StoredRecord | None:
        """Give the newest record."""
        for _ in range(_ATTEMPTS):
            found, complete = self._look()
            if complete:
                return None if found is None else StoredRecord(found[1].data, str(found[0]))
        raise TransientError("the coordinator's records change faster than they can be read")

    def _look(self) -> tuple[tuple[int, RecordEntry] | None, bool]:
        """Give the newest record and its number, and whether nothing vanished before it was read."""
        for number in self._numbers():
            found = self._read(number)
            if found is None:
                return None, False
            if isinstance(found, RecordEntry):
                return (number, found), True
        return None, True

    def write(self, leadership: Leadership, data: bytes, expected: str | None) -> str:
        """Take the number after the newest one, which has to be ours, for *data*."""
        assert isinstance(leadership, NumberedLeadership)
        if len(data) > MAX_RECORD:
            raise FormatError(f"a coordinator's record of {len(data):,} bytes is over the limit of {MAX_RECORD:,}")
        with self._writing:
            leadership.check()
            self._refuse_replaced(leadership)
            if (done := self._compare(leadership, data, expected)) is not None:
                return done
            number = leadership.newest + 1
            self._create_record(leadership, number, data)
            leadership.newest = number
        self._remove_older(number)
        return str(number)

    def _refuse_replaced(self, leadership: NumberedLeadership) -> None:
        """Find our newest number; FencedError if the newest of all is another's."""
        newest = self._newest_number()
        if newest == leadership.newest:
            return
        found = self._read(newest)
        if found is None or found.writer != leadership.writer:
            raise self._fenced(leadership)
        leadership.newest = newest  # an answer of ours was lost

    def _compare(self, leadership: NumberedLeadership, data: bytes, expected: str | None) -> str | None:
        """Compare *expected* with what is there; give the version if it is *data* already, by a lost answer."""
        found, complete = self._look()
        if not complete:
            raise TransientError("the coordinator's records change while they are compared")
        version = None if found is None else str(found[0])
        if version == expected:
            return None
        if found is not None and found[1].writer == leadership.writer and found[1].data == data:
            return version
        raise TransientError(f"the coordinator's record has version {version}, not {expected}: read it again")

    def _create_record(self, leadership: NumberedLeadership, number: int, data: bytes) -> None:
        entry = RecordEntry(leadership.epoch, leadership.writer, data)
        if self.folder.create(record_name(number), entries.encode_record(entry)):
            return
        if self._read_rival(number) != entry:
            raise self._fenced(leadership)

    def _read_rival(self, number: int) -> Election | RecordEntry | None:
        try:
            return self._read(number)
        except FormatError:
            return None  # we can read what we write: it is another's, of a later release

    def _remove_older(self, newest: int) -> None:
        """Remove records before *newest*; what stays, the next write removes."""
        with suppress(MillpondError):
            old = [number for number in self._numbers() if number < newest]
            doomed = [number for number in old[:_SWEPT] if isinstance(self._read(number), RecordEntry)]
            if doomed:
                self.folder.delete([record_name(number) for number in doomed])

    def _fenced(self, leadership: NumberedLeadership) -> FencedError:
        by = None
        with suppress(MillpondError):  # the answer stands without the name
            by = self.leader()
        return FencedError(
            f"coordinator {leadership.candidate!r} (epoch {leadership.epoch}) was replaced"
            + (f" by {by[1]!r} (epoch {by[0]})" if by is not None else "")
            + ": it decides nothing any more"
        )

    # ---------------------------------------------------------------------------------------------------------- entries

    def _numbers(self) -> list[int]:
        found = (record_number(name) for name in self.folder.names())
        return sorted((number for number in found if number is not None), reverse=True)

    def _newest_number(self) -> int:
        return max(self._numbers(), default=0)

    def _read(self, number: int) -> Election | RecordEntry | None:
        data = self.folder.read(record_name(number))
        if data is None:
            return None
        try:
            return entries.decode(data)
        except (StateCorruptError, FormatError) as error:
            where = self.folder.where(record_name(number))
            raise type(error)(f"the coordinator's entry {where} cannot be read: {error}") from error

    def close(self) -> None:
        """Resign, and end what waits."""
        self._ended.set()
        for leadership in self._led:
            leadership.resign()

    def _refuse_closed(self) -> None:
        if self._ended.is_set():
            raise StoreClosedError("this coordinator's metadata is closed")


def in_directory(path: Path, job: str, job_id: str = "1", *, lease_s: float | None = None) -> NumberedMetadata:
    """
    Keep the record in a directory: ``<path>/<job>/.coordinator/``, which may be the directory manager's *path*.

    Without *lease_s* coordinators of one machine follow each other by a lock, at once. Coordinators on several machines
    that share the directory need a lease: a standby then waits so many seconds after the leader's last sign of life.
    """
    root = path.absolute()
    folder = root / job_folder(job, job_id) / FOLDER
    vigil: Vigil = (
        LockVigil(folder / "LEADER")
        if lease_s is None
        else LeaseVigil(DirectoryFolder(folder / "alive", root), lease_s)
    )
    return NumberedMetadata(DirectoryFolder(folder / "records", root), vigil)


def in_blob_store(store: BlobStore, job: str, job_id: str = "1", *, lease_s: float = 15.0) -> NumberedMetadata:
    """
    Keep the record in an object store, below ``<job>/.coordinator/``; a standby takes over after *lease_s* seconds.

    The caller closes *store*. A sign of life is two small requests each quarter of a lease.

    Raises:
        ConfigError: The store cannot create a key only if it is absent, or its listings lag.
    """
    refuse_unfit(store)
    prefix = f"{job_prefix(job, job_id)}{FOLDER}/"
    return NumberedMetadata(
        BlobFolder(store, f"{prefix}records/"), LeaseVigil(BlobFolder(store, f"{prefix}alive/"), lease_s)
    )
