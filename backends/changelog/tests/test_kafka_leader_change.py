"""Three brokers, of which the one that leads is killed in the middle of a commit, and during a restore."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import pytest
from services import kafka, kafka_cluster
from services.kafka_cluster import Cluster
from services.kafka_fixtures import need_kafka

import millpond
from millpond import points
from millpond.errors import CommitError

pytest.importorskip("rocksdict")
pytest.importorskip("confluent_kafka")

TASK = "Partition 0"
TRANSACTIONS = "__transaction_state"
TOPIC = "flights--1--s--changelog"
RECORDS = 2_000
TIMEOUT_S = 30
KILLS = (("changelog.sent", TOPIC), ("commit.before-upload", TOPIC), ("changelog.sent", TRANSACTIONS))
"""At which step the broker is killed that leads which topic."""

COUNT = int(os.environ.get("MILLPOND_LEADER_KILLS", "1"))
"""How many kills; the nightly size is 9."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers that this module's tests kill."""
    need_kafka()
    if os.environ.get(kafka.EXTERNAL):
        pytest.skip(f"these tests kill brokers, and {kafka.EXTERNAL} names one that is not ours")
    with kafka_cluster.serve(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def open_job(cluster: Cluster, folder: Path, disk: str) -> millpond.Job:
    """Open a job with one store in Kafka; *disk* names its local disk."""
    log = {"type": "changelog", "bootstrap_servers": [cluster.address], "replication_factor": 3}
    return millpond.open_job(
        {
            "job": {"name": "flights", "state_dir": str(folder / disk), "tasks": [TASK]},
            "checkpoint": {"manager": "directory", "path": str(folder / "records")},
            "backends": {"log": {**log, "timeout": f"{TIMEOUT_S}s"}},
            "stores": {"s": {"engine": "rocksdb", "key": "str", "value": "str"}},
        }
    )


@contextmanager
def once_at(step: str, do: Callable[[], object]) -> Iterator[None]:
    """Call *do* at the first time that *step* is reached."""
    waiting = [do]

    def look(name: str) -> None:
        if name == step and waiting:
            waiting.pop()()

    points.arm(look)
    try:
        yield
        assert not waiting, f"{step} was not reached"
    finally:
        points.arm(None)


def commit_with(task: millpond.Task, generation: int) -> None:
    """Write every key anew and commit, once more if that failed."""
    for number in range(RECORDS):
        task.store("s")[f"{number:06}"] = f"{generation} of {number}"
    try:
        task.commit_now(60)
    except CommitError:
        task.commit_now(60)


@pytest.mark.timeout(60 + 60 * COUNT)
def test_a_leader_that_is_killed_in_mid_commit_costs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """
    Whether records are all there but for the transaction's end or are about to be sent, and whether the broker leads
    the records or the transactions: the same task commits, no question to the dead broker is waited for until it times
    out, and a restore with that broker gone has every record.
    """
    kills = list(islice(cycle(KILLS), COUNT))
    with open_job(cluster, tmp_path, "disk") as job, job.open_task(TASK, timeout_s=60) as task:
        commit_with(task, 0)
        for generation, (step, led) in enumerate(kills, start=1):
            cluster.await_whole(TOPIC)
            victim = cluster.leader(led)
            begun = time.monotonic()
            with once_at(step, victim.kill):
                commit_with(task, generation)
            assert time.monotonic() - begun < TIMEOUT_S
            if generation < len(kills):
                victim.restart()

    with open_job(cluster, tmp_path, "another disk") as job, job.open_task(TASK, timeout_s=60) as task:
        found = dict(task.store("s").scan())
    assert {f"{number:06}": f"{len(kills)} of {number}" for number in range(RECORDS)} == found
