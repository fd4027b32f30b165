"""
The log in Kafka.

A topic is a topic, an owner a ``transactional.id``, an append a transaction. Readers see what was committed
(``read_committed``), are assigned by hand, take part in no group, and never let the brokers choose where they begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock

from millpond.errors import ConfigError, StateNotFoundError, StoreClosedError
from millpond.log import Batch, Extent, Log, LogCapabilities, LogWriter, Topic, unchecked
from millpond_changelog.kafka.clients import Clients
from millpond_changelog.kafka.reading import Reader
from millpond_changelog.kafka.seat import Seat
from millpond_changelog.kafka.topics import Topics
from millpond_changelog.kafka.writing import KafkaWriter

_LONGEST_TRANSACTION_S = 600.0


class KafkaLog(Log):
    """
    Topics of a Kafka cluster. Nothing is sent before the first call.

    Args:
        servers: ``host:port`` of some brokers.
        options: More options of librdkafka; a value that is a Secret is shown nowhere.
        timeout_s: How long one call waits without progress.
        transactions: False for brokers or rights that have none; then the log has no fencing.
        transaction_timeout_s: How long an append may be open; brokers allow up to ``transaction.max.timeout.ms``.
    """

    def __init__(
        self,
        servers: Sequence[str],
        options: Mapping[str, object] | None = None,
        *,
        timeout_s: float = 60.0,
        transactions: bool = True,
        transaction_timeout_s: float = _LONGEST_TRANSACTION_S,
    ) -> None:
        self.capabilities = LogCapabilities(fencing=transactions, seals=transactions)
        self._timeout_s, self._transaction_timeout_s = timeout_s, transaction_timeout_s
        self._clients = Clients(servers, options or {})
        self._topics: Topics | None = None
        self._writers: list[KafkaWriter] = []
        self._open_readers: dict[int, Reader] = {}
        self._limits: dict[str, int | None] = {}
        self._lock = Lock()
        self._closed = False

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Make a topic, and wait until it can be written; one that exists stays as it is."""
        self._place.create(name, partitions, settings)

    def describe(self, name: str) -> Topic:
        """Look at a topic."""
        return self._place.describe(name)

    def delete(self, name: str) -> None:
        """Remove a topic."""
        self._place.delete(name)
        self._limits.pop(name, None)

    def extent(self, name: str, partition: int) -> Extent:
        """Look at a partition: its first offset, and the last stable one."""
        return self._place.extent(name, partition)

    def read(
        self, name: str, partition: int, start: int, stop: int, check: Callable[[], None] = unchecked
    ) -> Iterator[Batch]:
        """Read committed records."""
        extent = self.extent(name, partition)
        where = f"the topic {name!r}, partition {partition}, which has the offsets {extent.start} to {extent.end}"
        if start < extent.start:
            raise StateNotFoundError(f"the offset {start} is no longer in {where}")
        if max(start, stop) > extent.end:
            raise StateNotFoundError(f"the offset {max(start, stop)} lies beyond the end of {where}")
        return self._read(name, partition, start, stop, check)

    def _read(self, name: str, partition: int, start: int, stop: int, check: Callable[[], None]) -> Iterator[Batch]:
        if start >= stop:
            return
        place = self._place
        reader = Reader(name, partition, self._timeout_s, self._clients, lambda: place.extent(name, partition))
        with self._lock:
            self._open_readers[id(reader)] = reader
        try:
            yield from reader.batches(start, stop, check)
        finally:
            with self._lock:
                self._open_readers.pop(id(reader), None)

    def writer(self, owner: str) -> LogWriter:
        """Become the writer of *owner*: every earlier one is fenced, and what it had open is aborted."""
        self._refuse_if_closed()
        seat = Seat(
            owner, self.capabilities.fencing, self._timeout_s, self._transaction_timeout_s, self._limit, self._end
        )
        seat.take(self._clients)
        made = KafkaWriter(seat)
        with self._lock:
            if not self._closed:
                self._writers.append(made)
                return made
        made.close()
        raise StoreClosedError("this log was closed meanwhile: open it anew")

    def close(self) -> None:
        """Close readers and writers."""
        with self._lock:
            self._closed = True
            writers, self._writers = self._writers, []
            readers, self._open_readers = list(self._open_readers.values()), {}
            topics, self._topics = self._topics, None
        for reader in readers:
            reader.close()
        for writer in writers:
            writer.close()
        if topics is not None:
            topics.close()

    @property
    def _place(self) -> Topics:
        with self._lock:
            if self._closed:
                raise StoreClosedError("this log is closed: open it anew")
            if self._topics is None:
                made = Topics(self._clients, self._timeout_s)
                made.open()
                self._topics = made
            return self._topics

    def _end(self, name: str, partition: int) -> int:
        return self._place.end(name, partition)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreClosedError("this log is closed: open it anew")

    def _limit(self, name: str) -> int | None:
        """Give the largest batch that a topic takes, as it was when it was first written; None if nobody tells."""
        if name not in self._limits:
            try:
                self._limits[name] = int(self.describe(name).settings["max.message.bytes"])
            except StateNotFoundError as error:
                raise StateNotFoundError(f"cannot append to the topic {name!r}: it is not there: make it") from error
            except (ConfigError, KeyError):
                self._limits[name] = None  # to ask is another right than to write
        return self._limits[name]
