"""The memory backend keeps its contract."""

from pathlib import Path

from millpond.checkpoints.memory import MemoryCheckpoints, MemoryCheckpointsConfig
from millpond.memory import MemoryBackend, MemoryBackendConfig
from millpond.spi import JobContext, StoreSpec, VersionPolicy
from millpond.stores.memory import MemoryEngine
from millpond.testing.kit.backend_suite import BackendSuite
from millpond.testing.kit.engine_suite import EngineSuite
from millpond.testing.kit.manager_suite import CheckpointsSuite


class TestMemoryBackend(BackendSuite):
    """Every case of the kit, on the memory backend."""

    def make(self, folder: Path) -> MemoryBackend:
        return MemoryBackend("main", MemoryBackendConfig())


class TestMemoryCheckpoints(CheckpointsSuite):
    """Every case of the kit, on the memory manager."""

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> MemoryCheckpoints:
        return MemoryCheckpoints(MemoryCheckpointsConfig(), job, versions)


class TestMemoryEngine(EngineSuite):
    """Every case of the kit, on the memory engine."""

    def make(self, directory: Path, read_only: bool) -> MemoryEngine:
        return MemoryEngine.open(directory, StoreSpec("kit", "memory"), read_only=read_only)
