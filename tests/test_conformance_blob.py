"""The shared part of object stores keeps its contracts, over a folder; so do the two stores that the core brings."""

from __future__ import annotations

from pathlib import Path

import blobs

from millpond.blob import BlobStore
from millpond.blob.memory import MemoryBlobStore
from millpond.heron.folder import FolderStore
from millpond.spi import JobContext, VersionPolicy
from millpond.testing import BackendSuite, BlobSuite, CheckpointsSuite, FolderDoor, check_table

PAGE = Path(__file__).parents[1] / "docs" / "kit.md"

STORES: dict[Path, MemoryBlobStore] = {}


class TestBlobBackend(BackendSuite):
    """Every case of the kit, on the backend."""

    name = "object stores, shared part"

    def make(self, folder: Path) -> blobs.Backend:
        return blobs.Backend("main", blobs.BucketSettings(bucket=str(folder)))

    def side_door(self, folder: Path) -> FolderDoor:
        return FolderDoor(folder)


class TestBlobCheckpoints(CheckpointsSuite):
    """Every case of the kit, on the checkpoint manager."""

    name = "object stores, records"

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> blobs.Checkpoints:
        return blobs.Checkpoints(blobs.RecordSettings(bucket=str(folder)), job, versions)

    def side_door(self, folder: Path) -> FolderDoor:
        return FolderDoor(folder)


class TestMemoryBlobStore(BlobSuite):
    """Every case of the kit, on the store in this process."""

    name = "memory store"
    shared = False

    def make(self, folder: Path) -> BlobStore:
        return STORES.setdefault(folder, MemoryBlobStore())

    def test_its_table_is_fresh(self, tmp_path: Path) -> None:
        """The table in the docs is what this run found."""
        check_table(PAGE, self.report(tmp_path))


class TestHeronFolder(BlobSuite):
    """Every case of the kit, on the folder in Heron's layout."""

    name = "Heron's folder"

    def make(self, folder: Path) -> BlobStore:
        return FolderStore(folder)

    def test_its_table_is_fresh(self, tmp_path: Path) -> None:
        """The table in the docs is what this run found."""
        check_table(PAGE, self.report(tmp_path))
