"""Jobs on the Kafka host for tests: topics with records, hosts on threads and in processes of their own."""

from __future__ import annotations

import json
import queue
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, field
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

import millpond
from millpond.events import CommitPublished, Event
from millpond.hosts.kafka import KafkaHost

E = TypeVar("E", bound=Event)

LONGEST_S = 60.0
FAST = {"session.timeout.ms": 12_000, "heartbeat.interval.ms": 300, "max.poll.interval.ms": 40_000}
"""A group that settles quickly, and whose members are not lost on a busy machine; for the classic protocol."""


def unique(word: str) -> str:
    """Give a name that no other test has."""
    return f"{word}-{uuid.uuid4().hex[:10]}"


@define
class Cluster:
    """
    A broker, as tests use it.

    Attributes:
        address: Where it is.
    """

    address: str
    admin: AdminClient = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def topic(self, name: str | None = None, partitions: int = 1, **config: str) -> str:
        """Make a topic and wait until it can be written to."""
        name = name or unique("input")
        made = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        self.admin.create_topics([made])[name].result(LONGEST_S)
        await_true(lambda: len(self.admin.list_topics(name, timeout=5).topics[name].partitions) == partitions)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Give *topic* more partitions."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(LONGEST_S)

    def delete(self, topic: str) -> None:
        """Remove *topic*."""
        self.admin.delete_topics([topic])[topic].result(LONGEST_S)

    def trim(self, topic: str, partition: int, offset: int) -> None:
        """Remove what stands before *offset*, as retention does."""
        part = TopicPartition(topic, partition, offset)
        for done in self.admin.delete_records([part]).values():
            done.result(LONGEST_S)

    def write(self, topic: str, records: Iterable[tuple[int, str, str]], **settings: Any) -> None:
        """Write records, each a partition, a key and a value; with a ``transactional.id`` in one transaction."""
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 1, **settings})
        if "transactional.id" in settings:
            producer.init_transactions(LONGEST_S)
            producer.begin_transaction()
        failed: list[object] = []
        for partition, key, value in records:
            producer.produce(
                topic, value, key, partition=partition, on_delivery=lambda e, _: failed.append(e) if e else None
            )
        assert producer.flush(LONGEST_S) == 0
        if "transactional.id" in settings:
            producer.commit_transaction(LONGEST_S)
        assert not failed

    def count(self, topic: str, partition: int, keys: int, number: int, first: int = 0) -> None:
        """Write *number* records whose keys go round."""
        self.write(topic, ((partition, f"{partition}-{n % keys}", str(n)) for n in range(first, first + number)))

    def end(self, topic: str, partition: int) -> int:
        """Give the end of a partition."""
        part = TopicPartition(topic, partition)
        return self.admin.list_offsets({part: OffsetSpec.latest()})[part].result(LONGEST_S).offset


def await_true(holds: Callable[[], bool], timeout_s: float = LONGEST_S) -> None:
    """Wait until *holds* says so."""
    deadline, pause = time.monotonic() + timeout_s, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        pause.wait(0.02)


def config(place: Path, address: str, topics: list[str], member: str = "a", **more: Any) -> dict[str, Any]:
    """
    Give the configuration of a job below *place*; each *member* has a state directory of its own.

    *more* are sections that go over, or into, those that are here.
    """
    settings: dict[str, Any] = {
        "job": {"name": "counting", "state_dir": str(place / f"state-{member}")},
        "checkpoint": {"manager": "directory", "path": str(place / "records"), "retain": 2},
        "backends": {"disk": {"type": "rocksdb-local", "path": str(place / "backup")}},
        "stores": {
            "counts": {"engine": "rocksdb", "key": "str", "value": "int"},
            "seen": {"engine": "rocksdb", "key": "str", "value": "int"},
        },
        "commit": {"interval": "200ms"},
        "hosts": {
            "kafka": {
                "bootstrap_servers": [address],
                "topics": topics,
                "group": f"group-{place.name}",
                "client": dict(FAST),
                "handover": "20s",
            }
        },
    }
    for section, values in more.items():
        if section == "kafka":
            settings["hosts"]["kafka"] |= values
        else:
            settings[section] = settings.get(section, {}) | values
    settings["hosts"]["kafka"] = {key: value for key, value in settings["hosts"]["kafka"].items() if value is not None}
    settings["job"].setdefault("put_timeout", "20s")
    return settings


