"""The one module that speaks to Kafka: a consumer in its group, and a producer; nothing is decided here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from millpond.errors import ConfigError, TransientError
from millpond.hosts.kafka.decisions import Part
from millpond.hosts.kafka.roles import Kind, Offsets, Rebalances, Trouble, trouble_of
from millpond.hosts.kafka.settings import Client, connection, is_incremental

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

__all__ = ["KafkaDriver", "KafkaError", "Message", "Producer", "connect", "make_producer"]
"""The client's types too: the other rooms of this host take them from here."""

log = logging.getLogger("millpond.kafka")

_error_of = methodcaller("error")

_NO_ID = "A" * 22
"""All bits zero, as the client writes it."""


def connect(config: Client, topics: Sequence[str]) -> KafkaDriver:
    """
    Make the driver; no I/O yet.

    Raises:
        ConfigError: There is no Kafka client, or it refuses *config*.
    """
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise ConfigError(f'the Kafka host needs confluent-kafka: pip install "millpond[kafka]" ({error})') from error
    return KafkaDriver(config, topics)


def make_producer(config: Client) -> Producer:
    """
    Make a producer.

    Raises:
        ConfigError: The client refuses *config*.
    """
    from confluent_kafka import KafkaException, Producer

    try:
        return Producer({**config, "logger": log})
    except (KafkaException, TypeError, ValueError) as error:
        raise ConfigError(f"hosts.kafka.producer: {_words(error)}") from error


