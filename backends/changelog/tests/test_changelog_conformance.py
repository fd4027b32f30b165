"""The changelog backend keeps its contract, on the embedded log."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from millpond.spi import Size
from millpond.testing.kit.backend_suite import BackendSuite
from millpond.testing.kit.door import FolderDoor, SideDoor
from millpond_changelog.backend import ChangelogBackend
from millpond_changelog.settings import ChangelogSettings


class TestEmbeddedChangelog(BackendSuite):
    """Every case of the kit; nothing waits for compaction, which the backend bounds by what is published."""

    name = "changelog, embedded log"

    def make(self, folder: Path) -> ChangelogBackend:
        settings = ChangelogSettings(
            directory=folder, max_message_bytes=Size(8 << 20), min_compaction_lag=timedelta(0), segment_bytes=Size(1 << 20)
        )
        return ChangelogBackend("main", settings)

    def side_door(self, folder: Path) -> SideDoor:
        return FolderDoor(folder)