def count(record: Any, task: Any) -> None:
    """Count records by key, and note each offset: a second time is an error."""
    counts, seen = task.store("counts"), task.store("seen")
    key = record.key().decode()
    place = f"{record.topic()} {record.offset():09}"
    assert place not in seen, f"{task.name} processes {place} on state that holds it already"
    seen[place] = 1
    counts[key] = counts.get(key, 0) + 1


@define(eq=False)
class Hosted:
    """A host on a thread, and what it has told."""

    host: KafkaHost
    events: list[Event] = field(factory=list)
    errors: list[BaseException] = field(factory=list)
    _told: queue.SimpleQueue[Event] = field(factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Run it."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.host.run()
        except BaseException as error:
            self.errors.append(error)

    def await_event(
        self, kind: type[E], holds: Callable[[E], bool] = lambda _: True, timeout_s: float = LONGEST_S
    ) -> E:
        """Give the next event of *kind* that *holds*, told since the last call; it may come later."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                event = self._told.get(timeout=max(0.01, min(0.5, deadline - time.monotonic())))
            except queue.Empty:
                if self.errors:
                    raise AssertionError(f"the host ended: {self.errors[0]!r}") from self.errors[0]
                assert time.monotonic() < deadline, f"no {kind.__name__}; told: {self.events[-20:]}"
                continue
            if isinstance(event, kind) and holds(event):
                return event

    def await_offset(self, topic: str, partition: int, offset: int) -> None:
        """Wait for a checkpoint that covers *offset*."""
        source = millpond.SystemStreamPartition("kafka", topic, partition)

        def covers(event: CommitPublished) -> bool:
            return int(event.checkpoint.offsets.get(source, "-1")) >= offset

        if not any(covers(event) for event in list(self.events) if isinstance(event, CommitPublished)):
            self.await_event(CommitPublished, covers)

    def of(self, kind: type[E]) -> list[E]:
        """Give all events of *kind* so far."""
        return [event for event in list(self.events) if isinstance(event, kind)]

    def stop(self, timeout_s: float = LONGEST_S) -> None:
        """Stop it, and raise what it ended with."""
        self.host.stop()
        self.join(timeout_s)
        if self.errors:
            raise self.errors[0]

    def join(self, timeout_s: float = LONGEST_S) -> None:
        """Wait until it has ended."""
        assert self._thread is not None
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the host does not end"


@contextmanager
def hosting(settings: Mapping[str, Any], process: Callable[..., object] = count, **words: Any) -> Iterator[Hosted]:
    """Run a host until the block ends; an error of its own is for the test to look at."""
    told: list[Event] = []
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def listen(event: Event) -> None:
        told.append(event)
        events.put(event)

    hosted = Hosted(KafkaHost(settings, process, listeners=[listen], **words), told, told=events)
    hosted.start()
    try:
        yield hosted
    finally:
        hosted.host.stop()
        hosted.join()


@define
class State:
    """What a job's checkpoints hold: counts by key, the records seen, offsets by topic and partition."""

    counts: Counter[str] = field(factory=Counter)
    seen: list[str] = field(factory=list)
    offsets: dict[tuple[str, int], int] = field(factory=dict)


def state_of(settings: Mapping[str, Any], place: Path, tasks: Iterable[str]) -> State:
    """Restore *tasks* on an empty disk and give what is there."""
    from millpond.config import load

    looked = {**settings, "job": {**settings["job"], "state_dir": str(place / unique("look"))}}
    found = State()
    with millpond.open_job(load(looked)) as job:
        for name in tasks:
            with job.open_task(name) as task:
                found.counts.update(dict(task.store("counts").scan()))
                found.seen += [key for key, _ in task.store("seen").scan()]
                found.offsets |= {(s.stream, s.partition): int(o) for s, o in task.offsets.items()}
    return found


def expected(partition: int, keys: int, number: int) -> Counter[str]:
    """Give what ``Cluster.count`` leads to."""
    return Counter(f"{partition}-{n % keys}" for n in range(number))


def dumps(settings: Mapping[str, Any]) -> str:
    """Give a configuration as an argument of a process."""
    return json.dumps(settings)
