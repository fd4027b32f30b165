"""The kit's suite of object stores, on the store in memory and on one in a folder."""

from __future__ import annotations

from pathlib import Path

from millpond.blob.memory import MemoryBlobStore
from millpond.testing import BlobSuite

STORES: dict[Path, MemoryBlobStore] = {}


class TestMemoryBlobs(BlobSuite):
    """Every case of the kit, on the store in memory."""

    shared = False

    def make(self, folder: Path) -> MemoryBlobStore:
        return STORES.setdefault(folder, MemoryBlobStore())
