"""Reading a partition: assigned by hand, committed records alone, from a given offset to a given offset."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock

from attrs import define, field, frozen
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millpond.errors import StateNotFoundError, StoreClosedError, TransientError
from millpond.log import Batch, Extent, key_of
from millpond.spi import Change
from millpond_changelog.kafka.clients import Clients, Complaints
from millpond_changelog.kafka.driver_errors import ABSENT, Doing, translate

_BATCH = 200  # more of the driver's objects at once do not fit into a core's cache: a fifth more of its time
_SLICE_S = 0.3
_IDLE_S = 1.0
_END = "_PARTITION_EOF"
_PASSING = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"})
_NOTHING_TO_US = "GROUP_AUTHORIZATION_FAILED"  # the driver wants a group named, and asks for it


@frozen
class KafkaBatch(Batch):
    """
    Messages as the driver gave them.

    Attributes:
        messages: In the order of their offsets, none of them an error.
        position: The offset to read on from.
    """

    messages: Sequence[Message]
    position: int

    def changes(self) -> Sequence[Change]:
        """Give each record's key and value."""
        keys = list(map(Message.key, self.messages))
        if not all(keys):
            self._refuse_without_key(keys)
        return list(zip(keys, map(Message.value, self.messages), strict=True))  # type: ignore[arg-type]  # no key is None

    def _refuse_without_key(self, keys: Sequence[object]) -> None:
        for message, key in zip(self.messages, keys, strict=True):
            if key is None:
                key_of(None, str(message.topic()), int(message.partition() or 0), int(message.offset() or 0))

    def offsets(self) -> Sequence[int]:
        """Give each record's offset."""
        return [message.offset() for message in self.messages]  # type: ignore[misc]  # a record that was read has one

    def headers(self, index: int) -> Mapping[str, bytes]:
        """Give the headers of the record at *index*."""
        found = dict(self.messages[index].headers() or ())
        return {name: b"" if value is None else _as_bytes(value) for name, value in found.items()}

    def millis(self, index: int) -> int:
        """Give the time of the record at *index*."""
        return int(self.messages[index].timestamp()[1])

    def __len__(self) -> int:
        return len(self.messages)


def _as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


@define
class Reader:
    """
    One reading of one partition.

    Attributes:
        topic: Which.
        partition: Which of it.
        timeout_s: How long it may get nothing.
    """

    topic: str
    partition: int
    timeout_s: float
    _clients: Clients
    _extent: Callable[[], Extent]
    _complaints: Complaints = field(factory=Complaints, init=False)
    _lock: Lock = field(factory=Lock, init=False)
    _consumer: Consumer | None = field(default=None, init=False)
    _moved: float = field(default=0.0, init=False)
    _cause: KafkaError | None = field(default=None, init=False)

    def batches(self, start: int, stop: int, check: Callable[[], None]) -> Iterator[Batch]:
        """Read from *start* until the position is *stop* or beyond it."""
        self._consumer = self._clients.consumer(self._complaints)
        try:
            self._consumer.assign([TopicPartition(self.topic, self.partition, start)])
            position = start
            self._moved = time.monotonic()
            while position < stop:
                check()
                batch = self._next(position, stop)
                if batch.position > position:
                    position, self._moved = batch.position, time.monotonic()
                    yield batch
                else:
                    self._see_whether_it_goes_on(position, stop)
        finally:
            self.close()

    def close(self) -> None:
        """End it, from any thread, within a slice of a second. Idempotent."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()

    def _next(self, position: int, stop: int) -> KafkaBatch:
        """Get what is there, or wait a moment for it."""
        with self._lock:
            if self._consumer is None:
                raise StoreClosedError("this log was closed while it was read: open it anew")
            try:
                messages = self._fetch(self._consumer)
                if any(map(Message.error, messages)):
                    messages = self._without_errors(messages, stop)
                reached = self._position(self._consumer, position)
            except KafkaException as error:
                raise self._failed(error.args[0]) from error
        if messages and (messages[-1].offset() or 0) >= stop:
            messages, reached = [each for each in messages if (each.offset() or 0) < stop], stop
        return KafkaBatch(messages, reached)

    def _fetch(self, consumer: Consumer) -> list[Message]:
        """
        Get one record, and whatever else has come.

        To ask for many at once would wait until so many are there, or the time is over.
        """
        first = consumer.poll(_SLICE_S)
        return [] if first is None else [first, *consumer.consume(_BATCH - 1, 0)]

    def _position(self, consumer: Consumer, position: int) -> int:
        """Give the place behind all that was got, and behind what a reader does not see."""
        known = consumer.position([TopicPartition(self.topic, self.partition)])[0]
        return max(position, int(known.offset))

    def _without_errors(self, messages: list[Message], stop: int) -> list[Message]:
        """Give the records in *messages*; raise what cannot go away by itself."""
        for message in messages:
            error = message.error()
            if error is None or error.name() == _NOTHING_TO_US:
                continue
            if error.name() == _END:
                self._see_that_it_goes_on(int(message.offset() or 0), stop)
            elif error.retriable() or error.name() in _PASSING:
                self._cause = error
            else:
                raise self._failed(error)
        return [message for message in messages if message.error() is None]

    def _see_that_it_goes_on(self, end: int, stop: int) -> None:
        """Raise if the partition really ends before *stop*: a new leader may know of less, for a moment."""
        if end < stop and (extent := self._extent()).end < stop:
            raise StateNotFoundError(
                f"the topic {self.topic!r}, partition {self.partition}, ends at offset {extent.end}, before {stop}: is "
                "it another topic of the same name?"
            )

    def _see_whether_it_goes_on(self, position: int, stop: int) -> None:
        """Nothing came for a moment: look whether the log is still what it was, and how long that has been so."""
        idle_s = time.monotonic() - self._moved
        if idle_s > self.timeout_s:
            raise self._nothing_comes(position, stop)
        if idle_s > _IDLE_S and self._complaints.last is None and self._extent().start > position:
            raise self._outside("")

    def _failed(self, error: KafkaError) -> Exception:
        if error.name() == "_AUTO_OFFSET_RESET":
            return self._outside(f" (Kafka says {error.str()})")
        if error.name() in ABSENT:
            return StateNotFoundError(f"{self._doing()}: it was deleted (Kafka says {error.name()})")
        return translate(error, self._doing(), self._complaints)

    def _outside(self, said: str) -> Exception:
        extent = self._extent()
        return StateNotFoundError(
            f"{self._doing()}, partition {self.partition}: the offset to read from is not, or no longer, in it: it has "
            f"{extent.start} to {extent.end}{said}"
        )

    def _nothing_comes(self, position: int, stop: int) -> Exception:
        if self._cause is not None or self._complaints.last is not None:
            cause = self._cause or self._complaints.last
            assert cause is not None
            return translate(cause, self._doing(), self._complaints)
        return TransientError(f"{self._doing()}: nothing came for {self.timeout_s:g} s at {position}, before {stop}")

    def _doing(self) -> Doing:
        return Doing(verb="read", right="READ", topic=self.topic)
