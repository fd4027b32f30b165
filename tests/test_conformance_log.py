"""The log in this process keeps the contract of logs; so the kit's mutants of it are wrong in one way each."""

from __future__ import annotations

from pathlib import Path

from millpond.log import Log
from millpond.testing import LogSuite, check_table
from millpond.testing.memory_log import MemoryLog, MemoryPlace

PLACES: dict[Path, MemoryPlace] = {}
PAGE = Path(__file__).parents[1] / "docs" / "kit.md"


class TestMemoryLog(LogSuite):
    """Every case of the kit, on the log in this process."""

    name = "memory log"
    shared = False

    def make(self, folder: Path) -> MemoryLog:
        return MemoryLog(PLACES.setdefault(folder, MemoryPlace()))

    def compact(self, log: Log, topic: str, partition: int) -> None:
        assert isinstance(log, MemoryLog)
        log.place.topics[topic].partitions[partition].compact()

    def cut(self, log: Log, topic: str, partition: int, before: int) -> None:
        assert isinstance(log, MemoryLog)
        log.place.topics[topic].partitions[partition].cut(before)

    def test_its_table_is_fresh(self, tmp_path: Path):
        """docs/kit.md holds what a fresh run finds."""
        check_table(PAGE, self.report(tmp_path))
