"""The directory checkpoint manager keeps its contract."""

from pathlib import Path

from millpond.checkpoints.directory import DirectoryCheckpoints, DirectoryCheckpointsConfig
from millpond.spi import JobContext, VersionPolicy
from millpond.testing.kit.door import FolderDoor
from millpond.testing.kit.manager_suite import CheckpointsSuite


class TestDirectoryCheckpoints(CheckpointsSuite):
    """Every case of the kit, on the directory manager."""

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> DirectoryCheckpoints:
        return DirectoryCheckpoints(DirectoryCheckpointsConfig(folder), job, versions)

    def side_door(self, folder: Path) -> FolderDoor:
        return FolderDoor(folder)
