"""A log in this process: the role's shortest whole example, and what tests and the kit's mutants begin with."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import RLock

from attrs import define, field, frozen

from millpond.errors import ConfigError, FencedError, StateNotFoundError, StoreClosedError
from millpond.log import Append, Batch, Extent, Log, LogCapabilities, LogWriter, Topic, unchecked
from millpond.spi import Change

_LARGEST = 1_000_012
_BATCH = 500


@frozen
class Record:
    """
    A record as it was sent.

    Attributes:
        offset: Its place.
        change: Its key and value.
        headers: Its headers.
        millis: When, in milliseconds since 1970.
        by: The append that it belongs to.
    """

    offset: int
    change: Change
    headers: Mapping[str, bytes]
    millis: int
    by: MemoryAppend


@define
class MemoryPartition:
    """
    One partition.

    Attributes:
        records: In their order; those of aborted appends too, which nobody reads.
        start: The first offset that is not cut off.
        next: The offset of the next record, or of the next decision about an append: that takes an offset as well.
        compacted: Below it records may be gone that a later one below it replaces.
    """

    records: list[Record] = field(factory=list)
    start: int = 0
    next: int = 0
    compacted: int = 0

    def end(self) -> int:
        """Give the offset behind the last that can be read: an open append lies beyond it."""
        undecided = (record.offset for record in self.records if record.by.state == "open")
        return next(undecided, self.next)

    def compact(self) -> None:
        """Keep the newest committed record of each key below the end, and all above it."""
        end = self.end()
        newest = {record.change[0]: record.offset for record in self.visible() if record.offset < end}
        self.records = [r for r in self.records if r.offset >= end or newest.get(r.change[0]) == r.offset]
        self.compacted = end

    def cut(self, before: int) -> None:
        """Remove the records with offsets less than *before*."""
        self.start = max(self.start, min(before, self.end()))
        self.records = [record for record in self.records if record.offset >= self.start]

    def visible(self) -> list[Record]:
        """Give the committed records."""
        return [record for record in self.records if record.by.state == "committed"]


@define
class MemoryTopic:
    """
    One topic.

    Attributes:
        topic: What is said of it.
        partitions: By number.
    """

    topic: Topic
    partitions: list[MemoryPartition]


@define
class MemoryPlace:
    """
    What logs in memory share.

    Attributes:
        topics: By name.
        epochs: The number of each owner's newest writer.
        lock: Held by every call.
    """

    topics: dict[str, MemoryTopic] = field(factory=dict)
    epochs: dict[str, int] = field(factory=dict)
    lock: RLock = field(factory=RLock)


class MemoryLog(Log):
    """
    A log that ends with its process. Any thread.

    Attributes:
        place: What it shares with other logs.
        capabilities: Both.
    """

    capabilities = LogCapabilities()

    def __init__(self, place: MemoryPlace | None = None) -> None:
        """Use *place*, or one of its own."""
        self.place = place or MemoryPlace()
        self._writers: list[MemoryWriter] = []
        self._closed = False

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Make a topic; one that exists stays as it is."""
        with self.place.lock:
            self._refuse_closed()
            topic = Topic(name, secrets.token_hex(16), partitions, dict(settings))
            self.place.topics.setdefault(name, MemoryTopic(topic, [MemoryPartition() for _ in range(partitions)]))

    def describe(self, name: str) -> Topic:
        """Look at a topic."""
        with self.place.lock:
            return self.topic(name).topic

    def delete(self, name: str) -> None:
        """Remove a topic; a missing one is fine."""
        with self.place.lock:
            self._refuse_closed()
            self.place.topics.pop(name, None)

    def extent(self, name: str, partition: int) -> Extent:
        """Look at a partition."""
        with self.place.lock:
            found = self.partition(name, partition)
            return Extent(min(found.start, found.end()), found.end(), found.compacted)

    def read(
        self, name: str, partition: int, start: int, stop: int, check: Callable[[], None] = unchecked
    ) -> Iterator[Batch]:
        """Read committed records, a few hundred at a time."""
        position = start
        while True:
            check()
            with self.place.lock:
                extent, found = self.extent(name, partition), self.partition(name, partition).visible()
            if not extent.start <= position <= extent.end or stop > extent.end:
                raise StateNotFoundError(f"{name}, partition {partition}, holds {extent}: not {position} up to {stop}")
            if position >= stop:
                return
            records = [record for record in found if position <= record.offset < stop][:_BATCH]
            position = records[-1].offset + 1 if len(records) == _BATCH else stop
            yield MemoryBatch(position, records)

    def writer(self, owner: str) -> LogWriter:
        """Become the owner's writer, and end the one before."""
        with self.place.lock:
            self._refuse_closed()
            epoch = self.place.epochs[owner] = self.place.epochs.get(owner, 0) + 1
            for topic in self.place.topics.values():
                for record in (record for each in topic.partitions for record in each.records):
                    if record.by.owner == owner:
                        record.by.end("aborted")
            self._writers.append(MemoryWriter(self, owner, epoch))
            return self._writers[-1]

    def close(self) -> None:
        """Close the writers; the place stays."""
        self._closed = True
        for writer in self._writers:
            writer.close()

    def topic(self, name: str) -> MemoryTopic:
        """Give a topic; under the lock."""
        self._refuse_closed()
        if name not in self.place.topics:
            raise StateNotFoundError(f"there is no topic {name!r}")
        return self.place.topics[name]

    def partition(self, name: str, partition: int) -> MemoryPartition:
        """Give a partition; under the lock."""
        topic = self.topic(name)
        if not 0 <= partition < len(topic.partitions):
            raise StateNotFoundError(f"topic {name!r} has no partition {partition}")
        return topic.partitions[partition]

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreClosedError("this log is closed")


