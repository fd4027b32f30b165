"""The directory checkpoint manager keeps its contract."""

from __future__ import annotations

from pathlib import Path

from millpond.checkpoints.directory import DirectoryCheckpoints, DirectoryCheckpointsConfig
from millpond.spi import JobContext, VersionPolicy
from millpond.testing import CheckpointsSuite, FolderDoor, check_table

PAGE = Path(__file__).parents[1] / "docs" / "kit.md"


class TestDirectoryCheckpoints(CheckpointsSuite):
    """Every case of the kit, on the directory manager."""

    name = "directory manager"

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> DirectoryCheckpoints:
        return DirectoryCheckpoints(DirectoryCheckpointsConfig(folder), job, versions)

    def side_door(self, folder: Path) -> FolderDoor:
        return FolderDoor(folder)

    def test_its_table_is_fresh(self, tmp_path: Path):
        """The table in the docs is what this run found."""
        check_table(PAGE, self.report(tmp_path))
