"""The checkpoint manager keeps its contract, on a real server."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millpond.spi import JobContext, VersionPolicy
from millpond.testing import check_table
from millpond.testing.kit.door import SideDoor
from millpond.testing.kit.manager_suite import CheckpointsSuite
from millpond_zookeeper import ZooKeeperCheckpoints, ZooKeeperCheckpointsConfig
from millpond_zookeeper.connection import Connection

README = Path(__file__).parents[1] / "README.md"
_ADDRESS = "MILLPOND_TESTS_ZOOKEEPER_ADDRESS"


@pytest.fixture(autouse=True)
def _server_for_children(hosts: str) -> None:
    """Tell the address by the environment, where a child process of a case finds it too."""
    os.environ[_ADDRESS] = hosts


def config(folder: Path, **more: Any) -> ZooKeeperCheckpointsConfig:
    """Give settings for a part of the tree that *folder* names."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:24]
    timeout = timedelta(seconds=20)
    return ZooKeeperCheckpointsConfig(hosts=os.environ[_ADDRESS], root=f"/kit/{name}", timeout=timeout, **more)


class TreeDoor(SideDoor):
    """The nodes that hold something, or could, below a folder's root; a session for each look, so none stays open."""

    def __init__(self, settings: ZooKeeperCheckpointsConfig) -> None:
        self._settings = settings

    def names(self) -> Sequence[str]:
        connection = Connection(self._settings)
        try:
            return sorted(self._below(connection, self._settings.root))
        finally:
            connection.close()

    def _below(self, connection: Connection, path: str) -> list[str]:
        children = connection.children(path, "look")
        found = [path] if connection.get(path, "look")[0] or not children else []
        return [*found, *(name for child in children for name in self._below(connection, f"{path}/{child}"))]

    def read(self, name: str) -> bytes:
        connection = Connection(self._settings)
        try:
            return connection.get(name, "look")[0]
        finally:
            connection.close()

    def write(self, name: str, data: bytes) -> None:
        self._change(lambda client: client.set_async(name, data))

    def delete(self, name: str) -> None:
        self._change(lambda client: client.delete_async(name))

    def _change(self, send: Any) -> None:
        connection = Connection(self._settings)
        try:
            connection.change(send, "damage")
        finally:
            connection.close()


class TestZooKeeperCheckpoints(CheckpointsSuite):
    """Every case of the kit, on the manager."""

    name = "zookeeper"

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> ZooKeeperCheckpoints:
        return ZooKeeperCheckpoints(config(folder), job, versions)

    def side_door(self, folder: Path) -> TreeDoor:
        return TreeDoor(config(folder))

    def test_its_table_is_fresh(self, tmp_path: Path):
        """The table in the README is what this run found."""
        check_table(README, self.report(tmp_path))


class TestLargeInParts(CheckpointsSuite):
    """The same where each record is larger than a node may be, and lies in parts."""

    name = "zookeeper, large in parts"

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> ZooKeeperCheckpoints:
        return ZooKeeperCheckpoints(config(folder, max_node=512), job, versions)

    def side_door(self, folder: Path) -> TreeDoor:
        return TreeDoor(config(folder))


if "MILLPOND_ZOOKEEPER_KILLS" not in os.environ:  # the long run has all cases; the short one those about large records
    for each in dir(TestLargeInParts):
        if each.startswith("test_") and not each.startswith(("test_damage", "test_delete", "test_pins", "test_write")):
            setattr(TestLargeInParts, each, None)
