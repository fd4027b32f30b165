"""
Compaction of one partition: closed segments are written anew with what a reader still needs, and replace the old ones.

Of each key the newest record stays, if it is older than ``min.compaction.lag.ms`` and below the offset that the caller
names; a deletion stays for ``delete.retention.ms``. After Kafka's ``LogCleaner``: keys of the new segments are noted
first, then old and new ones are rewritten, group by group, each group's file taking over by one rename.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import define, field, frozen
from filelock import Timeout

from millpond.local import explained, fsync_directory
from millpond.local.durable import write_new
from millpond.points import reached
from millpond_changelog.embedded.frames import (
    KEPT,
    NOBODY,
    SEAL,
    AppendId,
    Records,
    Run,
    encode_frame,
    encode_header,
    encode_records,
)
from millpond_changelog.embedded.locking import lock_on
from millpond_changelog.embedded.partition import Partition
from millpond_changelog.embedded.reading import FolderBatch, read_batches
from millpond_changelog.embedded.segments import Segment, in_force

WORTH = 256 << 10
"""Bytes of new segments below which nothing is compacted."""

MOST_KEYS = 1_000_000
"""Keys that are noted at once; what is beyond waits for the next time."""

_RECORDS = 1_000
_SIZE = 256 << 10


@frozen
class Rules:
    """
    What a topic's settings and its caller say.

    Attributes:
        lag_ms: A record younger than this stays, and so does what it replaces.
        keep_deletions_ms: How long a deletion stays.
        segment_bytes: How large a compacted segment should be.
        below: No record at or beyond this offset is touched, or replaces another.
        worth: Bytes of new segments below which nothing is compacted.
    """

    lag_ms: int
    keep_deletions_ms: int
    segment_bytes: int
    below: int
    worth: int


@frozen
class Forgetting:
    """
    Which deletions are old enough to be forgotten.

    Attributes:
        until_ms: Those of this time or an earlier one.
        but: Not the one with this offset, by which a reader knows whose records these are: the newest that is touched.
    """

    until_ms: int
    but: int


@frozen
class Closed:
    """A segment that does not grow, the offset behind its last, and its size in bytes."""

    segment: Segment
    end: int
    size: int

    @property
    def is_new(self) -> bool:
        """Whether it was never compacted."""
        return self.segment.end is None


def compact(partition: Partition, rules: Rules, now_ms: int, check: Callable[[], None]) -> bool:
    """Compact *partition* if that is worth it; False: it is not, or somebody else is at it."""
    lock = lock_on(partition.folder / "COMPACTION")
    try:
        with explained("lock", partition.folder):
            lock.acquire(timeout=0)
    except Timeout:
        return False
    try:
        remove_leftovers(partition.folder)
        return _compact(partition, rules, now_ms, check)
    finally:
        lock.release()


def _compact(partition: Partition, rules: Rules, now_ms: int, check: Callable[[], None]) -> bool:
    if not _is_worth_it(partition, rules):
        return False
    closed = _closed(partition, rules.below)
    latest, upto = _latest(partition, [each for each in closed if each.is_new], rules, now_ms, check)
    chosen = [each for each in closed if each.end <= upto]
    if not any(each.is_new for each in chosen):
        return False
    for group in _groups(chosen, rules.segment_bytes):
        _rewrite(partition, group, latest, Forgetting(now_ms - rules.keep_deletions_ms, rules.below - 1), check)
    return True


def _is_worth_it(partition: Partition, rules: Rules) -> bool:
    """Weigh what is new against what is compacted; end the growing segment if it belongs to what is new."""
    closed = _closed(partition, rules.below)
    old = sum(each.size for each in closed if not each.is_new)
    new = sum(each.size for each in closed if each.is_new)
    with partition.writing() as tail:
        may_end = tail.at is not None and tail.at.first < tail.next <= rules.below and not tail.open
        growing = tail.position if may_end else 0
        if new + growing < max(old, rules.worth):
            return False
        if growing:
            partition.roll()
    return True


def _closed(partition: Partition, below: int) -> list[Closed]:
    """Give the segments that do not grow and end at or before *below*, in order from the first."""
    folder = partition.folder
    found, _ = in_force([path.name for path in folder.iterdir()])
    closed = []
    for number, segment in enumerate(found):
        end = segment.end
        if end is None and number + 1 < len(found):
            end = found[number + 1].first
        if end is None or end > below:
            break
        closed.append(Closed(segment, end, (folder / segment.name).stat().st_size))
    return closed


def _latest(
    partition: Partition, new: Sequence[Closed], rules: Rules, now_ms: int, check: Callable[[], None]
) -> tuple[dict[bytes, int], int]:
    """Note the newest offset of each key in *new* segments; give that, and the offset up to which it goes."""
    latest: dict[bytes, int] = {}
    upto = new[0].segment.first if new else 0
    for each in new:
        here: dict[bytes, int] = {}
        for batch in _batches(partition, each, check):
            if any(millis > now_ms - rules.lag_ms for _, millis, _ in batch.runs):
                return latest, upto
            here.update(zip((key for key, _ in batch.changes()), batch.offsets(), strict=True))
        latest.update(here)
        upto = each.end
        if len(latest) >= MOST_KEYS:
            break
    return latest, upto


def _batches(partition: Partition, closed: Closed, check: Callable[[], None]) -> Iterator[FolderBatch]:
    _, aborted = partition.readable()
    return read_batches(partition, closed.segment.first, closed.end, aborted, check)


def _groups(closed: Sequence[Closed], segment_bytes: int) -> Iterator[list[Closed]]:
    """Cut *closed* into groups whose files are together about as large as a segment should be."""
    group: list[Closed] = []
    for each in closed:
        if group and sum(one.size for one in group) + each.size > segment_bytes:
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _rewrite(
    partition: Partition,
    group: Sequence[Closed],
    latest: dict[bytes, int],
    forgetting: Forgetting,
    check: Callable[[], None],
) -> None:
    """Put one file in place of a group's."""
    first, end = group[0].segment.first, group[-1].end
    writing = _Kept(partition.folder / f".new-{secrets.token_hex(12)}")
    try:
        with explained("write", writing.path):
            write_new(writing.path, encode_header(partition.identity, partition.number, first))
            for each in group:
                for batch in _batches(partition, each, check):
                    writing.add(_needed(batch, latest, forgetting))
            writing.end(end)
            target = Segment(first, end)
            writing.path.replace(partition.folder / target.name)
        fsync_directory(partition.folder)
    except BaseException:
        writing.path.unlink(missing_ok=True)
        raise
    reached("changelog.compacted")
    remove_leftovers(partition.folder)


