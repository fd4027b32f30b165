"""
Checkpoints in Kafka beside bare clients on the same broker, interleaved.

    python benchmarks/kafka_checkpoints.py [--records 100000] [--commits 50] [--repetitions 3] [--directory DIR]

A start is a new process's: the clients are made, the whole topic is read to the end that it has then, and the task's
last checkpoint is decoded. The bare consumer reads the same topic, tuned as ours is, and keeps nothing. A commit is a
V1, a V2 and the copy that is kept, in one transaction; the bare one is a transaction of three records of the same size.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from table import Row, at_least, at_most, show

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, SystemStreamPartition
from millpond.clock import SystemClock
from millpond.spi import Change, JobContext, VersionPolicy
from millpond_changelog.checkpoints.keys import GROUPER, Keys
from millpond_changelog.checkpoints.manager import KafkaCheckpoints
from millpond_changelog.checkpoints.records import commit_changes
from millpond_changelog.checkpoints.settings import KafkaCheckpointsSettings
from millpond_changelog.kafka.log import KafkaLog

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from services import kafka

TASKS = 50
VERSIONS = VersionPolicy(write=(1, 2))

numbers = itertools.count(1)


def manager(address: str, job: str) -> KafkaCheckpoints:
    """Make a manager as a new process would."""
    config = KafkaCheckpointsSettings(bootstrap_servers=(address,), replication_factor=1)
    context = JobContext(job, "1", None, lambda event: None, SystemClock(), None)  # type: ignore[arg-type]
    return KafkaCheckpoints(config, context, VERSIONS)


def checkpoint(number: int, claim: Claim) -> Checkpoint:
    """Make one of four inputs and four stores."""
    offsets = {SystemStreamPartition("kafka", "flights", partition): str(number) for partition in range(4)}
    markers = {"log": {f"store-{store}": "m" * 60 for store in range(4)}}
    return Checkpoint(CheckpointId(1_000 + number, 0), offsets, markers, claim=claim)


def history(commits: int) -> Iterator[Change]:
    """Give the records of so many commits of many tasks, three each."""
    for number in range(commits):
        task = f"Partition {number % TASKS}"
        yield from commit_changes(checkpoint(number, Claim(task, 1, "ab" * 16)), Keys(task, GROUPER), VERSIONS)


def fill(address: str, job: str, records: int) -> str:
    """Make the topic of *job*, with so many records; give its name."""
    made = manager(address, job)
    made.create_resources()
    log = KafkaLog([address])
    with log.writer(f"fill {job}").append() as append:
        append.add(made.topic, 0, history(records // 3))
        append.flush()
        append.commit()
    log.close()
    made.close()
    return made.topic


def start(address: str, job: str) -> float:
    """Give the seconds until a new manager has read a task's last checkpoint."""
    begun = time.perf_counter()
    made = manager(address, job)
    found = made.read_last("Partition 3")
    taken = time.perf_counter() - begun
    assert found is not None
    made.close()
    return taken


def consume(address: str, topic: str) -> float:
    """Give the seconds until a bare consumer has read the topic to its end."""
    begun = time.perf_counter()
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bare",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 4 << 20,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    while not any(message.error() for message in consumer.consume(1_000, 0.05)):
        pass
    taken = time.perf_counter() - begun
    consumer.close()
    return taken


def commits(address: str, count: int) -> float:
    """Give the milliseconds of a commit of ours."""
    made = manager(address, f"bench-{os.getpid()}-{next(numbers)}")
    made.create_resources()
    claim, after = made.claim("t"), None
    made.write(claim, checkpoint(0, claim), after=None)
    begun = time.perf_counter()
    for number in range(1, count + 1):
        after = CheckpointId(999 + number, 0)
        made.write(claim, checkpoint(number, claim), after=after)
    taken = time.perf_counter() - begun
    made.close()
    return taken / count * 1_000


def bare_commits(address: str, count: int) -> float:
    """Give the milliseconds of a bare transaction with the same records, sent and committed."""
    log = KafkaLog([address])
    topic = f"bare-{os.getpid()}-{next(numbers)}"
    log.create(topic, 1, {"cleanup.policy": "compact"})
    log.close()
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic, "linger.ms": 5})
    producer.init_transactions(60)
    records = commit_changes(checkpoint(0, Claim("t", 1, "ab" * 16)), Keys("t", GROUPER), VERSIONS)

    def commit() -> None:
        producer.begin_transaction()
        for key, value in records:
            producer.produce(topic, value, key, 0)
        producer.flush(60)
        producer.commit_transaction(60)

    commit()
    begun = time.perf_counter()
    for _ in range(count):
        commit()
    return (time.perf_counter() - begun) / count * 1_000


def claim_once(address: str, job: str) -> float:
    """Give the seconds of a claim, the topic being read already."""
    made = manager(address, job)
    made.read_last("Partition 3")
    begun = time.perf_counter()
    made.claim("Partition 3")
    taken = time.perf_counter() - begun
    made.close()
    return taken


def main() -> None:
    """Start a broker, measure, print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--records", type=int, default=100_000)
    words.add_argument("--commits", type=int, default=50)
    words.add_argument("--repetitions", type=int, default=3)
    words.add_argument("--directory", type=Path, default=None)
    given = words.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder, kafka.serve(Path(folder, "kafka")) as broker:
        job = f"bench-{os.getpid()}"
        topic = fill(broker.address, job, given.records)
        found: list[tuple[float, ...]] = [
            (
                start(broker.address, job),
                consume(broker.address, topic),
                commits(broker.address, given.commits),
                bare_commits(broker.address, given.commits),
                claim_once(broker.address, job),
            )
            for _ in range(given.repetitions)
        ]
    starts, consumed, ours, bare, claims = (list(column) for column in zip(*found, strict=True))
    name = f"start on a topic of {given.records:,} checkpoint records"
    rates = [given.records / taken for taken in starts], [given.records / taken for taken in consumed]
    rows = [
        Row(f"{name}, and read to its end", *rates, "1/s", "", at_least(0)),
        Row(name, starts, [], "s", "<= 3 s", at_most(3)),
        Row("claim a task (fencing, look, record)", claims, [], "s", "", at_most(0)),
        Row("commit a checkpoint, V1 and V2", ours, bare, "ms", "<= 1.5x", at_most(1.5)),
    ]
    show(rows)


if __name__ == "__main__":
    main()
