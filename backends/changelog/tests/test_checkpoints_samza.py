"""Samza's golden files through a topic, in both directions; and no topic of ours can stop a job of Samza's."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from samza_model import Read, Record, SamzaStopsError, samza_reads
from services import samza

from millpond.checkpoint import Checkpoint, CheckpointId, SystemStreamPartition
from millpond.clock import SystemClock
from millpond.errors import ConfigError, FencedError, FormatError
from millpond.formats import log_key
from millpond.spi import JobContext, VersionPolicy
from millpond_changelog.checkpoints.keys import GROUPER
from millpond_changelog.checkpoints.manager import KafkaCheckpoints
from millpond_changelog.checkpoints.settings import KafkaCheckpointsSettings
from millpond_changelog.checkpoints.topic import samza_name, topic_name

SHARED = Path(os.environ.get("MILLPOND_SHARED", Path(__file__).parents[4] / "shared"))
GOLDEN = SHARED / "golden" / "samza"
MISSING = pytest.mark.skip(
    reason="Samza's golden files are not at ../shared/golden/samza beside this repository; they are made by running "
    "Samza 1.8.0's own classes. Set MILLPOND_SHARED to the folder that holds golden/samza"
)
Case = dict[str, Any]
_numbers = count(1)

BETTER: dict[str, dict[str, dict[str, str] | type[Exception] | None]] = {
    "v1-tombstone-then-good": {"A": {"SystemStreamPartition [kafka, s, 0]": "5"}},
    "v1-tombstone-then-good-novalidate": {"A": {"SystemStreamPartition [kafka, s, 0]": "5"}},
    "v1-corrupt-last": {"A": FormatError},
    "v1-corrupt-then-good": {"A": {"SystemStreamPartition [kafka, s, 0]": "5"}},
    "v1-corrupt-then-good-novalidate": {"A": {"SystemStreamPartition [kafka, s, 0]": "5"}},
    "v2-tombstone-last": {"A": None},
    "v2-tombstone-last-novalidate": {"A": None},
    "v2-corrupt-last": {"A": FormatError, "B": {"SystemStreamPartition [kafka, s, 0]": "1"}},
    "v2-corrupt-last-novalidate": {"A": FormatError, "B": {"SystemStreamPartition [kafka, s, 0]": "1"}},
    "bad-key": {"A": FormatError},
    "bad-key-novalidate": {"A": FormatError},
    "grouper-mismatch": {"A": ConfigError},
    "grouper-mismatch-novalidate": {"A": ConfigError},
    "dotted-other-task": {
        "A": {"SystemStreamPartition [kafka, s, 0]": "1"},
        "B": {"SystemStreamPartition [kafka, my.topic, 0]": "1"},
    },
    "dotted-other-task-novalidate": {
        "A": {"SystemStreamPartition [kafka, s, 0]": "1"},
        "B": {"SystemStreamPartition [kafka, my.topic, 0]": "1"},
    },
    "tx-abort-tail": {"A": {"SystemStreamPartition [kafka, s, 0]": "19"}},
}
"""Where Samza stops, forgets, or believes what was never committed: what we give instead."""


def cases(area: str) -> Callable[[Any], Any]:
    """Parametrize a test over the golden cases of an area; a record without a key is refused by the broker itself."""
    index = GOLDEN / "cases.json"
    found = json.loads(index.read_text("ascii"))["cases"] if index.exists() else []
    chosen = [case for case in found if case["area"] == area]
    if not chosen:
        return pytest.mark.parametrize("case", [pytest.param({}, marks=MISSING, id="no golden files")])
    return pytest.mark.parametrize("case", chosen, ids=[case["id"].partition("/")[2] for case in chosen])


@cases("topic-read")
def test_the_model_answers_as_samza_did(case: Case) -> None:
    """For each recorded log: the same checkpoints, or a stop."""
    given = case["input"]
    isolated = given["config"].get("systems.kafka.consumer.isolation.level") == "read_committed"
    records, first = [], 0
    for each in given["records_written_by_python"]:
        if "delete_records_before" in each:
            first = each["delete_records_before"]
        elif not (isolated and each.get("transaction") == "abort"):
            records += each["records"] if "transaction" in each else [each]
    log = [
        Record(_bytes(each["key"]), _bytes(each["value"]), each.get("timestamp_ms_relative", 0)) for each in records
    ][first:]
    versions = [int(each) for each in given["task.checkpoint.read.versions"].split(",")]
    validate = given["config"].get("job.checkpoint.validation.enabled") != "false"
    if not case["result"]["ok"]:
        with pytest.raises(SamzaStopsError):
            samza_reads(log, versions, GROUPER, validate=validate)
        return
    held = samza_reads(log, versions, GROUPER, validate=validate)
    for task, value in case["result"]["value"].items():
        found = held.get(task)
        if value is None:
            assert found is None or found.offsets is None
        else:
            assert found is not None
            assert (found.version, found.offsets) == (value["version"], value["offsets"])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@pytest.fixture
def managers(kafka_address: str) -> Iterator[Callable[..., KafkaCheckpoints]]:
    """Make managers of a job on the session's broker, with its topic; they are closed in the end."""
    made: list[KafkaCheckpoints] = []

    def make(
        job: str, read: Sequence[int] = (2, 1), write: Sequence[int] = (1, 2), **settings: Any
    ) -> KafkaCheckpoints:
        context = JobContext(job, "1", None, lambda event: None, SystemClock(), None)  # type: ignore[arg-type]
        config = KafkaCheckpointsSettings(bootstrap_servers=kafka_address, replication_factor=1, **settings)
        made.append(KafkaCheckpoints(config, context, VersionPolicy(write=tuple(write), read=tuple(read))))
        made[-1].create_resources()
        return made[-1]

    yield make
    for each in made:
        each.close()


