"""The crash lab on servers: some seeds each on S3, Kafka and ZooKeeper, and that it finds there what is broken."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_runs import PROGRAMS, lab, program, slow
from services import zookeeper
from services.go_tools import VERSITYGW

sys.path.append(str(PROGRAMS))
import crash_kafka
import crash_zookeeper


def need(reason: str | None) -> None:
    """Skip for *reason*, or fail where nothing may be skipped."""
    if reason is not None:
        (pytest.fail if os.environ.get("MILLPOND_INSIST") else pytest.skip)(reason)


@pytest.fixture
def on_kafka(tmp_path: Path, kafka_address: str) -> list[str]:
    """The lab's arguments for trials on the broker that all tests share."""
    template = tmp_path / "kafka.toml"
    template.write_text(crash_kafka.TEMPLATE.replace("ADDRESS", kafka_address), "utf-8")
    return ["--backend", "kafka", "--config-template", str(template), "--json"]


@pytest.fixture(scope="module")
def on_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The lab's arguments for trials on a server of this module."""
    need(zookeeper.missing())
    template = tmp_path_factory.mktemp("lab") / "zookeeper.toml"
    with zookeeper.serve(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        template.write_text(crash_zookeeper.TEMPLATE.replace("HOSTS", ensemble.hosts), "utf-8")
        yield ["--backend", "zookeeper", "--config-template", str(template), "--json"]


# At CI size


@slow
def test_a_few_trials_on_a_bucket_lose_and_leave_nothing() -> None:
    """On S3 jobs die and go on exactly too; the nightly size is ``tests/programs/crash_s3.py``."""
    pytest.importorskip("millpond_s3")
    need(None if VERSITYGW.find() else VERSITYGW.missing())
    found = program("crash_s3.py", "--seeds", "24-28", "--json")  # the points of object stores

    assert (4, []) == (found["runs"], found["failed"])
    assert all(found["deaths"][point] for point in ("blob.objects-sent", "blob.pack-sent", "blob.before-removal"))


@slow
def test_a_bit_flipped_in_a_bucket_never_gives_another_state() -> None:
    """One bit turned in an object on a server, or in a local image beside it, is an error, or another copy is taken."""
    pytest.importorskip("millpond_s3")
    need(None if VERSITYGW.find() else VERSITYGW.missing())
    found = program("crash_s3.py", "--module", "flips", "--flips", "12")

    assert [] == found["told"]
    assert 12 == found["error"] + found["fell back"]
    assert {"bucket/…/main"} >= set(found["not read in"])  # packs, as in files


@slow
def test_a_few_trials_on_kafka_lose_and_leave_nothing(on_kafka: list[str]) -> None:
    """A job whose changes and checkpoints lie in Kafka dies at each of their steps, and goes on exactly."""
    found = lab(*on_kafka, "--seeds", "21-29")

    assert (8, []) == (found["runs"], found["failed"])
    points = [point for point in found["deaths"] if point.startswith(("checkpoints.", "changelog."))]
    assert 8 == len(points) and all(found["deaths"][point] for point in points)


@slow
def test_a_few_trials_on_zookeeper_lose_and_leave_nothing(on_zookeeper: list[str]) -> None:
    """A job whose checkpoints lie in ZooKeeper dies at each step there, and goes on exactly."""
    found = lab(*on_zookeeper, "--seeds", "21-24")

    assert (3, []) == (found["runs"], found["failed"])
    assert all(found["deaths"][f"records.{step}"] for step in ("before-claim", "claimed", "before-removal"))


# That it finds what is broken

DOES_NOT_UNDO = """
from millpond_changelog import backup
backup.undone = lambda snapshot, store, changes, undo: changes
"""
DOES_NOT_FENCE = """
import os
from millpond_changelog import backup
whole = backup.owner_of
backup.owner_of = lambda task: f"{whole(task)}/{os.getpid()}"
"""
SWEEPS_NOTHING = """
from millpond_zookeeper.ledger import TaskLedger
TaskLedger._sweep = lambda self, seen: None
"""


@slow
def test_a_log_that_is_wrong_for_plain_readers_is_found() -> None:
    """A new owner that leaves what a dead one wrote behind the marker fails, though a restore by markers is exact."""
    found = lab("--backend", "changelog", "--seeds", "28", "--json", patch=DOES_NOT_UNDO, code=1)

    assert found["resurrected"] + found["half"] > 0


@slow
def test_a_transaction_that_nobody_ends_is_found(on_kafka: list[str]) -> None:
    """Where a new owner does not end what its dead predecessor had open, nothing behind it can be read."""
    found = lab(*on_kafka, "--seeds", "27", patch=DOES_NOT_FENCE, code=1)

    assert any("open transaction" in each["told"] for each in found["failed"])


@slow
def test_what_nobody_sweeps_in_zookeeper_is_found(on_zookeeper: list[str]) -> None:
    """Claims of earlier owners that stay are orphans."""
    found = lab(*on_zookeeper, "--seeds", "22", patch=SWEEPS_NOTHING, code=1)

    assert found["orphans"] > 0
