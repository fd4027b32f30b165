"""One store's changes in a log, as a marker names them: whether they are whole, and how they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import chain

from attrs import define, field, frozen

from millpond.clock import Clock
from millpond.errors import FormatError, StateCorruptError, StateNotFoundError
from millpond.log import Batch, Extent, Log, Topic
from millpond.spi import Change, RestoreTarget
from millpond_changelog import headers
from millpond_changelog.fences import Fenced
from millpond_changelog.headers import FENCE_KEY
from millpond_changelog.marker import Marker, decode
from millpond_changelog.topics import number
from millpond_changelog.undo import read_all

_TOLD_RECORDS = 2_000
_TOLD_SIZE = 1 << 20
_DAY = timedelta(days=1) // timedelta(milliseconds=1)


@frozen
class Facts:
    """
    What is known of a partition when a store is to be restored from it.

    Attributes:
        topic: The topic.
        extent: What the partition holds.
    """

    topic: Topic
    extent: Extent


def refuse_unless_whole(marker: Marker, facts: Facts) -> int:
    """
    Give the offset from which the whole store can be read; a function of what is known.

    Raises:
        StateNotFoundError: The log does not hold what the marker names, or nobody can tell whether it does.
    """
    extent, ssp, origin = facts.extent, marker.ssp, marker.origin
    where = f"{ssp.stream}, partition {ssp.partition}, holds offsets from {extent.start} up to {extent.end}"
    if origin is not None and facts.topic.identity != origin.identity:
        raise StateNotFoundError(
            f"topic {ssp.stream} was deleted and made anew: it is {facts.topic.identity}, and the marker names "
            f"{origin.identity}"
        )
    if marker.stop > extent.end:
        raise StateNotFoundError(f"offset {marker.offset} is beyond the end: {where}")
    since = 0 if origin is None else origin.since
    if marker.stop > since and extent.start > since:
        raise StateNotFoundError(f"retention removed records that the store needs from offset {since} on: {where}")
    if extent.compacted is not None and extent.compacted > marker.stop:
        raise StateNotFoundError(
            f"{ssp.stream}, partition {ssp.partition}, is compacted up to {extent.compacted}, beyond offset "
            f"{marker.offset}: values of that time are gone"
        )
    return since


def local_place(local: Marker, marker: Marker, facts: Facts, now_millis: int) -> int | None:
    """
    Give the offset from which a local image at *local* is brought forward; None: it must not be used.

    One that is older than compaction keeps deletions would bring back keys that were deleted since.
    """
    ours, theirs = marker.origin, local.origin
    if ours is None or theirs is None or local.ssp != marker.ssp:
        return None
    kept = number(facts.topic.settings, "delete.retention.ms", _DAY)
    is_same = (theirs.identity, theirs.since) == (ours.identity, ours.since)
    is_fresh = now_millis - theirs.id.millis < kept
    if not is_same or not is_fresh or local.stop > marker.stop or local.stop < facts.extent.start:
        return None
    return local.stop


@define
class Source:
    """
    A store's changes. One thread.

    Attributes:
        log: Where they are.
        marker: What names them.
        facts: What is known.
        start: The offset from which the whole store can be read.
        unseen: Keys that came after the marker, so long ago that their earlier values may be gone, and of which no
            record up to the marker was read yet.
    """

    log: Log
    marker: Marker
    facts: Facts
    start: int
    unseen: set[bytes]

    @classmethod
    def found(cls, log: Log, marker: Marker, clock: Clock) -> Source:
        """
        Look at the log.

        Raises:
            StateNotFoundError: It does not hold what *marker* names.
        """
        ssp = marker.ssp
        facts = Facts(log.describe(ssp.stream), log.extent(ssp.stream, ssp.partition))
        start = refuse_unless_whole(marker, facts)
        return cls(log, marker, facts, start, _endangered(log, marker, facts, clock.millis()))

    def begin_local(self, target: RestoreTarget, owner: str, clock: Clock) -> int:
        """Begin from the target's local image where that can be used; give the offset to read from."""
        if target.local is None or self.unseen:
            return self.start
        try:
            local = decode(target.local, owner)
        except FormatError:  # only a short cut
            return self.start
        place = local_place(local, self.marker, self.facts, clock.millis())
        if place is None:
            return self.start
        target.use_local()
        return max(place, self.start)

    def records(self, target: RestoreTarget, begin: int) -> Iterator[Sequence[Change]]:
        """
        Give the records from *begin* up to the marker, in pieces, and report how far they are.

        Raises:
            StateNotFoundError: They do not end in the marker's own record, or nobody can tell what they lack.
        """
        ssp, stop = self.marker.ssp, self.marker.stop
        last: Batch | None = None
        told = _Told(target, begin, stop)
        fenced = None if self.log.capabilities.fencing else Fenced()
        for batch in read_all(self.log, ssp.stream, ssp.partition, begin, stop, target.check):
            changes = batch.changes() if fenced is None else fenced.changes(batch)
            self._see(changes)
            yield changes
            told.add(changes, batch.position)
            last = batch if len(batch) else last
        told.tell()
        self._check_end(last)
        if self.unseen:
            raise StateNotFoundError(
                f"{ssp.stream}, partition {ssp.partition}: after offset {self.marker.offset} come records that are "
                f"older than its min.compaction.lag.ms, and {len(self.unseen)} of their keys, such as "
                f"{min(self.unseen)[:64]!r}, have no record before: nobody can tell a new key from one whose earlier "
                "value was compacted away"
            )

    def _see(self, changes: Sequence[Change]) -> None:
        if self.unseen:
            self.unseen.difference_update(key for key, _ in changes)

    def _check_end(self, last: Batch | None) -> None:
        """See that the record at the marker's offset, if it is there, is of the commit that the marker names."""
        origin, offset, ssp = self.marker.origin, self.marker.offset, self.marker.ssp
        if origin is None or offset is None:
            return
        offsets = last.offsets() if last is not None else ()
        where = f"offset {offset} of {ssp.stream}, partition {ssp.partition}"
        if not offsets or offsets[-1] != offset:
            compacted = self.facts.extent.compacted
            if compacted is not None and compacted <= offset:  # compaction takes a deletion in the end, this one too
                raise StateNotFoundError(f"there is no record at {where}, where the store's newest one has to be")
            return
        assert last is not None
        stamp = headers.decode(last.headers(len(offsets) - 1))
        if stamp is None or stamp.id != origin.id:
            found = "nobody's commit" if stamp is None else f"commit {stamp.id}"
            raise StateCorruptError(f"the record at {where} is of {found}, and the marker's of commit {origin.id}")


