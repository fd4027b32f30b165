"""The role of a log: what a changelog backend and its checkpoint manager need of Kafka, or of a folder like it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self

from attrs import frozen

from millpond.errors import FormatError
from millpond.spi import Change


def unchecked() -> None:
    """Never give up: the check of a caller that has none."""


@frozen(kw_only=True)
class LogCapabilities:
    """
    What a log really promises. Declared by the driver, and tried by the kit.

    Attributes:
        fencing: ``writer(owner)`` ends every earlier writer of that owner, and its appends are atomic: all or nothing.
            Without it an append is a series of records, and an earlier writer may still add its own.
        clears: ``delete`` frees a topic's name at once.
        seals: Behind the last record of a committed append, in each of its partitions, comes one offset that no record
            has: the mark of its end.
        tidies: Nothing is compacted but by ``tidy``, and ``Extent.compacted`` says how far.
    """

    fencing: bool = True
    clears: bool = True
    seals: bool = False
    tidies: bool = False


@frozen
class Topic:
    """
    A topic as it is.

    Attributes:
        name: Its name.
        identity: Made when the topic is, and never again: a topic deleted and made anew has another. Printable ASCII.
        partitions: How many.
        settings: By Kafka's names (``cleanup.policy``), as they are in force, those of the place included.
    """

    name: str
    identity: str
    partitions: int
    settings: Mapping[str, str]


@frozen
class Extent:
    """
    What a partition holds for a reader of committed records.

    Attributes:
        start: The first offset that is still there; equal to ``end`` where nothing is.
        end: The offset behind the last that can be read now. An open append lies beyond it.
        compacted: Below it, records may be gone that a later one below it replaces; none beyond. None: nobody knows.
        tail: The offset behind all that was sent, open appends included: what is committed now lies below it, but where
            an append of another owner is open, not all of it can be read yet. None: ``end``.
    """

    start: int
    end: int
    compacted: int | None = None
    tail: int | None = None


class Batch(ABC):
    """
    Some records of one partition in their order, column by column, because an object a record would cost more than it.

    Attributes:
        position: The offset to read on from, behind these records and behind what a reader does not see (markers of
            appends, aborted records, gaps). It grows from batch to batch, and a batch may hold no record at all.
    """

    position: int

    @abstractmethod
    def changes(self) -> Sequence[Change]:
        """
        Give each record's key and value; a value of None is a tombstone.

        Raises:
            FormatError: A record has no key.
        """

    @abstractmethod
    def offsets(self) -> Sequence[int]:
        """Give each record's offset, growing."""

    @abstractmethod
    def headers(self, index: int) -> Mapping[str, bytes]:
        """Give the headers of the record at *index*; of two with one name the last."""

    @abstractmethod
    def millis(self, index: int) -> int:
        """Give the time of the record at *index*, in milliseconds since 1970, by the log's clock or its writer's."""

    def __len__(self) -> int:
        return len(self.offsets())


class Append(ABC):
    """
    One append to one or more partitions; atomic where the log has fencing. One thread at a time; a context manager.

    Leaving the block without ``commit`` aborts it. Nothing of it is read by anybody before ``commit`` has begun.

    Attributes:
        doubtful: ``commit`` was begun, and nobody knows what has become of it: to call it again finds out.
    """

    doubtful: bool = False

    @abstractmethod
    def add(
        self,
        topic: str,
        partition: int,
        changes: Iterable[Change],
        *,
        headers: Mapping[str, bytes] = {},
        check: Callable[[], None] = unchecked,
    ) -> None:
        """
        Send the changes, in order, each with these headers; a value of None is a tombstone.

        A full queue is waited for, within the log's deadline; *check* is called between pieces and may raise.

        Raises:
            FencedError: The owner has a later writer.
            ConfigError: A record larger than the topic takes, with its size and the setting.
            StateNotFoundError: There is no such topic or partition.
            TransientError: The same append, begun anew, may succeed.
        """

    @abstractmethod
    def flush(self, check: Callable[[], None] = unchecked) -> Mapping[tuple[str, int], int]:
        """
        Wait until every record is acknowledged by all in-sync replicas, each looked at by itself.

        Returns:
            The highest offset of one's own in each partition; a partition to which nothing was added is missing.

        Raises:
            FencedError, ConfigError, StateNotFoundError, TransientError: As ``add``; not all was acknowledged.
        """

    @abstractmethod
    def commit(self) -> None:
        """
        Make all of it readable, after ``flush``.

        Raises:
            FencedError: Nothing of it is readable; the owner has a later writer.
            TransientError: It is not known whether it is readable (``doubtful``); or it is known that it never will be.
        """

    @abstractmethod
    def abort(self) -> None:
        """Give it up; idempotent, nothing after ``commit``. Without fencing what was sent stays. Best effort."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class LogWriter(ABC):
    """The right of one owner to append. Any thread, one append at a time."""

    @abstractmethod
    def append(self) -> Append:
        """
        Begin an append.

        Raises:
            FencedError: The owner has a later writer.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up what is open, end every thread. Idempotent; it ends within the log's deadline."""


class Log(ABC):
    """
    Topics of numbered, keyed records in partitions, in one place. Any thread; every call ends within a deadline.

    Offsets grow, and need not be dense. Compaction and retention may remove records before ``Extent.end`` at any time,
    but compaction never the newest record of a key, unless that is a tombstone. Errors: StateNotFoundError for a topic
    or a partition that is not there, TransientError for what may go away, ConfigError for what the operator has to
    correct (access refused: which right on which topic), StateCorruptError for stored bytes that are damaged.
    """

    capabilities: LogCapabilities

    @abstractmethod
    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """
        Make a topic that can be written at once; one that exists stays as it is, whatever it is like.

        *settings* are Kafka's, and ``replication.factor``; a log that has no use for one keeps it for ``describe``.
        """

    @abstractmethod
    def describe(self, name: str) -> Topic:
        """Look at a topic anew, never at a cached answer."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a topic and all its records; a missing one is fine."""

    @abstractmethod
    def extent(self, name: str, partition: int) -> Extent:
        """Look at a partition anew."""

    @abstractmethod
    def read(
        self, name: str, partition: int, start: int, stop: int, check: Callable[[], None] = unchecked
    ) -> Iterator[Batch]:
        """
        Read committed records with ``start <= offset < stop``, until the position is *stop* or beyond.

        The caller takes *stop* from ``extent``. *check* is called at least once a second, and may raise. Closing the
        iterator frees what it holds.

        Raises:
            StateNotFoundError: *start* is no longer, or not yet, in the log, at the start or while reading; or *stop*
                lies beyond its end. Never a silent jump.
            StateCorruptError: A damaged record within what was once whole.
            TransientError: No record and no progress for the log's deadline.
        """

    @abstractmethod
    def writer(self, owner: str) -> LogWriter:
        """
        Become the owner's writer: when this returns, an append of an earlier one that is not committed never will be.

        Args:
            owner: Any text without control characters; Kafka's ``transactional.id`` is made of it.
        """

    def tidy(self, name: str, partition: int, below: int, check: Callable[[], None] = unchecked) -> None:
        """
        Compact where it is worth it, as the topic's settings say, and no record at or beyond the offset *below*.

        A log that does so by itself does nothing here.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Close readers and writers. Idempotent; no thread outlives it."""


def key_of(key: bytes | None, topic: str, partition: int, offset: int) -> bytes:
    """Give the key of a record that must have one."""
    if key is None:
        raise FormatError(
            f"the record at offset {offset} of {topic}, partition {partition}, has no key: a changelog's records have; "
            "is something else writing to the topic?"
        )
    return key
