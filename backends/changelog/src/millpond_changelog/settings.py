"""What an operator says of a changelog: where the log is, which topics, and how they are made."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from attrs import Attribute, field, frozen

from millpond.errors import ConfigError
from millpond.spi import Secret, Size

PLAIN_OPTIONS = frozenset(
    {
        "acks",
        "client.id",
        "client.rack",
        "compression.codec",
        "compression.type",
        "linger.ms",
        "queue.buffering.max.ms",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
    }
)
"""Options of librdkafka whose texts may be shown; any other text is a secret."""

_OVERHEAD = 512
"""Bytes around a record's key and value: its headers and those of its batch."""


def _hidden_options(options: Mapping[str, object]) -> Mapping[str, object]:
    """Freeze *options*, with each text that does not merely say how as a secret."""
    return MappingProxyType(
        {name: value if name in PLAIN_OPTIONS else _hidden(value) for name, value in options.items()}
    )


def _hidden(value: object) -> object:
    return Secret(str.__str__(value)) if isinstance(value, str) else value


def _servers(value: tuple[str, ...] | list[str] | str) -> tuple[str, ...]:
    """Give addresses one by one, whether written as a list or as Kafka's text with commas."""
    texts = [value] if isinstance(value, str) else value
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def _check_timeout(_instance: object, _attribute: Attribute[timedelta], timeout: timedelta) -> None:
    if not timedelta(seconds=1) <= timeout <= timedelta(hours=1):
        raise ConfigError(f"{_attribute.name} is {timeout}: it has to be at least a second and at most an hour")


def _not_negative(_instance: object, attribute: object, value: timedelta) -> None:
    if value < timedelta(0):
        raise ConfigError(f"{attribute.name} is {value}: it must not be negative")  # type: ignore[attr-defined]


def _at_least_one(_instance: object, attribute: object, value: int | None) -> None:
    if value is not None and value < 1:
        raise ConfigError(f"{attribute.name} is {value}: it must be at least 1")  # type: ignore[attr-defined]


@frozen(kw_only=True)
class LogSettings:
    """
    Where a log is: either a folder or Kafka's brokers.

    Attributes:
        directory: The folder of an embedded log; all that use it must see one file system with locks.
        bootstrap_servers: Kafka's brokers, ``host:port``.
        kafka: Further options of librdkafka, such as ``security.protocol``. Texts are shown in no message.
        timeout: How long one call of the log may take without any progress.
        transactions: False for brokers or rights without them: then an earlier owner is not kept from writing.
        transaction_timeout: After how long Kafka's brokers give up what an owner has begun and not ended. They allow up
            to their ``transaction.max.timeout.ms``, 15 minutes unless altered.
    """

    directory: Path | None = None
    bootstrap_servers: tuple[str, ...] = field(default=(), converter=_servers)
    kafka: Mapping[str, object] = field(factory=dict, converter=_hidden_options)
    timeout: timedelta = field(default=timedelta(seconds=60), validator=_check_timeout)
    transactions: bool = True
    transaction_timeout: timedelta = field(default=timedelta(minutes=10), validator=_check_timeout)

    def __attrs_post_init__(self) -> None:
        if self.directory is not None and (self.bootstrap_servers or self.kafka):
            raise ConfigError(
                "directory and bootstrap_servers are both set: a log is in a folder or in Kafka, not both"
            )
        if self.directory is None and not self.bootstrap_servers:
            raise ConfigError(
                "nothing says where the log is: set bootstrap_servers for Kafka, or directory for a folder"
            )


@frozen(kw_only=True)
class ChangelogSettings(LogSettings):
    """
    The section of a ``changelog`` backend.

    Attributes:
        system: Samza's name of the system that the topics are in; it stands in markers.
        topics: Store to topic, where the topic is not to be called as this backend would.
        partitions: How many partitions each topic has, where the job's ``tasks`` are not stated.
        replication_factor: Of topics that are made; Samza's default.
        min_insync_replicas: How many replicas must have a record before it counts; None: one less than there are.
        max_message_bytes: The largest record, with what is around it; ``put`` refuses larger ones.
        min_compaction_lag: How long a record is safe from compaction; more than the time between two commits, and than
            the time that a crashed job may be down before it has to be restored exactly.
        delete_retention: How long compaction keeps the mark of a deletion.
        segment_bytes: The size of a topic's segments.
        topic_settings: More settings of topics by Kafka's names; they win over all above.
    """

    system: str = "kafka"
    topics: Mapping[str, str] = field(factory=dict)
    partitions: int | None = field(default=None, validator=_at_least_one)
    replication_factor: int = field(default=2, validator=_at_least_one)
    min_insync_replicas: int | None = field(default=None, validator=_at_least_one)
    max_message_bytes: Size = field(default=Size(1_000_012), validator=_at_least_one)
    min_compaction_lag: timedelta = field(default=timedelta(hours=4), validator=_not_negative)
    delete_retention: timedelta = field(default=timedelta(days=1), validator=_not_negative)
    segment_bytes: Size = field(default=Size(512 << 20), validator=_at_least_one)
    topic_settings: Mapping[str, str] = field(factory=dict)

    @max_message_bytes.validator
    def _check_size(self, _attribute: object, value: int) -> None:
        if value <= 2 * _OVERHEAD:
            raise ConfigError(f"max_message_bytes is {value}: a record alone needs {_OVERHEAD} bytes around it")

    @topic_settings.validator
    def _check_topic_settings(self, _attribute: object, value: Mapping[str, str]) -> None:
        owned = {"min.compaction.lag.ms": "min_compaction_lag", "max.message.bytes": "max_message_bytes"}
        for name in sorted(owned.keys() & value.keys()):
            raise ConfigError(f"topic_settings sets {name}: say it by {owned[name]}, which the backend reckons with")

    @property
    def max_record_bytes(self) -> int:
        """The largest key and value together."""
        return self.max_message_bytes - _OVERHEAD
