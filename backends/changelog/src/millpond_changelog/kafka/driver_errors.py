"""What the driver raises, said as what a caller would do about it."""

from __future__ import annotations

from attrs import frozen
from confluent_kafka import KafkaError

from millpond.errors import (
    ConfigError,
    FencedError,
    MillpondError,
    StateCorruptError,
    StateNotFoundError,
    TransientError,
)
from millpond_changelog.kafka.clients import Complaints

FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "FENCED_INSTANCE_ID"})
ABSENT = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_NOENT"})
_OUTSIDE = frozenset({"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"})
_DAMAGED = frozenset({"_BAD_MSG", "_BAD_COMPRESSION", "INVALID_MSG", "_UNDERFLOW"})
_REFUSED = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"})
_HOPELESS = frozenset(
    {"INVALID_CONFIG", "POLICY_VIOLATION", "INVALID_REPLICATION_FACTOR", "INVALID_PARTITIONS", "TOPIC_EXCEPTION",
     "INVALID_TRANSACTION_TIMEOUT", "UNSUPPORTED_VERSION", "UNSUPPORTED_FOR_MESSAGE_FORMAT", "SECURITY_DISABLED",
     "UNSUPPORTED_COMPRESSION_TYPE", "_INVALID_ARG", "_UNSUPPORTED_FEATURE", "INVALID_RECORD", "_NOT_IMPLEMENTED"}
)  # fmt: skip
_HINTS = {
    "NOT_ENOUGH_REPLICAS": "fewer replicas are in sync than the topic's min.insync.replicas asks for",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "fewer replicas are in sync than the topic's min.insync.replicas asks for",
    "_MSG_TIMED_OUT": "the brokers did not acknowledge it in time",
    "INVALID_TRANSACTION_TIMEOUT": "the brokers' transaction.max.timeout.ms allows less",
}


@frozen(kw_only=True)
class Doing:
    """
    What was being done, for messages.

    Attributes:
        verb: As in "cannot <verb>".
        right: The operation that an ACL has to allow for it.
        topic: The topic that it is about, if it is about one.
        owner: The transactional id that it is done under, if there is one.
    """

    verb: str
    right: str
    topic: str | None = None
    owner: str | None = None

    def __str__(self) -> str:
        return f"cannot {self.verb}" if self.topic is None else f"cannot {self.verb} the topic {self.topic!r}"


def translate(error: KafkaError, doing: Doing, complaints: Complaints) -> MillpondError:
    """Give our error for the driver's; *complaints* may tell why it timed out."""
    name = error.name()
    said = f"Kafka says {name}: {error.str()}"
    if complaints.refused is not None:
        return ConfigError(
            f"{doing}: the brokers do not accept who we are: correct security.protocol, the sasl.* and ssl.* options "
            f"(Kafka says {complaints.refused.name()}: {complaints.refused.str()})"
        )
    if name in FENCED:
        return FencedError(f"{doing}: {doing.owner!r} has a later writer ({said})")
    if (denied := _denied(name, doing)) is not None:
        return ConfigError(f"{doing}: {denied} ({said})")
    if name in ABSENT:
        return StateNotFoundError(f"{doing}: there is no such topic or partition ({said})")
    if name in _OUTSIDE:
        return StateNotFoundError(f"{doing}: the offset is not, or no longer, in it ({said})")
    if name in _DAMAGED:
        return StateCorruptError(f"{doing}: a record is damaged ({said})")
    if name in _REFUSED or name in _HOPELESS:
        return ConfigError(f"{doing}: {_hint(name)}{said}")
    return TransientError(f"{doing}: {_hint(name)}{said}{_also(complaints, error)}")


def _denied(name: str, doing: Doing) -> str | None:
    """Say which right is missing."""
    if name == "TOPIC_AUTHORIZATION_FAILED":
        return f"access is refused: allow {doing.right} on the topic {doing.topic!r}"
    if name == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED":
        return f"access is refused: allow WRITE and DESCRIBE on the transactional id {doing.owner!r}"
    if name == "CLUSTER_AUTHORIZATION_FAILED":
        return f"access is refused: allow {doing.right} on the cluster"
    return None


def _hint(name: str) -> str:
    return f"{_HINTS[name]}; " if name in _HINTS else ""


def _also(complaints: Complaints, error: KafkaError) -> str:
    last = complaints.last
    return "" if last is None or last.code() == error.code() else f"; before that {last.name()}: {last.str()}"
