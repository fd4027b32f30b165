"""A job whose stores are in Kafka: on a real broker, on its bad days, and beside other topics."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import CommitError, ConfigError, FencedError, StateNotFoundError, TransientError
from millpond.formats.changelog_marker import FACTORY
from millpond.formats.changelog_marker import decode as decode_samza

pytest.importorskip("rocksdict")
pytest.importorskip("confluent_kafka")
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from millpond_changelog.kafka.log import KafkaLog

TASK = "Partition 0"


class Job:
    """A job with two stores in Kafka, and records in a folder."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self.name = f"flights-{uuid.uuid4().hex[:8]}"
        self.topics = {"delays": f"{self.name}.delays", "other": f"{self.name}.other"}
        self.settings: dict[str, Any] = {"topics": self.topics, "replication_factor": 1, "timeout": "20s"}
        self.tasks = [TASK]

    def open(self) -> millpond.Job:
        store = {"engine": "rocksdb", "key": "str", "value": "str"}
        return millpond.open_job(
            {
                "job": {"name": self.name, "state_dir": str(self.folder / "state"), "tasks": self.tasks},
                "checkpoint": {"manager": "directory", "path": str(self.folder / "records")},
                "backends": {"log": {"type": "changelog", "bootstrap_servers": [self.address], **self.settings}},
                "stores": {"delays": store, "other": store},
                "restore": {"attempts": 2},
            }
        )

    def commit(self, **values: str) -> None:
        with self.open() as job, job.open_task(TASK, timeout_s=60) as task:
            for key, value in values.items():
                task.store("delays")[key] = value
            task.commit_now(60)

    def contents(self) -> dict[str, str]:
        with self.open() as job, job.open_task(TASK, timeout_s=60) as task:
            return dict(task.store("delays").scan())

    def lose_disk(self) -> None:
        shutil.rmtree(self.folder / "state")


@pytest.fixture
def log(kafka_address: str) -> Iterator[KafkaLog]:
    log = KafkaLog([kafka_address], timeout_s=30)
    yield log
    log.close()


@pytest.fixture
def job(tmp_path: Path, kafka_address: str, log: KafkaLog) -> Iterator[Job]:
    job = Job(tmp_path, kafka_address)
    yield job
    for topic in job.topics.values():
        log.delete(topic)


def test_topics_are_made_with_samzas_settings_and_are_looked_at(job: Job, log: KafkaLog) -> None:
    """One partition a task, compacted, with Samza's limits; a job with more tasks is told to add partitions."""
    job.tasks = [f"Partition {number}" for number in range(3)]
    with job.open() as opened:
        opened.prepare()
    made = log.describe(job.topics["delays"])
    wanted = {
        "cleanup.policy": "compact",
        "max.message.bytes": "1000012",
        "segment.bytes": str(512 << 20),
        "delete.retention.ms": "86400000",
        "min.compaction.lag.ms": "14400000",
        "min.insync.replicas": "1",
    }
    assert wanted.items() <= dict(made.settings).items()
    assert 3 == made.partitions

    job.tasks.append("Partition 3")
    with job.open() as opened, pytest.raises(ConfigError, match="3 partitions, and the job has 4 tasks"):
        opened.prepare()


def test_a_topic_with_another_policy_is_refused(job: Job, log: KafkaLog) -> None:
    """A topic that somebody made with Kafka's own defaults would lose state; nothing is opened on it."""
    log.create(job.topics["delays"], 1, {"replication.factor": "1"})

    with pytest.raises(ConfigError, match="set it to compact"):
        job.contents()


def test_a_topic_that_was_made_anew_is_not_an_empty_store(job: Job, log: KafkaLog) -> None:
    """Deleted and made again under its name, it has another identity."""
    job.commit(a="1")
    job.lose_disk()
    log.delete(job.topics["delays"])

    with pytest.raises(StateNotFoundError, match="made anew"):
        job.contents()


def test_only_what_was_published_comes_back(job: Job, log: KafkaLog) -> None:
    """Aborted appends, commits that were never published and control records lie in the log, and are not restored."""
    job.commit(a="1", b="1")
    with suppress(KeyboardInterrupt), job.open() as opened, opened.open_task(TASK, timeout_s=60) as task:
        task.store("delays")["a"] = "2"
        task.store("other")["x"] = "2"
        marker = task.commit_now(60).markers[FACTORY]["delays"]
        manager = opened.checkpoints
        write = manager.write
        manager.write = refuse  # type: ignore[method-assign]
        task.store("delays")["a"] = "never"
        task.store("delays")["c"] = "never"
        with pytest.raises(CommitError):
            task.commit_now(60)
        manager.write = write  # type: ignore[method-assign]
        raise KeyboardInterrupt  # so that nothing more is committed
    owner = f"{job.name}/1/%50artition%200/changelog"
    with log.writer(owner + "-another").append() as aborted:
        aborted.add(job.topics["delays"], 0, [(b"a", b"aborted")])
        aborted.flush()
    job.lose_disk()
    assert decode_samza(marker).offset is not None
    assert log.extent(job.topics["delays"], 0).end > int(decode_samza(marker).offset or 0) + 2

    assert {"a": "2", "b": "1"} == job.contents()
    job.commit(d="3")
    job.lose_disk()
    assert {"a": "2", "b": "1", "d": "3"} == job.contents()
    assert {b"a": b"2", b"b": b"1", b"c": None, b"d": b"3"} == state(log, job.topics["delays"])


