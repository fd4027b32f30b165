"""The store, the backend and the checkpoint manager keep their contracts, on each file system."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any, ClassVar

import pytest
from fsspec.asyn import get_loop, sync
from services.file_system_server import FileSystemServer

from millpond.blob import BlobStore, BytesBody
from millpond.spi import JobContext, VersionPolicy
from millpond.testing.kit.backend_suite import BackendSuite
from millpond.testing.kit.blob_suite import BlobSuite
from millpond.testing.kit.door import FolderDoor, SideDoor
from millpond.testing.kit.manager_suite import CheckpointsSuite
from millpond.testing.kit.tables import check_table
from millpond_fsspec import FsspecBackend, FsspecBackendConfig, FsspecCheckpoints, FsspecCheckpointsConfig
from millpond_fsspec.opening import open_store

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture(scope="session", autouse=True)
def _threads_of_fsspec() -> None:
    """Start fsspec's own loop and its helpers, which all its users share for as long as the process lives."""
    helpers = min(32, (os.cpu_count() or 1) + 4)
    start = Barrier(helpers)

    async def fill() -> None:
        await asyncio.gather(*(asyncio.to_thread(start.wait, 30) for _ in range(helpers)))

    sync(get_loop(), fill)


@pytest.fixture(autouse=True)
def _server_for_children(request: pytest.FixtureRequest, serve: Callable[[str], FileSystemServer]) -> None:
    """Tell the address by the environment, where a child process of a case finds it too."""
    name = request.cls.place
    if name not in ("file", "memory"):
        server = serve(name)
        os.environ[_variable(name)] = json.dumps({"url": server.url, "options": dict(server.options)})


def _variable(name: str) -> str:
    return f"MILLPOND_TESTS_{name.upper()}"


class Placed:
    """Makes settings for a place of its own in one file system, out of a folder's name."""

    place: ClassVar[str]

    def settings(self, folder: Path) -> dict[str, Any]:
        if self.place == "file":
            return {"url": f"file://{folder}/objects"}
        prefix = hashlib.sha256(str(folder).encode()).hexdigest()[:24]
        if self.place == "memory":
            return {"url": f"memory://{prefix}"}
        return {**json.loads(os.environ[_variable(self.place)]), "prefix": prefix}

    def side_door(self, folder: Path) -> SideDoor:
        if self.place == "file":
            return FolderDoor(folder / "objects")
        return StoreDoor(self.settings(folder))


class StoreDoor(SideDoor):
    """The objects below a place, by another instance of the store for each look, so that none is left open."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    def names(self) -> Sequence[str]:
        with closing(opened(self._settings)) as store:
            return [entry.key for entry in store.list("")]

    def read(self, name: str) -> bytes:
        with closing(opened(self._settings)) as store:
            return store.get(name)

    def write(self, name: str, data: bytes) -> None:
        with closing(opened(self._settings)) as store:
            store.put(name, BytesBody(data))

    def delete(self, name: str) -> None:
        with closing(opened(self._settings)) as store:
            store.delete([name])


def opened(settings: dict[str, Any]) -> BlobStore:
    """Open the store that *settings* name."""
    return open_store(settings["url"], settings.get("options"), prefix=settings.get("prefix", ""), timeout_s=60)


class StoreCases(Placed, BlobSuite):
    """Every case of the kit, on the store."""

    __test__ = False

    def make(self, folder: Path) -> BlobStore:
        return opened(self.settings(folder))


class BackendCases(Placed, BackendSuite):
    """Every case of the kit, on the backend."""

    __test__ = False

    def make(self, folder: Path) -> FsspecBackend:
        return FsspecBackend("main", FsspecBackendConfig(**self.settings(folder)))


class CheckpointsCases(Placed, CheckpointsSuite):
    """Every case of the kit, on the checkpoint manager."""

    __test__ = False

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> FsspecCheckpoints:
        return FsspecCheckpoints(FsspecCheckpointsConfig(**self.settings(folder)), job, versions)


class TestFileStore(StoreCases):
    __test__ = True
    place = "file"
    name = "fsspec store, file:"

    def test_its_table_is_fresh(self, tmp_path: Path) -> None:
        """The README says what the kit finds."""
        check_table(README, self.report(tmp_path))


class TestMemoryStore(StoreCases):
    __test__ = True
    place = "memory"
    shared = False


class TestHdfsStore(StoreCases):
    __test__ = True
    place = "hdfs"


class TestGcsStore(StoreCases):
    __test__ = True
    place = "gcs"


class TestAzureStore(StoreCases):
    __test__ = True
    place = "azure"


class TestSftpStore(StoreCases):
    __test__ = True
    place = "sftp"
    test_put_one_winner_of_processes = None  # SFTP has none, and says so: see test_fsspec_stores.py


class TestFileBackend(BackendCases):
    __test__ = True
    place = "file"
    name = "fsspec backend, file:"

    def test_its_table_is_fresh(self, tmp_path: Path) -> None:
        """The README says what the kit finds."""
        check_table(README, self.report(tmp_path))


class TestMemoryBackend(BackendCases):
    __test__ = True
    place = "memory"


class TestHdfsBackend(BackendCases):
    __test__ = True
    place = "hdfs"


class TestGcsBackend(BackendCases):
    __test__ = True
    place = "gcs"


class TestAzureBackend(BackendCases):
    __test__ = True
    place = "azure"


class TestSftpBackend(BackendCases):
    __test__ = True
    place = "sftp"


class TestFileCheckpoints(CheckpointsCases):
    __test__ = True
    place = "file"
    name = "fsspec checkpoints, file:"

    def test_its_table_is_fresh(self, tmp_path: Path) -> None:
        """The README says what the kit finds."""
        check_table(README, self.report(tmp_path))


class TestMemoryCheckpoints(CheckpointsCases):
    __test__ = True
    place = "memory"


class TestHdfsCheckpoints(CheckpointsCases):
    __test__ = True
    place = "hdfs"


class TestGcsCheckpoints(CheckpointsCases):
    __test__ = True
    place = "gcs"


class TestAzureCheckpoints(CheckpointsCases):
    __test__ = True
    place = "azure"