def new_job(word: str) -> str:
    """Give a name that no other test has."""
    return f"{word}-{next(_numbers)}-{os.getpid()}-{time.time_ns() % 1_000_000_000}"


@cases("topic-read")
def test_what_samza_read_we_read_or_do_better(
    case: Case, managers: Callable[..., KafkaCheckpoints], kafka_address: str
) -> None:
    """Each recorded log, produced to a real topic: Samza's answer, or the better one of the table above."""
    given, name = case["input"], case["id"].partition("/")[2]
    if name.startswith("null-key"):
        pytest.skip("the broker refuses a record without a key on a compacted topic")
    read = [int(each) for each in given["task.checkpoint.read.versions"].split(",")]
    settings = {"topic_settings": {"cleanup.policy": given["cleanup.policy"]}}
    manager = managers(new_job("read"), read=read, **settings)
    produce_case(kafka_address, manager.topic, given["records_written_by_python"])
    wanted = BETTER.get(name) or {task: value and value["offsets"] for task, value in case["result"]["value"].items()}
    for task, expected in wanted.items():
        if isinstance(expected, type):
            with pytest.raises(expected):
                manager.read_last(task)
        else:
            found = manager.read_last(task)
            assert (found and {str(ssp): offset for ssp, offset in found.offsets.items()}) == expected


def produce_case(address: str, topic: str, entries: list[Case]) -> None:
    """Produce the entries of a case, as they were when Samza read them."""
    now = time.time_ns() // 1_000_000
    plain = Producer({"bootstrap.servers": address, "linger.ms": 0})
    for each in entries:
        if "delete_records_before" in each:
            admin = AdminClient({"bootstrap.servers": address})
            where = TopicPartition(topic, 0, each["delete_records_before"])
            for answer in admin.delete_records([where]).values():
                answer.result(20)
        elif "transaction" in each:
            producer = Producer({"bootstrap.servers": address, "transactional.id": f"golden {topic}"})
            producer.init_transactions(20)
            producer.begin_transaction()
            for record in each["records"]:
                producer.produce(topic, _bytes(record["value"]), _bytes(record["key"]))
            producer.flush(20)
            (producer.commit_transaction if each["transaction"] == "commit" else producer.abort_transaction)(20)
        else:
            stamp = now + each.get("timestamp_ms_relative", 0)
            plain.produce(topic, _bytes(each["value"]), _bytes(each["key"]), timestamp=stamp)
            assert plain.flush(20) == 0


@cases("checkpoint-topic")
def test_the_topic_has_samzas_name(case: Case) -> None:
    """For each recorded job, but for batch mode, which there is not here; a name that Kafka refuses is escaped."""
    given = case["input"]
    if "config" in given:
        pytest.skip("there is no batch mode")
    name = case["result"]["value"]
    assert samza_name(given["job.name"], given["job.id"]) == name
    ours = topic_name(given["job.name"], given["job.id"])
    assert (ours == name) == (name.isascii() and " " not in name)


@cases("topic")
def test_samzas_own_records_are_read_and_our_keys_are_the_same(
    case: Case, managers: Callable[..., KafkaCheckpoints], kafka_address: str
) -> None:
    """A record that Samza's manager wrote, produced again: the same offsets and markers, under our key."""
    given = case["input"]
    version = 1 if given["type"] == "checkpoint" else 2
    manager = managers(new_job("golden"), read=[version], write=[version])
    key, value = ((GOLDEN / case[part]["file"]).read_bytes() for part in ("key", "value"))
    produce_case(kafka_address, manager.topic, [{"key": key.decode(), "value": value.decode()}])
    found = manager.read_last(given["task"])
    assert found is not None
    assert found.claim is None
    expected = {_ssp(each): each["offset"] for each in given["offsets"]}
    assert dict(found.offsets) == expected
    if version == 2:
        markers = {backend: dict(each) for backend, each in found.markers.items()}
        assert (str(found.id), markers) == (given["checkpoint-id"], given["state-checkpoint-markers"])
    claim = manager.claim(given["task"])
    manager.write(claim, Checkpoint(CheckpointId(2 * 10**12, 0), found.offsets), after=found.id)
    newest = [record for record in everything(kafka_address, manager.topic) if record.key == key]
    assert len(newest) == 2, "it stands under another key"
    assert manager.ids(given["task"])[-1] == found.id, "what Samza wrote is no longer to be had"


