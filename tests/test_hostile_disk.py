"""A whole job on a disk that is full, and free again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.errors import CommitError, TransientError

SIZE = 16 << 20
SOURCE = millpond.SystemStreamPartition("test", "numbers", 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 16 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def config(state: Path, backup: Path, records: Path) -> dict[str, object]:
    return {
        "job": {"name": "full", "state_dir": str(state)},
        "checkpoint": {"manager": "directory", "path": str(records), "retain": 1},
        "backends": {"main": {"type": "rocksdb-local", "path": str(backup), "grace": "0s"}},
        "stores": {
            "s": {"engine": "memory", "key": "str", "value": "int", "backup": ["main"], "restore": ["main"]},
        },
        "commit": {"interval": "1h", "tolerated_failures": 10},
    }


def fill(disk: Path) -> Path:
    """Take all room that is left, to the last byte."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return ballast


@pytest.mark.parametrize("which", ["backup", "records"])
def test_a_full_disk_fails_commits_and_loses_nothing(small_disk: Path, tmp_path: Path, which: str) -> None:
    """Commits on a full disk fail and say so; with room again the same task commits all, and an empty disk has it."""
    places = {"state": tmp_path / "state", "backup": tmp_path / "backup", "records": tmp_path / "records"}
    places[which] = small_disk / which
    with millpond.open_job(config(**places)) as job, job.open_task("t") as task:
        store = task.store("s")
        store["a"] = 1
        task.processed(SOURCE, 0)
        task.commit_now(60)
        ballast = fill(small_disk)
        for number in (1, 2):
            store["b"] = number
            task.processed(SOURCE, number)
            with pytest.raises(CommitError, match=r"full|space"):
                task.commit_now(60)
        ballast.unlink()
        store["c"] = 3
        task.processed(SOURCE, 3)
        task.commit_now(60)

    with millpond.open_job(config(**{**places, "state": tmp_path / "another"})) as job, job.open_task("t") as task:
        assert {"a": 1, "b": 2, "c": 3} == dict(task.store("s").scan())
        assert "3" == task.offsets[SOURCE]


def test_a_full_disk_opens_no_task(small_disk: Path, tmp_path: Path) -> None:
    """A task whose own disk is full does not open, says why, and opens with room again."""
    places = {"state": small_disk / "state", "backup": tmp_path / "backup", "records": tmp_path / "records"}
    ballast = fill(small_disk)
    with millpond.open_job(config(**places)) as job:
        with pytest.raises(TransientError, match=r"full|space"):
            job.open_task("t")
        ballast.unlink()
        with job.open_task("t") as task:
            task.store("s")["a"] = 1
            task.processed(SOURCE, 0)
            task.commit_now(60)
