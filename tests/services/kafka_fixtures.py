"""
A Kafka broker for tests, as pytest fixtures: import the names into a ``conftest.py``.

    from services.kafka_fixtures import kafka_address, own_kafka
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from services import kafka

OwnKafka = Callable[..., kafka.Broker]


def need_kafka() -> None:
    """Skip, or where MILLPOND_INSIST is set fail, a test whose broker cannot be started."""
    if (reason := kafka.missing()) is not None:
        (pytest.fail if os.environ.get("MILLPOND_INSIST") else pytest.skip)(reason)


@pytest.fixture(scope="session")
def kafka_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """
    The address of a broker that the whole session shares, started when it is first asked for.

    Topics, groups and transactional ids need names that no other test has; MILLPOND_TEST_KAFKA may name a broker
    that has been running for long.
    """
    need_kafka()
    if external := os.environ.get(kafka.EXTERNAL):
        yield external
        return
    with kafka.serve(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker.address


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[OwnKafka]:
    """Make brokers for this test alone, which it may kill: ``own_kafka()``, or ``own_kafka({"setting": "value"})``."""
    if (reason := kafka.missing()) is not None or os.environ.get(kafka.EXTERNAL):
        pytest.skip(reason or f"this test kills its broker, and {kafka.EXTERNAL} names one that is not ours")
    numbers = count(1)
    with ExitStack() as stack:

        def make(settings: Mapping[str, object] = {}) -> kafka.Broker:
            return stack.enter_context(kafka.serve(tmp_path / f"kafka-{next(numbers)}", settings))

        yield make
