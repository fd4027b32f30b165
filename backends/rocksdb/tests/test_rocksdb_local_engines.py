"""A store that moves to another engine, with its images kept by rocksdb-local."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import millpond

TASK = "Partition 0"
SOURCE = millpond.SystemStreamPartition("test", "numbers", 0)


def config(folder: Path, engine: str) -> dict[str, Any]:
    return {
        "job": {"name": "moving", "state_dir": str(folder / "state")},
        "checkpoint": {"manager": "directory", "path": str(folder / "records")},
        "backends": {"disk": {"type": "rocksdb-local", "path": str(folder / "images")}},
        "stores": {"s": {"engine": engine, "key": "str", "value": "json", "backup": ["disk"], "restore": ["disk"]}},
        "commit": {"interval": "1h"},
    }


def test_the_first_commit_on_another_engine_comes_back_on_an_empty_disk(tmp_path: Path) -> None:
    """Though nothing was written since, the backend has the new engine's image, and not the old one's."""
    for offset, engine in enumerate(("memory", "rocksdb", "memory")):
        with millpond.open_job(config(tmp_path, engine)) as job, job.open_task(TASK) as task:
            if offset == 0:
                task.store("s")["k"] = 1
            task.processed(SOURCE, offset)
            last = task.commit_now(60)
            assert last.images["s"] == last.markers["disk"]["s"]
        shutil.rmtree(tmp_path / "state")
    with millpond.open_job(config(tmp_path, "memory")) as job, job.open_task(TASK) as task:
        assert task.store("s").get("k") == 1
        assert task.offsets[SOURCE] == "2"
