"""The checkpoint manager keeps its contract over each log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from checkpoint_suites import ADDRESS, EmbeddedCheckpointsSuite, KafkaCheckpointsSuite

from millpond.testing.kit.tables import check_table

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def _broker_for_children(kafka_address: str) -> None:
    """Tell the address by the environment, where a child process of a case finds it too."""
    os.environ[ADDRESS] = kafka_address


class TestOverTheEmbeddedLog(EmbeddedCheckpointsSuite):
    """Over a log in a folder."""

    @pytest.mark.timeout(900)  # seconds, where the cases have not been tried by their own tests before
    def test_its_table_is_fresh(self, tmp_path: Path) -> None:
        """The README says what the kit finds."""
        check_table(README, self.report(tmp_path))


@pytest.mark.usefixtures("_broker_for_children")
class TestOverKafka(KafkaCheckpointsSuite):
    """Over a real broker."""

    @pytest.mark.timeout(900)  # seconds, where the cases have not been tried by their own tests before
    def test_its_table_is_fresh(self, tmp_path: Path) -> None:
        """The README says what the kit finds."""
        check_table(README, self.report(tmp_path))
