"""After any history of commits, failures and owners on a real broker, a restore at the marker is what was committed."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from test_changelog_histories import STORES, Histories

from millpond_changelog.settings import ChangelogSettings
from millpond_changelog.topics import topic_name

pytest.importorskip("confluent_kafka")


class KafkaHistories(Histories):
    """The same, each history on topics of its own; when compaction comes is the broker's business."""

    compact = None

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__()

    def settings(self) -> ChangelogSettings:
        """Say which log."""
        return ChangelogSettings(bootstrap_servers=self.address, replication_factor=1, partitions=1)

    def teardown(self) -> None:
        """Remove the topics, too: brokers keep them."""
        for store in STORES:
            self.log.delete(topic_name(self.bench.job, "1", store))
        super().teardown()


@pytest.mark.timeout(3600)
def test_a_restore_from_kafka_is_what_was_committed(kafka_address: str) -> None:
    """Whatever came before it: uploads in vain and in part, owners that were replaced, and woke, and were refused."""
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: KafkaHistories(kafka_address),
        settings=settings(
            max_examples=int(os.environ.get("MILLPOND_HISTORIES", "3")),
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # To shrink a failure on a broker takes too long: the steps are printed as they were found.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            print_blob=True,
        ),
    )
