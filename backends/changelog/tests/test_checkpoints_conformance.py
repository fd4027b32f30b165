"""The checkpoint manager keeps its contract over each log."""

from __future__ import annotations

import os

import pytest
from checkpoint_suites import ADDRESS, EmbeddedCheckpointsSuite, KafkaCheckpointsSuite


@pytest.fixture
def _broker_for_children(kafka_address: str) -> None:
    """Tell the address by the environment, where a child process of a case finds it too."""
    os.environ[ADDRESS] = kafka_address


class TestOverTheEmbeddedLog(EmbeddedCheckpointsSuite):
    """Over a log in a folder."""


@pytest.mark.usefixtures("_broker_for_children")
class TestOverKafka(KafkaCheckpointsSuite):
    """Over a real broker."""