def test_a_start_on_a_current_store_reads_no_record(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit's own mark is all that lies behind its last record, and nobody has to read the topic to know it."""
    job.commit(a="1")

    def read(*_: object) -> None:
        raise AssertionError("a record was asked for")

    monkeypatch.setattr(KafkaLog, "read", read)
    assert {"a": "1"} == job.contents()


def test_one_record_behind_a_commit_without_transactions_is_undone(job: Job, log: KafkaLog) -> None:
    """Where appends had no mark, a single offset behind the commit's may be a record, and is looked at."""
    job.settings["transactions"] = False
    with suppress(KeyboardInterrupt), job.open() as opened, opened.open_task(TASK, timeout_s=60) as task:
        task.store("delays")["a"] = "1"
        marker = task.commit_now(60).markers[FACTORY]["delays"]
        opened.checkpoints.write = refuse  # type: ignore[method-assign]
        task.store("delays")["a"] = "never"
        with pytest.raises(CommitError):
            task.commit_now(60)
        raise KeyboardInterrupt  # so that nothing more is committed
    assert log.extent(job.topics["delays"], 0).end == int(decode_samza(marker).offset or 0) + 2
    job.settings["transactions"] = True

    job.commit(b="2")
    assert b"1" == state(log, job.topics["delays"])[b"a"]
    job.lose_disk()
    assert {"a": "1", "b": "2"} == job.contents()


def refuse(*_: object, **__: object) -> None:
    raise ConfigError("the test lets this fail")


def state(log: KafkaLog, topic: str) -> dict[bytes, bytes | None]:
    """Give what any reader of the topic ends at."""
    extent = log.extent(topic, 0)
    return dict(change for batch in log.read(topic, 0, extent.start, extent.end) for change in batch.changes())


def test_records_that_were_deleted_below_the_store_are_missed(job: Job, kafka_address: str) -> None:
    """A log whose beginning was taken away, under a policy that somebody had set for a while, is refused."""
    for number in range(3):
        job.commit(**{f"k{number}": "x"})
    job.lose_disk()
    admin = AdminClient({"bootstrap.servers": kafka_address})
    set_policy(admin, job.topics["delays"], "delete")
    place = TopicPartition(job.topics["delays"], 0, 2)
    admin.delete_records([place])[place].result(60)
    set_policy(admin, job.topics["delays"], "compact")

    with pytest.raises(StateNotFoundError, match="retention removed"):
        job.contents()


def set_policy(admin: AdminClient, topic: str, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def test_a_second_owner_shuts_the_first_one_out(job: Job, tmp_path: Path) -> None:
    """Whoever opens the task on another machine is the writer: the first one's next commit is refused, and its log."""
    with pytest.raises(FencedError), job.open() as opened, opened.open_task(TASK, timeout_s=60) as task:
        task.store("delays")["a"] = "1"
        task.commit_now(60)
        elsewhere = Job(tmp_path / "elsewhere", job.address)
        elsewhere.name, elsewhere.topics, elsewhere.settings = job.name, job.topics, job.settings
        shutil.copytree(job.folder / "records", elsewhere.folder / "records")
        elsewhere.commit(b="2")
        task.store("delays")["a"] = "zombie"
        task.commit_now(60)
    assert {"a": "1", "b": "2"} == elsewhere.contents()


def test_a_broker_that_comes_and_goes_costs_commits_and_no_state(tmp_path: Path, own_kafka: Any) -> None:
    """Down at a start, at a commit and at a restore, each says that it may work later; and back again, all is there."""
    broker = own_kafka()
    job = Job(tmp_path, broker.address)
    job.settings["timeout"] = "5s"
    job.commit(a="1")
    with job.open() as opened, opened.open_task(TASK, timeout_s=60) as task:
        task.store("delays")["b"] = "2"
        broker.kill()
        with pytest.raises(CommitError):
            task.commit_now(40)
        broker.restart()
        task.store("delays")["c"] = "3"
        commit_until_it_works(task)
    broker.kill()
    job.lose_disk()
    with pytest.raises(TransientError):
        job.contents()
    broker.restart()

    assert {"a": "1", "b": "2", "c": "3"} == job.contents()


def commit_until_it_works(task: millpond.Task) -> None:
    for _ in range(5):
        try:
            task.commit_now(60)
        except CommitError:
            continue
        return
    raise AssertionError("no commit succeeds although the broker is back")