class KafkaDriver:
    """A confluent-kafka consumer that reads those of its group's partitions, from where, that the host says."""

    def __init__(self, config: Client, topics: Sequence[str]) -> None:
        """Make the consumer of *topics*."""
        from confluent_kafka import Consumer, KafkaException
        from confluent_kafka.admin import AdminClient

        self._topics = list(topics)
        self._incremental = is_incremental(config)
        self._troubles: list[Trouble] = []
        self._reading: set[Part] = set()
        try:
            # A consumer lets other threads wait for as long as one polls: what they ask goes over a client of its own.
            beside: dict[str, Any] = {**connection(config), "logger": log}
            self._admin = AdminClient(beside)
            self._consumer = Consumer({**config, "error_cb": self._note, "on_commit": _note_commit, "logger": log})
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"hosts.kafka.client: {_words(error)}") from error

    def partition_count(self, topic: str, timeout_s: float) -> int | None:
        """Ask the cluster for its topics."""
        found = self._ask(lambda: self._admin.list_topics(topic, timeout=timeout_s)).topics[topic]
        if found.error is None:
            return len(found.partitions)
        if _trouble(found.error).kind is Kind.NO_TOPIC:
            return None
        if _trouble(found.error).kind is Kind.REFUSED:
            raise ConfigError(f"topic {topic!r} may not be read: {found.error.str()}: ask for the right to describe it")
        raise TransientError(f"topic {topic!r}: {found.error.str()}")

    def identity_of(self, topic: str, timeout_s: float) -> str | None:
        """Ask for the topic's id; brokers before Kafka 2.8 have none."""
        from confluent_kafka import TopicCollection

        asked: Any = self._admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic]
        described = self._ask(lambda: _unless_absent(asked, timeout_s + 1.0))
        identity = None if described is None else str(described.topic_id)
        return None if identity == _NO_ID else identity

    def range_of(self, part: Part, timeout_s: float) -> tuple[int, int]:
        """Ask the partition's leader."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        asked = TopicPartition(*part)
        ends: list[Any] = [OffsetSpec.earliest(), OffsetSpec.latest()]  # type: ignore[no-untyped-call]
        given: list[Any] = [self._admin.list_offsets({asked: end}, request_timeout=timeout_s)[asked] for end in ends]
        low, high = (int(self._ask(partial(one.result, timeout_s + 1.0)).offset) for one in given)
        if min(low, high) < 0:  # what the client gives, without an error, when the leader goes while it is asked
            raise TransientError(f"the leader of {part[0]}, partition {part[1]} went before it said what it holds")
        return low, high

    def end_of(self, part: Part) -> int | None:
        """Look at what came with the last fetch."""
        from confluent_kafka import TopicPartition

        try:
            found = self._ask(lambda: self._consumer.get_watermark_offsets(TopicPartition(*part), cached=True))
        except TransientError:
            return None
        return None if found is None or found[1] < 0 else int(found[1])

    def subscribe(self, rebalances: Rebalances) -> None:
        """Subscribe; the callbacks come inside ``read`` and ``close``."""
        self._consumer.subscribe(
            self._topics,
            on_assign=lambda _, parts: self._assign(parts, rebalances),
            on_revoke=lambda _, parts: self._unassign(parts, rebalances.revoked),
            on_lost=lambda _, parts: self._unassign(parts, rebalances.lost),
        )

    def _assign(self, parts: list[Any], rebalances: Rebalances) -> None:
        """Take *parts*, and read none of them yet."""
        if self._incremental:
            self._consumer.incremental_assign([])
        else:
            self._reading.clear()
            self._consumer.assign([])
        rebalances.assigned([(part.topic, part.partition) for part in parts])

    def _unassign(self, parts: list[Any], tell: Callable[[Collection[Part]], None]) -> None:
        taken = [(part.topic, part.partition) for part in parts]
        try:
            tell(taken)
        finally:
            if self._incremental:
                self._consumer.incremental_unassign(_partitions(part for part in taken if part in self._reading))
                self._reading.difference_update(taken)
            else:
                self._consumer.unassign()
                self._reading.clear()

    def read(self, limit: int, timeout_s: float) -> tuple[Sequence[Message], Sequence[Trouble]]:
        """Wait for one, then take what is there: a consumer that waits for a full batch makes a thin input late."""
        first = self._consumer.poll(timeout_s)
        records = [] if first is None else [first]
        if first is not None and limit > 1:
            records += self._consumer.consume(limit - 1, 0)
        if any(map(_error_of, records)):
            records = [record for record in records if not self._note_failed(record)]
        troubles, self._troubles = self._troubles, []
        return records, troubles

    def _note_failed(self, record: Message) -> bool:
        """Note the error that stands in for a record; False: it is a record."""
        error = record.error()
        if error is None:
            return False
        topic, number = record.topic(), record.partition()
        part = (topic, number) if topic is not None and number is not None and number >= 0 else None
        self._troubles.append(_trouble(error, part))
        return True

    def _note(self, error: KafkaError) -> None:
        self._troubles.append(_trouble(error))

    def begin(self, starts: Offsets, others: Offsets) -> Collection[Part]:
        """
        Assign with offsets, and let no offset of the client's own come in between.

        A seek after an assignment at a logical offset would race against the client's query for that offset.
        """
        flowing = starts if self._incremental else {**others, **starts}
        self._ask(partial(self._begin, flowing))
        return flowing

    def _begin(self, flowing: Offsets) -> None:
        if self._incremental:
            if again := [part for part in flowing if part in self._reading]:
                self._consumer.incremental_unassign(_partitions(again))
                self._reading.difference_update(again)
            self._consumer.incremental_assign(_at(flowing))
        else:
            self._consumer.assign(_at(flowing))
        self._reading.update(flowing)
        self._consumer.resume(_partitions(flowing))  # a pause outlives the assignment in which it was made

    def pause(self, parts: Iterable[Part]) -> None:
        """Pause; what was fetched ahead is thrown away by the client and fetched again."""
        self._consumer.pause(_partitions(parts))

    def resume(self, parts: Iterable[Part]) -> None:
        """Resume."""
        self._consumer.resume(_partitions(parts))

    def is_member(self) -> bool:
        """Ask the client for the name that the group gave to it."""
        return bool(self._consumer.memberid())

    def mirror(self, offsets: Offsets) -> None:
        """Commit asynchronously; how it went is logged."""
        self._ask(lambda: self._consumer.commit(offsets=_at(offsets), asynchronous=True))

    def close(self) -> None:
        """Leave the group, and wait for commits that are under way."""
        self._consumer.close()

    def _ask(self, call: Callable[[], Any]) -> Any:
        """Do *call*; what may go away is a TransientError."""
        from confluent_kafka import KafkaException

        try:
            return call()
        except KafkaException as error:
            trouble = _trouble(error.args[0])
            if trouble.kind is Kind.REFUSED:
                raise ConfigError(f"the cluster refuses this client: {trouble.text}") from error
            raise TransientError(trouble.text) from error
        except TimeoutError as error:
            raise TransientError("the cluster did not answer in time") from error


def _unless_absent(asked: Any, timeout_s: float) -> Any:
    """Give the answer; None if it is that there is no such topic."""
    from confluent_kafka import KafkaException

    try:
        return asked.result(timeout_s)
    except KafkaException as error:
        if _trouble(error.args[0]).kind is Kind.NO_TOPIC:
            return None
        raise


def _partitions(parts: Iterable[Part]) -> list[Any]:
    from confluent_kafka import TopicPartition

    return [TopicPartition(topic, number) for topic, number in parts]


def _at(offsets: Offsets) -> list[Any]:
    from confluent_kafka import TopicPartition

    return [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]


def _trouble(error: KafkaError, part: Part | None = None) -> Trouble:
    return trouble_of(error.name(), error.str(), fatal=error.fatal(), part=part)


def _note_commit(error: KafkaError | None, parts: list[Any]) -> None:
    """Log an offset that did not reach the group: nothing depends on it."""
    if error is not None:
        log.info("offsets were not mirrored to the group: %s", error.str())


def _words(error: BaseException) -> str:
    told = error.args[0] if error.args else error
    return told.str() if hasattr(told, "str") else str(told)
