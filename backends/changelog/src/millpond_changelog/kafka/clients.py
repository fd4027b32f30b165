"""The driver's clients: how each is configured, and where what they say by themselves goes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from millpond.errors import ConfigError
from millpond.spi import Secret
from millpond_changelog.kafka.pieces import BATCH

_LOG = logging.getLogger(__name__)

RESERVED = frozenset(
    {"acks", "auto.offset.reset", "bootstrap.servers", "delivery.report.only.error", "enable.auto.commit",
     "enable.auto.offset.store", "enable.idempotence", "enable.partition.eof", "error_cb", "isolation.level", "logger",
     "metadata.broker.list", "on_delivery", "request.required.acks", "transaction.timeout.ms", "transactional.id"}
)  # fmt: skip
"""Options on which what the log promises rests: it sets them itself."""

# A reconnection waits by default up to ten seconds, and a new transactional producer half a second for nothing.
_ALL = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 1000, "retry.backoff.ms": 20}

_WRITING = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 5,
    "batch.size": BATCH,
    # The topic's own limit decides, and it counts what is compressed.
    "message.max.bytes": 512 << 20,
    "queue.buffering.max.kbytes": 32 << 10,
    "queue.buffering.max.messages": 200_000,
}

_READING = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "check.crcs": True,
    # By default a full queue is looked at again after a second, which costs a restore most of its speed.
    "fetch.queue.backoff.ms": 5,
    # An empty answer tells that the end is reached; nobody here waits for records to come.
    "fetch.wait.max.ms": 10,
    "fetch.message.max.bytes": 4 << 20,
    "queued.max.messages.kbytes": 32 << 10,
    "queued.min.messages": 100_000,
}


@define
class Complaints:
    """
    What a client has said by itself: it is told of a refused password on the side, while calls run out of time.

    Attributes:
        refused: The last word on who we are; None if nobody minded.
        fatal: What ended the client.
        last: The last of all.
    """

    refused: KafkaError | None = field(default=None, init=False)
    fatal: KafkaError | None = field(default=None, init=False)
    last: KafkaError | None = field(default=None, init=False)

    def __call__(self, error: KafkaError) -> None:
        """Note *error*."""
        _LOG.debug("%s", error)
        self.last = error
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):  # noqa: SLF001 - the driver's own name
            self.refused = error
        if error.fatal():
            self.fatal = error

    def forget(self) -> None:
        """Begin anew, but for what is fatal."""
        self.refused = self.last = None


class _Quiet:
    """
    Takes the driver's own log lines.

    It calls each lost connection an error. Whether one is, a call of ours finds out, and raises it.
    """

    def log(self, level: int, text: str, *args: object) -> None:
        """Pass a line on, as information at most."""
        _LOG.log(min(level, logging.INFO), text, *args)


@frozen
class Clients:
    """
    Makes clients of one cluster.

    Attributes:
        servers: ``host:port`` of some brokers.
        options: More options of librdkafka.
    """

    servers: Sequence[str]
    options: Mapping[str, object] = field(repr=False)

    def __attrs_post_init__(self) -> None:
        for name in sorted(RESERVED & self.options.keys()):
            raise ConfigError(f"the option {name} of Kafka's client is set by the log itself: leave it out")

    def admin(self, complaints: Complaints) -> AdminClient:
        """Make an admin."""
        admin: AdminClient = self._make(AdminClient, {}, {}, complaints)
        return admin

    def consumer(self, complaints: Complaints) -> Consumer:
        """Make a consumer, which takes part in no group although it has to name one."""
        fixed = _only(_READING, RESERVED)
        consumer: Consumer = self._make(Consumer, {"group.id": "millpond", **_READING}, fixed, complaints)
        return consumer

    def producer(self, settings: Mapping[str, object], complaints: Complaints) -> Producer:
        """Make a producer with more *settings*, which nobody overrides."""
        fixed = {**_only(_WRITING, RESERVED), **settings}
        producer: Producer = self._make(Producer, _WRITING, fixed, complaints)
        return producer

    def _make(self, kind: Any, usual: Mapping[str, object], fixed: Mapping[str, object], complaints: Complaints) -> Any:
        told = {name: _plain(value) for name, value in self.options.items()}
        known: dict[str, Any] = {**_ALL, **usual, **told, **fixed, "bootstrap.servers": ",".join(self.servers)}
        try:
            return kind({**known, "error_cb": complaints}, logger=_Quiet())
        except (KafkaException, ValueError, TypeError) as error:
            raise ConfigError(f"Kafka's client refuses its options: {self._hide(str(error))}") from None

    def _hide(self, text: str) -> str:
        """Take secrets out of what the driver says."""
        for value in self.options.values():
            if isinstance(value, Secret) and value.reveal():
                text = text.replace(value.reveal(), "***")
        return text


def _only(settings: Mapping[str, object], names: frozenset[str]) -> dict[str, object]:
    return {name: value for name, value in settings.items() if name in names}


def _plain(value: object) -> object:
    if isinstance(value, Secret):
        return value.reveal()
    return value if isinstance(value, bool | int | float) or callable(value) else str(value)
