"""rocksdb-local and the RocksDB engine keep their contracts."""

from pathlib import Path

from millpond.spi import StoreSpec
from millpond.testing.kit.backend_suite import BackendSuite
from millpond.testing.kit.door import FolderDoor
from millpond.testing.kit.engine_suite import EngineSuite
from millpond_rocksdb.engine import RocksDBEngine
from millpond_rocksdb.local import RocksDBLocal, RocksDBLocalConfig


class TestRocksDBLocal(BackendSuite):
    """Every case of the kit, on rocksdb-local with a path."""

    def make(self, folder: Path) -> RocksDBLocal:
        return RocksDBLocal("main", RocksDBLocalConfig(path=folder / "images"))

    def side_door(self, folder: Path) -> FolderDoor:
        return FolderDoor(folder / "images")


class TestRocksDBEngine(EngineSuite):
    """Every case of the kit, on the RocksDB engine."""

    def make(self, directory: Path, read_only: bool) -> RocksDBEngine:
        return RocksDBEngine.open(directory, StoreSpec("kit", "rocksdb"), read_only=read_only)
