"""Records of a partition in batches, read without a lock while others write and compact."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from attrs import define, field

from millpond.errors import StateCorruptError, StateNotFoundError
from millpond.local import explained
from millpond.log import Batch
from millpond.spi import Change
from millpond_changelog.embedded.frames import (
    DATA,
    FRAME_SIZE,
    HEADER_SIZE,
    KEPT,
    SEAL,
    AppendId,
    Frame,
    Records,
    Run,
    check_header,
    decode_frame,
    decode_records,
    run_at,
)
from millpond_changelog.embedded.partition import Partition
from millpond_changelog.embedded.segments import Segment, in_force, place_of, start_of

RECORDS = 1_000
SIZE = 1 << 20


@define
class FolderBatch(Batch):
    """
    Some records of a partition.

    Attributes:
        position: The offset to read on from.
        runs: Times and headers of all of them, in order.
        size: Bytes of the frames that they come from.
    """

    position: int
    _changes: list[Change] = field(factory=list)
    _offsets: list[int] = field(factory=list)
    runs: list[Run] = field(factory=list)
    size: int = 0

    def changes(self) -> Sequence[Change]:
        """Give each record's key and value."""
        return self._changes

    def offsets(self) -> Sequence[int]:
        """Give each record's offset."""
        return self._offsets

    def headers(self, index: int) -> Mapping[str, bytes]:
        """Give the headers of the record at *index*."""
        return run_at(self.runs, index)[1]

    def millis(self, index: int) -> int:
        """Give the time at which the record at *index* was added."""
        return run_at(self.runs, index)[0]

    def add(self, records: Records, size: int) -> None:
        """Put *records* behind those that are here."""
        self._changes += records.changes
        self._offsets += records.offsets
        self.runs += records.runs
        self.size += size

    @property
    def is_full(self) -> bool:
        """Whether it is worth giving away."""
        return len(self._changes) >= RECORDS or self.size >= SIZE


def read_batches(
    partition: Partition, start: int, stop: int, aborted: Collection[AppendId], check: Callable[[], None]
) -> Iterator[FolderBatch]:
    """Give committed records with ``start <= offset < stop``; *stop* is within what can be read."""
    position = given = start
    while position < stop:
        found = _open(partition, position)
        if found is None:
            continue  # compaction has just replaced it
        segment, file = found
        begun = position
        with file:
            batch = FolderBatch(position)
            path = partition.folder / segment.name
            for frame, records in _frames(file, path, segment, position, stop, aborted):
                if records is not None:
                    batch.add(records, frame.length)
                batch.position = min(stop, max(batch.position, _behind(frame)))
                if batch.is_full:
                    check()
                    given = batch.position
                    yield batch
                    batch = FolderBatch(batch.position)
                position = batch.position
        check()
        if position == begun:
            raise StateCorruptError(f"{partition.folder} lacks the segment behind {segment.name}")
        if batch.position > given and (batch.position >= stop or len(batch)):
            given = batch.position
            yield batch


def _open(partition: Partition, position: int) -> tuple[Segment, BinaryIO] | None:
    """Open the segment that has *position*; None: it has just gone."""
    with explained("read", partition.folder):
        try:
            names = [path.name for path in partition.folder.iterdir()]
        except FileNotFoundError:
            raise StateNotFoundError(f"there is no {partition.folder}: the topic was deleted") from None
        segments, _ = in_force(names)
        index = place_of(segments, position)
        if index < 0 or position < start_of(names):
            raise StateNotFoundError(f"offset {position} is no longer in {partition.folder}: retention removed it")
        segment = segments[index]
        if segment.end is not None and position >= segment.end:
            raise StateCorruptError(f"{partition.folder} lacks the segment with offset {position}")
        path = partition.folder / segment.name
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return None
        try:
            check_header(file.read(HEADER_SIZE), partition.identity, partition.number, segment.first, str(path))
        except BaseException:
            file.close()
            raise
        return segment, file


def _frames(
    file: BinaryIO, path: Path, segment: Segment, start: int, stop: int, aborted: Collection[AppendId]
) -> Iterator[tuple[Frame, Records | None]]:
    """Give the frames with records from *start* on, with the records that a reader sees, until *stop* or the end."""
    size, at = os.fstat(file.fileno()).st_size, HEADER_SIZE
    while True:
        frame = decode_frame(file.read(FRAME_SIZE))
        if frame is None or at + frame.size > size:
            raise StateCorruptError(f"{path} is damaged or cut at byte {at}")
        at += frame.size
        is_end = frame.kind == SEAL and (segment.end is None or frame.first == segment.end)
        if is_end or (frame.kind in (DATA, KEPT) and frame.first >= stop):
            yield frame, None
            return
        if frame.kind in (DATA, KEPT) and _behind(frame) > start:
            is_read = frame.kind == KEPT or frame.append not in aborted
            yield frame, _payload(file, path, frame, start, stop) if is_read else None
            if _behind(frame) >= stop:
                return
        file.seek(at)


def _payload(file: BinaryIO, path: Path, frame: Frame, start: int, stop: int) -> Records:
    return _between(decode_records(frame, file.read(frame.length), str(path)), start, stop)


def _behind(frame: Frame) -> int:
    """Give the offset behind the frame's last; what compaction left says its last one."""
    if frame.kind == KEPT:
        return frame.append.number + 1
    return frame.first + frame.count


def _between(records: Records, start: int, stop: int) -> Records:
    """Give those of *records* with ``start <= offset < stop``."""
    if records.offsets[0] >= start and records.offsets[-1] < stop:
        return records
    low = next((n for n, offset in enumerate(records.offsets) if offset >= start), len(records.offsets))
    high = next((n for n, offset in enumerate(records.offsets) if offset >= stop), len(records.offsets))
    runs: list[Run] = []
    at = 0
    for count, millis, headers in records.runs:
        here = min(at + count, high) - max(at, low)
        if here > 0:
            runs.append((here, millis, headers))
        at += count
    return Records(records.changes[low:high], records.offsets[low:high], runs)
