"""Topics of a cluster: made, looked at, removed; always anew, never from a cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from functools import partial
from threading import Event
from typing import Any, TypeVar

from attrs import define, field
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it gives them, and its types forget to say so
    RESOURCE_TOPIC,
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from millpond.errors import ConfigError, StateNotFoundError, StoreClosedError, TransientError
from millpond.log import Extent, Topic
from millpond_changelog.kafka.clients import Clients, Complaints
from millpond_changelog.kafka.driver_errors import ABSENT, Doing, translate

REPLICATION = "replication.factor"

_SLICE_S = 0.2
_REFUSAL_S = 3.0
_PAUSE_S = 0.02
_PATIENCE_S = 2.0
"""How long a leader has to answer before somebody is asked who leads now; twice as long each time."""

# Of a leader that is about to change, or only knows of itself since a moment.
_LEADERLESS = frozenset(
    {"_TIMED_OUT", "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH",
     "UNKNOWN_LEADER_EPOCH", "KAFKA_STORAGE_ERROR", "_TRANSPORT"}
)  # fmt: skip

_BROKEN = "_TRANSPORT"

T = TypeVar("T")


@define
class Topics:
    """
    The topics of one cluster. Any thread.

    Attributes:
        clients: Makes the admin.
        timeout_s: How long one call may take.
    """

    clients: Clients
    timeout_s: float
    _complaints: Complaints = field(factory=Complaints, init=False)
    _admin: AdminClient | None = field(default=None, init=False)

    def open(self) -> None:
        """Make the admin; ConfigError if its options cannot be right."""
        self._admin = self.clients.admin(self._complaints)

    def close(self) -> None:
        """Let go of the admin, and of its threads. Idempotent."""
        self._admin = None

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Make the topic *name*, unless it is there, and wait until it can be written."""
        doing = Doing(verb="create", right="CREATE (on the topic, or on the cluster)", topic=name)
        config = {key: value for key, value in settings.items() if key != REPLICATION}
        new = NewTopic(name, partitions, int(settings.get(REPLICATION, -1)), config=config)
        self._ask(doing, lambda admin: admin.create_topics([new], **self._times())[name], {"TOPIC_ALREADY_EXISTS"})
        self._await_leaders(name)

    def delete(self, name: str) -> None:
        """Remove the topic *name*, and wait until it is not shown any more; a missing one is fine."""
        doing = Doing(verb="delete", right="DELETE", topic=name)
        before = self._identity(name)
        self._ask(doing, lambda admin: admin.delete_topics([name], **self._times())[name], ABSENT)
        self._await_absence(name, before)

    def describe(self, name: str) -> Topic:
        """Look at the topic *name*."""
        doing = Doing(verb="read the settings of", right="DESCRIBE_CONFIGS", topic=name)
        resource = ConfigResource(RESOURCE_TOPIC, name)
        ask = partial(self._begin, doing, lambda admin: admin.describe_configs([resource], **self._time())[resource])
        asked = ask()
        found = self._look(name)
        entries = self._await(doing, asked, again=ask) or {}
        settings = {entry.name: str(entry.value) for entry in entries.values() if entry.value is not None}
        settings[REPLICATION] = str(min((len(each.replicas) for each in found.partitions), default=0))
        return Topic(name, str(found.topic_id), len(found.partitions), settings)

    def extent(self, name: str, partition: int) -> Extent:
        """Look at what a reader of committed records finds in a partition."""
        start, end, tail = self._offsets(name, partition, (_EARLIEST, _LATEST, _TAIL))
        return Extent(min(start, end), end, tail=max(tail, end))

    def end(self, name: str, partition: int) -> int:
        """Give the offset behind the last that a reader of committed records finds in a partition."""
        return self._offsets(name, partition, (_LATEST,))[0]

    def _offsets(self, name: str, partition: int, wanted: Sequence[Any]) -> list[int]:
        """
        Ask for offsets; again while the partition is there and has no leader, or one that does not answer.

        Never less than 0: a log that seems to end before its first offset would pass for an empty one.
        """
        where = TopicPartition(name, partition)
        doing = Doing(verb="look into", right="DESCRIBE", topic=name)
        deadline, patience = time.monotonic() + self.timeout_s, _PATIENCE_S
        while True:
            patience = min(patience, max(deadline - time.monotonic(), _PAUSE_S))
            times = {"request_timeout": patience}
            asked = [self._begin(doing, _offset_of(where, spec, times)) for spec in wanted]
            answers = [self._await(doing, each, ABSENT | _LEADERLESS) for each in asked]
            found = [int(each.offset) for each in answers if each is not None]
            # A broker that goes while it is asked may be reported without an error: with an offset that means "none".
            if len(found) == len(wanted) and min(found) >= 0:
                return found
            trouble = self._why_none(name, partition, patience)
            if time.monotonic() > deadline:
                raise trouble
            Event().wait(_PAUSE_S)
            patience *= 2

    def _why_none(self, name: str, partition: int, patience_s: float) -> TransientError:
        """See that a partition is there; give what to raise if nobody tells its offsets in time."""
        try:
            count = len(self._look(name, patience_s).partitions)
        except TransientError as error:  # asked again: by then another may lead
            return error
        if partition >= count:
            raise StateNotFoundError(f"the topic {name!r} has {count} partitions: there is no partition {partition}")
        return TransientError(f"partition {partition} of the topic {name!r} has no leader, or it does not answer")

    def _look(self, name: str, patience_s: float | None = None) -> Any:
        doing = Doing(verb="look at", right="DESCRIBE", topic=name)
        times = self._time() if patience_s is None else {"request_timeout": patience_s}
        return self._ask(
            doing, lambda admin: admin.describe_topics(TopicCollection([name]), **times)[name], patience_s=patience_s
        )

    def _identity(self, name: str) -> str | None:
        """Give the id of a topic; None if there is none, or if it is not for us to look at."""
        try:
            return str(self._look(name).topic_id)
        except (StateNotFoundError, ConfigError):
            return None

    def _await_absence(self, name: str, identity: str | None) -> None:
        """Wait until the topic is gone, or another one has its name: a broker may show it for a moment longer."""
        deadline = time.monotonic() + self.timeout_s
        while identity is not None and self._identity(name) == identity:
            if time.monotonic() > deadline:
                raise TransientError(f"the topic {name!r} was deleted, but is still shown after {self.timeout_s:g} s")
            Event().wait(_PAUSE_S)

    def _await_leaders(self, name: str) -> None:
        """Wait until each partition of a new topic has a leader: for a moment after its creation nobody knows it."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                if all(each.leader is not None and each.leader.id >= 0 for each in self._look(name).partitions):
                    return
            except StateNotFoundError:
                pass
            if time.monotonic() > deadline:
                raise TransientError(f"the topic {name!r} was created, but is not ready after {self.timeout_s:g} s")
            Event().wait(_PAUSE_S)

    def _time(self) -> dict[str, float]:
        return {"request_timeout": self.timeout_s}

    def _times(self) -> dict[str, float]:
        return {"request_timeout": self.timeout_s, "operation_timeout": self.timeout_s}

    def _ask(
        self,
        doing: Doing,
        call: Callable[[AdminClient], Future[T]],
        fine: Collection[str] = frozenset(),
        *,
        patience_s: float | None = None,
    ) -> T | None:
        """Ask and wait; None if the answer is an error whose name is *fine*. Asking twice has to be as good as once."""
        ask = partial(self._begin, doing, call)
        return self._await(doing, ask(), fine, again=ask, patience_s=patience_s)

    def _begin(self, doing: Doing, call: Callable[[AdminClient], Future[T]]) -> Future[T]:
        admin = self._admin
        if admin is None:
            raise StoreClosedError("this log is closed: open it anew")
        self._complaints.forget()
        admin.poll(0)
        try:
            return call(admin)
        except KafkaException as error:
            raise translate(error.args[0], doing, self._complaints) from error

    def _await(
        self,
        doing: Doing,
        answer: Future[T],
        fine: Collection[str] = frozenset(),
        *,
        again: Callable[[], Future[T]] | None = None,
        patience_s: float | None = None,
    ) -> T | None:
        """
        Wait for an answer; not for long where the brokers do not even accept who asks.

        With *again*, ask anew where the connection broke before it came: a broker may be restarted at any moment.
        """
        asked, longest = time.monotonic(), self.timeout_s if patience_s is None else patience_s
        while True:
            try:
                return answer.result(_SLICE_S)
            except KafkaException as error:
                name, late = error.args[0].name(), time.monotonic() - asked > longest
                if name in fine:
                    return None
                if again is None or name != _BROKEN or late or self._complaints.refused is not None:
                    raise translate(error.args[0], doing, self._complaints) from error
                Event().wait(_PAUSE_S)
                answer = again()
            except LateError:
                if self._admin is not None:
                    self._admin.poll(0)
                waited = time.monotonic() - asked
                if waited > longest + 1 or (self._complaints.refused is not None and waited > _REFUSAL_S):
                    too_late = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - the driver's own name
                    raise translate(too_late, doing, self._complaints) from None


_EARLIEST = (OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]
_LATEST = (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]
_TAIL = (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]


def _offset_of(
    where: TopicPartition, wanted: tuple[Any, IsolationLevel], times: Mapping[str, float]
) -> Callable[[AdminClient], Future[Any]]:
    spec, level = wanted
    return lambda admin: admin.list_offsets({where: spec}, isolation_level=level, **times)[where]
