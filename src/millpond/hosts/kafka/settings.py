"""The settings of the Kafka host, ``[hosts.kafka]``, and the client's configuration that follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Literal

from attrs import field, frozen

from millpond.config import JobConfig
from millpond.errors import ConfigError

Client = dict[str, str | int | float | bool]
"""Settings of librdkafka, by its own names."""

OURS: Mapping[str, str] = {
    "bootstrap.servers": "say it by hosts.kafka.bootstrap_servers",
    "group.id": "say it by hosts.kafka.group",
    "enable.auto.commit": "offsets come from the checkpoint, so the client must not commit any",
    "enable.auto.offset.store": "offsets come from the checkpoint, so the client must not store any",
    "auto.offset.reset": "an offset that is gone is an error; where a new task begins is hosts.kafka.begin",
    "enable.partition.eof": "the host has no use for it",
}
"""What an operator cannot set, and why."""

_OURS = ("bootstrap.", "broker.", "client.id", "client.dns", "socket.")
_SECURE = ("enable.sasl", "enable.ssl", "sasl.", "security.", "ssl.")

MAX_POLL_INTERVAL_MS = 300_000
"""librdkafka's default of ``max.poll.interval.ms``."""


def _not_empty(_: object, attribute: object, value: tuple[str, ...]) -> None:
    name = getattr(attribute, "name", "")
    if not value or not all(value):
        raise ValueError(f"{name} names nothing")
    if len(set(value)) < len(value):
        raise ValueError(f"{name} names something twice")


def _positive(_: object, attribute: object, value: int | timedelta) -> None:
    if not (value > timedelta(0) if isinstance(value, timedelta) else value > 0):
        raise ValueError(f"{getattr(attribute, 'name', '')} has to be more than nothing")


@frozen(kw_only=True)
class KafkaSettings:
    """
    What ``[hosts.kafka]`` may say.

    Attributes:
        bootstrap_servers: Where the cluster is found, ``host:port`` each.
        topics: The input. Several topics have equally many partitions, and a task reads one of each.
        group: The consumer group; None: the job's name, with its id where that is not ``1``.
        system: What the input is called in the checkpoints' offsets, as in Samza.
        begin: Where a task without a checkpoint begins: at what is there (``earliest``) or at what comes (``latest``).
        pin_partitions: The number of partitions is part of the job's layout: a topic that grew is refused.
        mirror_offsets: Commit offsets to the group too, after each checkpoint, for tools that show the lag.
        handover: How long giving tasks away at a rebalance may take: their last commits, and closing them.
        shutdown: The same at the end of the process.
        restores: How many tasks are opened at once.
        retry: From a failure that may go away until a task is opened again; doubles with each, up to a minute.
        batch: How many records are fetched from the client at once.
        client: More settings of the consumer, by librdkafka's names.
        producer: More settings of the producer of outputs, by librdkafka's names.
    """

    bootstrap_servers: tuple[str, ...] = field(validator=_not_empty)
    topics: tuple[str, ...] = field(validator=_not_empty)
    group: str | None = None
    system: str = "kafka"
    begin: Literal["earliest", "latest"] = "earliest"
    pin_partitions: bool = True
    mirror_offsets: bool = True
    handover: timedelta = field(default=timedelta(seconds=30), validator=_positive)
    shutdown: timedelta = field(default=timedelta(seconds=25), validator=_positive)
    restores: int = field(default=4, validator=_positive)
    retry: timedelta = field(default=timedelta(milliseconds=500), validator=_positive)
    batch: int = field(default=500, validator=_positive)
    client: Mapping[str, object] = field(factory=dict, repr=False)
    producer: Mapping[str, object] = field(factory=dict, repr=False)


def group_of(settings: KafkaSettings, job: JobConfig) -> str:
    """Give the name of the consumer group."""
    return settings.group or (job.name if job.id == "1" else f"{job.name}-{job.id}")


def consumer_config(settings: KafkaSettings, job: JobConfig) -> Client:
    """
    Give the consumer's configuration.

    Raises:
        ConfigError: Something that the operator set cannot work, each in a line.
    """
    given = flat(settings.client)
    problems = [*_refused(given, "client"), *_unfit(settings, given, job)]
    if problems:
        raise ConfigError("\n".join(problems))
    config: Client = {
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
        "group.id": group_of(settings, job),
        "client.id": job.name,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }
    return config | _assignor(settings, given) | given


def producer_config(settings: KafkaSettings, job: JobConfig) -> Client:
    """
    Give the configuration of the producer of outputs: what the consumer needs to connect, and idempotence.

    Raises:
        ConfigError: Something that the operator set cannot work.
    """
    given = flat(settings.producer)
    if problems := list(_refused(given, "producer")):
        raise ConfigError("\n".join(problems))
    known = {"bootstrap.servers": ",".join(settings.bootstrap_servers), **flat(settings.client)}
    return connection(known) | {"client.id": job.name, "enable.idempotence": True, "linger.ms": 5} | given


def connection(client: Client) -> Client:
    """Give what any other client needs to connect as *client* does."""
    return {name: value for name, value in client.items() if name.startswith(_OURS + _SECURE)}


def flat(table: Mapping[str, object]) -> Client:
    """Give *table* by dotted names: ``security.protocol`` without quotes is a table in a table to TOML."""
    return dict(_leaves(table, ""))


def _leaves(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str | int | float | bool]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield prefix + name, ",".join(map(str, value))
        else:
            yield prefix + name, value if isinstance(value, bool | int | float) else str(value)


def is_new_protocol(client: Mapping[str, object]) -> bool:
    """Tell whether the broker assigns the partitions (``group.protocol = "consumer"``)."""
    return str(client.get("group.protocol", "classic")).lower() == "consumer"


def is_incremental(client: Mapping[str, object]) -> bool:
    """Tell whether a rebalance takes and gives single partitions, so that the others go on."""
    return is_new_protocol(client) or str(client.get("partition.assignment.strategy")) == "cooperative-sticky"


def max_poll_interval_s(client: Mapping[str, object]) -> float:
    """Give how long the group waits for a member that does not poll."""
    return float(str(client.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS))) / 1000


def _assignor(settings: KafkaSettings, given: Client) -> Client:
    """Choose who gets which partition: of several topics, equal numbers have to stay together."""
    several = len(settings.topics) > 1
    if is_new_protocol(given):
        return {"group.remote.assignor": "range"} if several else {}
    return {"partition.assignment.strategy": "range" if several else "cooperative-sticky"}


def _refused(given: Client, table: str) -> Iterator[str]:
    for name in sorted(OURS.keys() & given.keys()):
        yield f"hosts.kafka.{table}: {name} cannot be set here: {OURS[name]}"


def _unfit(settings: KafkaSettings, given: Client, job: JobConfig) -> Iterator[str]:
    """Report what cannot work together."""
    strategy = str(given.get("partition.assignment.strategy", "range"))
    if len(settings.topics) > 1 and not is_new_protocol(given) and strategy != "range":
        yield (
            f"hosts.kafka.client: with several topics a task needs equal partition numbers of each, which "
            f"partition.assignment.strategy = {strategy!r} does not keep together: use 'range', or "
            f'group.protocol = "consumer"'
        )
    longest = max_poll_interval_s(given)
    for name, value in (("hosts.kafka.handover", settings.handover), ("job.put_timeout", job.put_timeout)):
        if value.total_seconds() >= longest:
            yield (
                f"{name} ({value.total_seconds():g} s) has to be less than max.poll.interval.ms ({longest:g} s): the "
                f"group would take all partitions away before it is over"
            )