class MemoryBatch(Batch):
    """Some records."""

    def __init__(self, position: int, records: Sequence[Record]) -> None:
        """Give *records*, and the offset to read on from."""
        self.position = position
        self.records = records

    def changes(self) -> Sequence[Change]:
        """Give keys and values."""
        return [record.change for record in self.records]

    def offsets(self) -> Sequence[int]:
        """Give the offsets."""
        return [record.offset for record in self.records]

    def headers(self, index: int) -> Mapping[str, bytes]:
        """Give the headers of one record."""
        return self.records[index].headers

    def millis(self, index: int) -> int:
        """Give the time of one record."""
        return self.records[index].millis


class MemoryWriter(LogWriter):
    """The right of one owner to append."""

    def __init__(self, log: MemoryLog, owner: str, epoch: int) -> None:
        """Write to *log* as the writer number *epoch* of *owner*."""
        self.log, self.owner, self.epoch = log, owner, epoch
        self.open: MemoryAppend | None = None
        self._closed = False

    def append(self) -> Append:
        """Begin an append."""
        with self.log.place.lock:
            self.refuse_replaced()
            if self._closed:
                raise StoreClosedError("this writer is closed")
            self.open = MemoryAppend(self)
            return self.open

    def refuse_replaced(self) -> None:
        """Raise FencedError if the owner has a later writer; under the lock."""
        if self.log.place.epochs[self.owner] != self.epoch:
            raise FencedError(f"{self.owner!r} has a later writer of the log")

    def close(self) -> None:
        """Give up what is open."""
        self._closed = True
        if self.open is not None:
            self.open.abort()


class MemoryAppend(Append):
    """
    One append.

    Attributes:
        owner: Whose.
        state: ``open``, ``committed`` or ``aborted``.
    """

    def __init__(self, writer: MemoryWriter) -> None:
        """Begin it."""
        self.writer, self.owner, self.state = writer, writer.owner, "open"
        self.last: dict[tuple[str, int], int] = {}

    def add(
        self,
        topic: str,
        partition: int,
        changes: Iterable[Change],
        *,
        headers: Mapping[str, bytes] = {},
        check: Callable[[], None] = unchecked,
    ) -> None:
        """Send the changes; nobody reads them yet."""
        for change in changes:
            check()
            with self.writer.log.place.lock:
                self._add(topic, partition, change, headers)

    def _add(self, topic: str, number: int, change: Change, headers: Mapping[str, bytes]) -> None:
        self._refuse_ended()
        partition = self.writer.log.partition(topic, number)
        settings = self.writer.log.topic(topic).topic.settings
        limit, size = int(settings.get("max.message.bytes", _LARGEST)), len(change[0]) + len(change[1] or b"")
        if size > limit:
            raise ConfigError(f"a record of {size} bytes is larger than {topic} takes: max.message.bytes is {limit}")
        record = Record(partition.next, change, dict(headers), time.time_ns() // 1_000_000, self)
        partition.records.append(record)
        partition.next += 1
        self.last[topic, number] = record.offset

    def flush(self, check: Callable[[], None] = unchecked) -> Mapping[tuple[str, int], int]:
        """Give the highest offset in each partition."""
        check()
        with self.writer.log.place.lock:
            self._refuse_ended()
            return dict(self.last)

    def commit(self) -> None:
        """Make all of it readable at once."""
        with self.writer.log.place.lock:
            self._refuse_ended()
            self.end("committed")

    def abort(self) -> None:
        """Give it up; nothing after a commit."""
        with self.writer.log.place.lock:
            self.end("aborted")

    def end(self, state: str) -> None:
        """Decide it, once: the decision takes an offset of each partition, as Kafka's markers do; under the lock."""
        if self.state != "open":
            return
        self.state = state
        for topic, number in self.last:
            if topic in self.writer.log.place.topics:
                self.writer.log.place.topics[topic].partitions[number].next += 1

    def _refuse_ended(self) -> None:
        self.writer.refuse_replaced()
        if self.state != "open":
            raise ConfigError(f"this append is {self.state}: begin another one")
