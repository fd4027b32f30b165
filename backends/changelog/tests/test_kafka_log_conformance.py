"""The log in Kafka keeps the contract of a log, against a real broker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from checkpoint_suites import ADDRESS

pytest.importorskip("confluent_kafka")

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from millpond.log import Log
from millpond.testing.kit.log_suite import LogSuite
from millpond.testing.kit.tables import check_table
from millpond_changelog.kafka.log import KafkaLog

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture(scope="session")
def _broker_for_children(kafka_address: str) -> None:
    """Tell the address by the environment, where a child process of a case finds it too."""
    os.environ[ADDRESS] = kafka_address


@pytest.mark.usefixtures("_broker_for_children")
class TestKafkaLog(LogSuite):
    """Every case of the kit, but for compaction, which brokers do in their own time."""

    name = "Kafka log"

    @pytest.mark.timeout(900)  # seconds, where the cases have not been tried by their own tests before
    def test_its_table_is_fresh(self, tmp_path: Path) -> None:
        """The README says what the kit finds."""
        check_table(README, self.report(tmp_path))

    def make(self, folder: Path) -> KafkaLog:
        return KafkaLog([os.environ[ADDRESS]], timeout_s=20)

    def cut(self, log: Log, topic: str, partition: int, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": os.environ[ADDRESS]})
        entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(20)
        for cut in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            cut.result(20)