def _ssp(entry: Case) -> SystemStreamPartition:
    return SystemStreamPartition(entry["system"], entry["stream"], entry["partition"], entry["keyBucket"])


def everything(address: str, topic: str) -> list[Record]:
    """Read all records of a topic as Samza does: also those of aborted transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "as samza",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append(Record(message.key(), message.value(), message.timestamp()[1]))
    consumer.close()
    assert message is not None, "the topic could not be read"
    return found


DOTTED = SystemStreamPartition("kafka", "a.b.c", 0)
TRAP = SystemStreamPartition("kafka", "a.1", 7)
PLAIN = SystemStreamPartition("kafka", "s", 0)


@pytest.mark.parametrize("write", [(1,), (2,), (1, 2), (2, 1)], ids=str)
def test_no_topic_of_ours_stops_a_job_of_samzas(
    write: tuple[int, ...], managers: Callable[..., KafkaCheckpoints], kafka_address: str
) -> None:
    """Claims, dotted streams, removals, pins, replaced writers: Samza reads at any moment, and the newest at last."""
    job = new_job("shared")
    first, second = (managers(job, write=write, read=write) for _ in range(2))
    live_through_everything(first, second)
    records = everything(kafka_address, first.topic)
    kinds = {log_key.decode(record.key).type.partition(":")[0] for record in records}
    ours = {"millpond-claim", "millpond-checkpoint", "millpond-pin"}
    assert kinds == ours | {{1: "checkpoint", 2: "checkpoint-v2"}[each] for each in write}
    for versions in ([1], [2], [2, 1], [1, 2]):
        for length in range(len(records) + 1):
            held = samza_reads(records[:length], versions, GROUPER)
        for version in set(versions) & set(write):
            assert_newest(held["A"], version in write)


def assert_newest(held: Read, is_written: bool) -> None:
    """See that Samza holds the last checkpoint that was written, as far as it can hold it."""
    assert is_written
    assert held.offsets is not None
    assert held.offsets[str(PLAIN)] == "last"


def live_through_everything(first: KafkaCheckpoints, second: KafkaCheckpoints) -> None:
    """Write every kind of record that there is."""
    for task in ("A", "B.with dots", "Ü"):
        claim = first.claim(task)
        ids = [CheckpointId(1000 + number, 7) for number in range(4)]
        after = None
        for id in ids:
            offsets = {PLAIN: str(id), DOTTED: "3", TRAP: "4", SystemStreamPartition("s.y", "t", 1): ""}
            first.write(
                claim, Checkpoint(id, offsets, {"b": {"store.x": "m"}}, images={"store.x": "1-1-x"}), after=after
            )
            after = id
        first.pin(task, ids[0], "a pin: with/everything")
        first.delete(claim, ids[:2])
        first.delete(claim, [ids[3]])
        first.unpin(task, "a pin: with/everything")
        newer = second.claim(task)
        with pytest.raises(FencedError):
            first.write(claim, Checkpoint(CheckpointId(2000, 0)), after=ids[2])
        second.delete(newer, list(second.ids(task)))
        assert second.read_last(task) is None
        second.write(newer, Checkpoint(CheckpointId(3000, 0), {PLAIN: "last", DOTTED: "9"}), after=None)


def test_samzas_own_manager_reads_our_topic(managers: Callable[..., KafkaCheckpoints], kafka_address: str) -> None:
    """Samza 1.8.0 itself, in Java, on a topic with every kind of record that we write: the newest of each task."""
    if (reason := samza.missing()) is not None:
        (pytest.fail if os.environ.get("MILLPOND_INSIST") else pytest.skip)(reason)
    job = new_job("samza")
    live_through_everything(managers(job), managers(job))
    for versions in ("1", "2", "2,1", "1,2"):
        found = samza.read(kafka_address, job, versions, ["A", "B.with dots", "Ü", "nobody"])
        assert found.pop("nobody").version is None
        assert {each.version for each in found.values()} == {int(versions[0])}
        for each in found.values():
            assert "SystemStreamPartition [kafka, s, 0]=last" in each.offsets
            assert ("a.b.c" in each.offsets) == (versions[0] == "1")
