"""The shared part of object stores keeps its contracts, over a folder; so does the object store in this process."""

from __future__ import annotations

from pathlib import Path

import blobs

from millpond.blob import BlobStore
from millpond.blob.memory import MemoryBlobStore
from millpond.spi import JobContext, VersionPolicy
from millpond.testing import BackendSuite, BlobSuite, CheckpointsSuite, FolderDoor

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

    name = "memory"
    shared = False

    def make(self, folder: Path) -> BlobStore:
        return STORES.setdefault(folder, MemoryBlobStore())
