"""rocksdb-local and the RocksDB engine keep their contracts."""

from __future__ import annotations

from pathlib import Path

from millpond.spi import StoreSpec
from millpond.testing import BackendSuite, EngineSuite, FolderDoor, Profile, check_table
from millpond_rocksdb.engine import RocksDBEngine
from millpond_rocksdb.local import RocksDBLocal, RocksDBLocalConfig

PAGE = Path(__file__).parents[1] / "README.md"


class TestRocksDBLocal(BackendSuite):
    """Every case of the kit, on rocksdb-local with a path."""

    name = "rocksdb-local"

    def make(self, folder: Path) -> RocksDBLocal:
        return RocksDBLocal("main", RocksDBLocalConfig(path=folder / "images"))

    def side_door(self, folder: Path) -> FolderDoor:
        return FolderDoor(folder / "images")

    def test_its_table_is_fresh(self, tmp_path: Path):
        """The table in the README is what this run found."""
        check_table(PAGE, self.report(tmp_path))


class TestRocksDBEngine(EngineSuite):
    """Every case of the kit, on the RocksDB engine."""

    name = "rocksdb"
    profile = Profile.of(RocksDBEngine)

    def make(self, directory: Path, read_only: bool) -> RocksDBEngine:
        return RocksDBEngine.open(directory, StoreSpec("kit", "rocksdb"), read_only=read_only)

    def test_its_table_is_fresh(self, tmp_path: Path):
        """The table in the README is what this run found."""
        check_table(PAGE, self.report(tmp_path))
