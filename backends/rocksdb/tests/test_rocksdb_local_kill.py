"""The backend under SIGKILL: at each step that touches the disk, one after another."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.checkpoint import CheckpointId
from millpond.local import read_manifest, verify_files
from millpond_rocksdb.local import RocksDBLocal, RocksDBLocalConfig
from millpond_rocksdb.shelf import ImageName, Shelf

CHILD = """
import importlib.util, os, signal, sys
from pathlib import Path
from millpond.checkpoint import CheckpointId
from millpond_rocksdb.local import RocksDBLocal, RocksDBLocalConfig

conftest, root, path, links, step = sys.argv[1:]
spec = importlib.util.spec_from_file_location("conftest_of_rocksdb", conftest)
stand = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = stand
spec.loader.exec_module(stand)
left = int(step)

def killing(function):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return call

def no_links(*args, **kwargs):
    raise OSError(18, "another device")

if links == "no":
    os.link = no_links
bench = stand.Bench(Path(root))
factory = RocksDBLocal("disk", RocksDBLocalConfig(path=Path(path)))
manager = factory.backup_manager(bench.context(), [])
images = {store: Path(root, "images", store, "2") for store in ("delays", "routes")}
for name in ("link", "rename", "fsync", "mkdir", "write", "unlink", "rmdir"):
    setattr(os, name, killing(getattr(os, name)))
markers = manager.upload(stand.Images(CheckpointId(2, 0), images), {})
manager.cleanup([bench.checkpoint(CheckpointId(2, 0), markers)])
"""


@pytest.mark.parametrize("links", ["yes", "no"])
def test_a_kill_at_any_step_shows_only_whole_images(bench, snapshot_of, tmp_path, links):
    """
    Killed at every single disk operation of an upload and its clean-up, the backend shows whole images only, has
    the last published one until the new one is named, and the next owner ends with nothing left over.
    """
    conftest = Path(__file__).with_name("conftest.py")
    for store in ("delays", "routes"):
        for n in (1, 2):
            bench.image(str(n), {"000008.sst": b"%d" % n * 1000, "CURRENT": b"x"}, store, CheckpointId(n, 0))
    for step in range(1, 200):
        path = tmp_path / f"kept{step}"
        factory = RocksDBLocal("disk", RocksDBLocalConfig(path=path))
        first = factory.backup_manager(bench.context(), [])
        images = {store: tmp_path / "images" / store / "1" for store in ("delays", "routes")}
        markers = first.upload(snapshot_of(CheckpointId(1, 0), images), {})
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(conftest), str(tmp_path), str(path), links, str(step)], check=False
        )
        assert done.returncode in (0, -signal.SIGKILL)
        shelves = [Shelf.of(factory._root(bench.context()), store) for store in ("delays", "routes")]
        shown = [shelf.images() for shelf in shelves]
        for shelf, names in zip(shelves, shown, strict=True):
            for name in names:
                verify_files(shelf.image(name), read_manifest(shelf.image(name)), digests=True)
            old = ImageName.parse(markers["delays"])
            both_new = all(any(name.id.millis == 2 for name in names) for names in shown)
            assert old in names or both_new
        bench.clock.now_s += 10**5
        successor = factory.backup_manager(bench.context("b" * 32), [])
        bench.clock.now_s += 10**5
        third = successor.upload(snapshot_of(CheckpointId(3, 0), images), {})
        successor.cleanup([bench.checkpoint(CheckpointId(3, 0), third, "b" * 32)])
        for shelf in shelves:
            assert [entry.name for entry in shelf.path.iterdir()] == [third["delays"]]
        if done.returncode == 0:
            assert step > 15, "the child was hardly ever killed"
            return
    raise AssertionError("the child never came to its end")
