"""Bad days of a real broker: it is down, it comes back, it refuses; and the checkpoint manager beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from services import kafka
from services.kafka_fixtures import OwnKafka, need_kafka

from millpond.checkpoint import Checkpoint, CheckpointId, SystemStreamPartition
from millpond.clock import SystemClock
from millpond.errors import ConfigError, FencedError, StateNotFoundError, TransientError
from millpond.spi import JobContext, Secret, VersionPolicy
from millpond_changelog.checkpoints.manager import KafkaCheckpoints
from millpond_changelog.checkpoints.settings import KafkaCheckpointsSettings
from millpond_changelog.kafka.log import KafkaLog

_numbers = count(1)
SSP = SystemStreamPartition("kafka", "dotted.input.topic", 0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    """A broker that this module's tests stop, kill and start again; it runs between them."""
    need_kafka()
    if os.environ.get(kafka.EXTERNAL):
        pytest.skip(f"these tests kill their broker, and {kafka.EXTERNAL} names one that is not ours")
    with kafka.serve(tmp_path_factory.mktemp("kafka-bad-days")) as made:
        yield made


@pytest.fixture
def running(broker: kafka.Broker) -> Iterator[kafka.Broker]:
    """The broker, running; and running again afterwards."""
    yield broker
    broker.thaw() if broker.is_running() else broker.restart()


def manager_of(address: str, job: str, **settings: object) -> KafkaCheckpoints:
    """Make a manager with short deadlines."""
    context = JobContext(job, "1", None, lambda event: None, SystemClock(), None)  # type: ignore[arg-type]
    told = {**options("admin", ""), "sasl.password": "admin-pw"}
    admin = AdminClient({"bootstrap.servers": address, **told})
    where = (Kind[kind], name, ResourcePatternType.LITERAL, "User:weak", "*")
    binding = AclBinding(*where, AclOperation[operation], AclPermissionType.ALLOW)
    for answer in admin.create_acls([binding]).values():
        answer.result(20)