def _needed(batch: FolderBatch, latest: dict[bytes, int], forgetting: Forgetting) -> Records:
    """Give the records that no later one replaces, without deletions that are old enough to be forgotten."""
    kept = Records([], [], [])
    changes, offsets, at = batch.changes(), batch.offsets(), 0
    for count, millis, headers in batch.runs:
        before = len(kept.changes)
        for change, offset in zip(changes[at : at + count], offsets[at : at + count], strict=True):
            is_forgotten = change[1] is None and millis <= forgetting.until_ms and offset != forgetting.but
            if latest.get(change[0], -1) <= offset and not is_forgotten:
                kept.changes.append(change)
                kept.offsets.append(offset)
        if len(kept.changes) > before:
            kept.runs.append((len(kept.changes) - before, millis, headers))
        at += count
    return kept


def remove_leftovers(folder: Path) -> None:
    """Remove segments whose offsets a compacted one has taken over, and files that were never finished."""
    with explained("tidy", folder):
        names = [path.name for path in folder.iterdir()]
        _, replaced = in_force(names)
        for name in [*(each.name for each in replaced), *(name for name in names if name.startswith(".new-"))]:
            (folder / name).unlink(missing_ok=True)


@define
class _Kept:
    """Writes a compacted segment, frame by frame, behind its header."""

    path: Path
    waiting: Records = field(factory=lambda: Records([], [], []))
    size: int = 0

    def add(self, records: Records) -> None:
        """Take records; those of one time and with the same headers become one run."""
        self.waiting.changes += records.changes
        self.waiting.offsets += records.offsets
        for run in records.runs:
            _join(self.waiting.runs, run)
        self.size += sum(len(key) + len(value or b"") for key, value in records.changes)
        if len(self.waiting.changes) >= _RECORDS or self.size >= _SIZE:
            self._put()

    def _put(self) -> None:
        records, self.waiting, self.size = self.waiting, Records([], [], []), 0
        if not records.changes:
            return
        payload = encode_records(records.changes, records.offsets, records.runs)
        whose = AppendId(0, 0, records.offsets[-1])
        self._write(encode_frame(KEPT, whose, records.offsets[0], len(records.changes), payload))

    def _write(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def end(self, end: int) -> None:
        """End the segment, durably."""
        self._put()
        with self.path.open("ab") as file:
            file.write(encode_frame(SEAL, NOBODY, end))
            file.flush()
            os.fsync(file.fileno())


def _join(runs: list[Run], run: Run) -> None:
    if runs and runs[-1][1:] == run[1:]:
        runs[-1] = (runs[-1][0] + run[0], run[1], run[2])
    else:
        runs.append(run)
