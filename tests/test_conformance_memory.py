"""What keeps its state in memory keeps its contract: backend, checkpoint manager, engine and object store."""

from __future__ import annotations

from pathlib import Path

from millpond.blob.memory import MemoryBlobStore
from millpond.checkpoints.memory import MemoryCheckpoints, MemoryCheckpointsConfig
from millpond.memory import MemoryBackend, MemoryBackendConfig
from millpond.spi import JobContext, StoreSpec, VersionPolicy
from millpond.stores.memory import MemoryEngine
from millpond.testing import BackendSuite, BlobSuite, CheckpointsSuite, EngineSuite, Profile, check_table

PAGE = Path(__file__).parents[1] / "docs" / "kit.md"
STORES: dict[Path, MemoryBlobStore] = {}


class TestMemoryBackend(BackendSuite):
    """Every case of the kit, on the memory backend."""

    name = "memory backend"

    def make(self, folder: Path) -> MemoryBackend:
        return MemoryBackend("main", MemoryBackendConfig())

    def test_its_table_is_fresh(self, tmp_path: Path):
        """The table in the docs is what this run found."""
        check_table(PAGE, self.report(tmp_path))

    def test_it_takes_ten_seconds_at_most(self, tmp_path: Path):
        """The kit tries the memory backend in ten seconds of work, also on a machine that does something else."""
        assert sum(result.duration_s for result in self.report(tmp_path).results) < 30


class TestMemoryCheckpoints(CheckpointsSuite):
    """Every case of the kit, on the memory manager."""

    name = "memory manager"

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> MemoryCheckpoints:
        return MemoryCheckpoints(MemoryCheckpointsConfig(), job, versions)

    def test_its_table_is_fresh(self, tmp_path: Path):
        """The table in the docs is what this run found."""
        check_table(PAGE, self.report(tmp_path))


class TestMemoryEngine(EngineSuite):
    """Every case of the kit, on the memory engine."""

    name = "memory engine"
    profile = Profile.of(MemoryEngine)

    def make(self, directory: Path, read_only: bool) -> MemoryEngine:
        return MemoryEngine.open(directory, StoreSpec("kit", "memory"), read_only=read_only)

    def test_its_table_is_fresh(self, tmp_path: Path):
        """The table in the docs is what this run found."""
        check_table(PAGE, self.report(tmp_path))


class TestMemoryBlobs(BlobSuite):
    """Every case of the kit, on the object store in memory."""

    name = "memory object store"
    shared = False

    def make(self, folder: Path) -> MemoryBlobStore:
        return STORES.setdefault(folder, MemoryBlobStore())
