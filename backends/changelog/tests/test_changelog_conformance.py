"""The changelog backend keeps its contract, on the embedded log and in Kafka."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from millpond.spi import Size
from millpond.testing.kit.backend_suite import BackendSuite
from millpond.testing.kit.bench import Profile
from millpond.testing.kit.door import FolderDoor, SideDoor
from millpond.testing.kit.tables import check_table
from millpond_changelog.backend import ChangelogBackend
from millpond_changelog.settings import ChangelogSettings

README = Path(__file__).parents[1] / "README.md"
ADDRESS = "MILLPOND_TESTS_CHANGELOG_KAFKA"


class TestEmbeddedChangelog(BackendSuite):
    """Every case of the kit; nothing waits for compaction, which the backend bounds by what is published."""

    name = "changelog, embedded log"

    def make(self, folder: Path) -> ChangelogBackend:
        settings = ChangelogSettings(
            directory=folder,
            max_message_bytes=Size(8 << 20),
            min_compaction_lag=timedelta(0),
            segment_bytes=Size(1 << 20),
        )
        return ChangelogBackend("main", settings)

    def side_door(self, folder: Path) -> SideDoor:
        return FolderDoor(folder)

    def test_its_table_is_fresh(self, tmp_path: Path) -> None:
        """The README says what the kit finds."""
        check_table(README, self.report(tmp_path))


class TestKafkaChangelog(BackendSuite):
    """Every case of the kit that needs no way under the broker's feet."""

    name = "changelog, Kafka"
    profile = Profile(large_value=2 << 20)

    @pytest.fixture(autouse=True)
    def _address_for_children(self, kafka_address: str) -> None:
        """Tell the address by the environment, where a child process of a case finds it too."""
        os.environ[ADDRESS] = kafka_address

    def make(self, folder: Path) -> ChangelogBackend:
        settings = ChangelogSettings(
            bootstrap_servers=(os.environ[ADDRESS],),
            replication_factor=1,
            max_message_bytes=Size(4 << 20),
            timeout=timedelta(seconds=30),
        )
        return ChangelogBackend("main", settings)

    @pytest.mark.timeout(900)  # seconds, where the cases have not been tried by their own tests before
    def test_its_table_is_fresh(self, tmp_path: Path) -> None:
        """The README says what the kit finds."""
        check_table(README, self.report(tmp_path))