@define
class _Told:
    """
    How far a restore is. It is told now and then: each time costs as much as to restore some ten records.

    Attributes:
        target: Told.
        begin: The offset at which it began.
        stop: The offset before which it ends.
    """

    target: RestoreTarget
    begin: int
    stop: int
    _position: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _new_records: int = field(default=0, init=False)
    _new_size: int = field(default=0, init=False)

    def add(self, changes: Sequence[Change], position: int) -> None:
        """Note that *changes* were taken, and all up to *position*."""
        self._new_records += len(changes)
        self._new_size += sum([len(key) + len(value or b"") for key, value in changes])
        self._position = position
        if self._new_records >= _TOLD_RECORDS or self._new_size >= _TOLD_SIZE:
            self.tell()

    def tell(self) -> None:
        """Tell what was not told yet; the size of all is a guess from the offsets that are left."""
        self._size += self._new_size
        done = self._position - self.begin
        total = max(self._size, self._size * (self.stop - self.begin) // done) if done > 0 else None
        self.target.progress(records=self._new_records, size=self._new_size, total_size=total)
        self._new_records = self._new_size = 0


def _endangered(log: Log, marker: Marker, facts: Facts, now_millis: int) -> set[bytes]:
    """Give the keys of the records after the marker, where compaction may have taken what they replaced."""
    ssp, extent = marker.ssp, facts.extent
    start = max(marker.end, extent.start)
    if extent.compacted is not None or extent.end <= start:
        return set()
    lag = number(facts.topic.settings, "min.compaction.lag.ms", 0)
    keys: set[bytes] = set()
    for batch in read_all(log, ssp.stream, ssp.partition, start, extent.end):
        if not keys and len(batch) and now_millis - batch.millis(0) < lag:
            return keys
        keys.update(key for key, _ in batch.changes() if key != FENCE_KEY)
    return keys


def restore_from(log: Log, target: RestoreTarget, owner: str, clock: Clock) -> None:
    """
    Leave the store of *target*, which is *owner*'s, exactly as its marker says.

    Raises:
        StateNotFoundError, StateCorruptError: The log does not hold that.
    """
    try:
        marker = decode(target.marker, owner)
        source = Source.found(log, marker, clock)
        begin = source.begin_local(target, owner, clock)
        if marker.stop > begin or source.unseen:
            target.write(chain.from_iterable(source.records(target, begin)))
    except FormatError as error:
        raise StateCorruptError(f"store {target.store!r} cannot be read from its changelog: {error}") from error
