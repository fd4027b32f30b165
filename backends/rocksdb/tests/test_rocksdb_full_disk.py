"""The engine and the backend on a disk that is full, and free again."""

from __future__ import annotations

import logging
import os
import subprocess

import pytest

from millpond.checkpoint import CheckpointId
from millpond.errors import MillpondError, TransientError
from millpond.spi import StoreSpec
from millpond_rocksdb.engine import RocksDBEngine
from millpond_rocksdb.local import RocksDBLocal, RocksDBLocalConfig

SIZE = 24 << 20


@pytest.fixture
def small_disk(tmp_path):
    """Give a file system of 24 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def noise(count, at=0):
    return [(b"%08d" % (at + i), os.urandom(1000)) for i in range(count)]


def test_a_full_disk_is_for_later_and_a_reopening_mends_it(small_disk, caplog):
    """Writes and images on a full disk are TransientError; with space back, the image reopens and all goes on."""
    engine = RocksDBEngine.open(small_disk / "live", StoreSpec("s", "rocksdb"))
    engine.apply(noise(1000))
    engine.checkpoint(small_disk / "good")
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="space"), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))
    with pytest.raises(TransientError, match="space"):
        for at in range(1000, 40_000, 1000):
            engine.apply(noise(1000, at))
            engine.flush()
    with pytest.raises(MillpondError):
        engine.checkpoint(small_disk / "bad")
    assert not (small_disk / "bad").exists()
    with caplog.at_level(logging.WARNING, "millpond.rocksdb"):
        engine.close()
    ballast.unlink()
    RocksDBEngine.open(small_disk / "live", StoreSpec("s", "rocksdb")).close()  # closed for good, its lock is free
    again = RocksDBEngine.open(small_disk / "good", StoreSpec("s", "rocksdb"))
    assert len(list(again.scan(None, None, False))) == 1000
    again.apply(noise(1000, 5000))
    again.checkpoint(small_disk / "next")
    again.close()


def test_a_load_on_a_full_disk_is_for_later(small_disk):
    """A bulk load that does not fit is TransientError, and leaves no side files behind."""
    engine = RocksDBEngine.open(small_disk / "live", StoreSpec("s", "rocksdb"))
    with pytest.raises(TransientError, match="space"):
        engine.load(entry for at in range(0, 60_000, 1000) for entry in noise(1000, at))
    assert not list((small_disk / "live").glob(".load-*"))
    engine.close()


def test_an_upload_on_a_full_disk_leaves_no_image(bench, snapshot_of, small_disk):
    """What does not fit is TransientError, no image appears, and after abandon the space is there again."""
    image = bench.image("first", {f"{n:06}.sst": os.urandom(6 << 20) for n in range(5)})
    factory = RocksDBLocal("disk", RocksDBLocalConfig(path=small_disk))
    manager = factory.backup_manager(bench.context(), [])
    id = CheckpointId(1, 0)
    with pytest.raises(TransientError, match="disk is full"):
        manager.upload(snapshot_of(id, {"delays": image}), {})
    assert not list(small_disk.rglob(f"{id}-*/MANIFEST"))
    manager.abandon(id)
    assert not [path for path in small_disk.rglob("*") if path.is_file()]
    small = bench.image("second", {"000001.sst": os.urandom(1 << 20)}, at=CheckpointId(2, 0))
    manager.upload(snapshot_of(CheckpointId(2, 0), {"delays": small}), {})
