"""The embedded log keeps the contract of a log."""

from __future__ import annotations

from pathlib import Path

from millpond.log import Log
from millpond.testing.kit.door import FolderDoor, SideDoor
from millpond.testing.kit.log_suite import LogSuite
from millpond.testing.kit.tables import check_table
from millpond_changelog.embedded.compaction import Rules, compact
from millpond_changelog.embedded.log import EmbeddedLog

README = Path(__file__).parents[1] / "README.md"


class TestEmbeddedLog(LogSuite):
    """Every case of the kit."""

    name = "embedded log"

    def make(self, folder: Path) -> EmbeddedLog:
        return EmbeddedLog(folder, timeout_s=20.0)

    def side_door(self, folder: Path) -> SideDoor:
        return FolderDoor(folder, lambda name: "topics/" in name)

    def test_its_table_is_fresh(self, tmp_path: Path) -> None:
        """The README says what the kit finds."""
        check_table(README, self.report(tmp_path))

    def compact(self, log: Log, topic: str, partition: int) -> None:
        assert isinstance(log, EmbeddedLog)
        place = log.partition(topic, partition)
        end = log.extent(topic, partition).end
        compact(place, Rules(0, 86_400_000, 1 << 20, end, worth=0), log.clock.millis(), lambda: None)

    def cut(self, log: Log, topic: str, partition: int, before: int) -> None:
        assert isinstance(log, EmbeddedLog)
        log.trim(topic, partition, before)
