"""What the host needs of a Kafka client, as roles; and what a client says beside records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from millpond.hosts.kafka.decisions import Part

if TYPE_CHECKING:
    from confluent_kafka import Message

Offsets = Mapping[Part, int]


class Kind(Enum):
    """What a trouble means for the host."""

    GONE = auto()
    """An offset is outside what a partition has."""
    NO_TOPIC = auto()
    REFUSED = auto()
    """The cluster does not let this client in, or not at this topic or group."""
    OVER = auto()
    """The client cannot go on, e.g. since another has its ``group.instance.id``."""
    PASSING = auto()
    """The client tries again by itself."""


@frozen
class Trouble:
    """
    Something that the client says beside records.

    Attributes:
        kind: What it means.
        text: In the client's words.
        part: The partition that it is about, if it is about one.
    """

    kind: Kind
    text: str
    part: Part | None = None


_KINDS: Mapping[str, Kind] = {
    "_AUTO_OFFSET_RESET": Kind.GONE,
    "OFFSET_OUT_OF_RANGE": Kind.GONE,
    "UNKNOWN_TOPIC_OR_PART": Kind.NO_TOPIC,
    "_UNKNOWN_TOPIC": Kind.NO_TOPIC,
    "TOPIC_AUTHORIZATION_FAILED": Kind.REFUSED,
    "GROUP_AUTHORIZATION_FAILED": Kind.REFUSED,
    "CLUSTER_AUTHORIZATION_FAILED": Kind.REFUSED,
    "SASL_AUTHENTICATION_FAILED": Kind.REFUSED,
    "_AUTHENTICATION": Kind.REFUSED,
    "UNSUPPORTED_ASSIGNOR": Kind.REFUSED,
    "INVALID_SESSION_TIMEOUT": Kind.REFUSED,
    "INCONSISTENT_GROUP_PROTOCOL": Kind.REFUSED,
}
"""What librdkafka's errors mean, by their names; any other passes, unless it is fatal to the client."""


def trouble_of(name: str, text: str, *, fatal: bool, part: Part | None = None) -> Trouble:
    """Say what an error of librdkafka means, by its *name*."""
    kind = _KINDS.get(name, Kind.OVER if fatal else Kind.PASSING)
    return Trouble(kind, f"{name}: {text}", part)


class Rebalances(Protocol):
    """Told of what the group gives and takes, inside ``read`` and ``close``; must not raise."""

    def assigned(self, parts: Collection[Part]) -> None:
        """These came; nothing is read from them before ``begin``."""
        ...

    def revoked(self, parts: Collection[Part]) -> None:
        """These go when this returns; until then nobody else has them."""
        ...

    def lost(self, parts: Collection[Part]) -> None:
        """These are gone; others may have them by now."""
        ...


class Driver(Protocol):
    """A member of a consumer group. One thread; ``range_of``, ``partition_count`` and ``identity_of`` from any."""

    def partition_count(self, topic: str, timeout_s: float) -> int | None:
        """Give the number of partitions of *topic*, None if there is no such topic; TransientError: no answer."""
        ...

    def identity_of(self, topic: str, timeout_s: float) -> str | None:
        """Give what tells *topic* from others of its name; None: the cluster does not say, or there is none."""
        ...

    def subscribe(self, rebalances: Rebalances) -> None:
        """Join the group."""
        ...

    def read(self, limit: int, timeout_s: float) -> tuple[Sequence[Message], Sequence[Trouble]]:
        """Give at most *limit* records; wait for the first. Keeps the membership alive."""
        ...

    def begin(self, starts: Offsets, others: Offsets) -> Collection[Part]:
        """
        Read the assigned partitions of *starts* from these offsets on; TransientError: not now.

        *others* are the next offsets of those that are being read already. Gives what is not paused any more.
        """
        ...

    def pause(self, parts: Iterable[Part]) -> None:
        """Give no records of *parts* until they are resumed."""
        ...

    def resume(self, parts: Iterable[Part]) -> None:
        """Go on where *parts* were."""
        ...

    def range_of(self, part: Part, timeout_s: float) -> tuple[int, int]:
        """Give the first offset that is there and the one after the last; TransientError: no answer."""
        ...

    def end_of(self, part: Part) -> int | None:
        """Give the end of *part* as the client last saw it, without asking anybody; None: it has not seen it."""
        ...

    def is_member(self) -> bool:
        """Tell whether the group knows this member."""
        ...

    def mirror(self, offsets: Offsets) -> None:
        """Commit *offsets*, of the next records, to the group; does not wait. TransientError: refused."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...
