"""
What a restart on an intact disk costs beside hard links and an open done bare, in one interleaved run.

    python benchmarks/restart.py [--gigabytes 0.1 1] [--repetitions 7] [--directory DIR]

Ours is the time from the plan until the last store is open: finding the local image, checking its names and sizes,
cloning it and opening the database. Bare is the same image, linked and copied by the same rule, and opened.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import jobs
from table import Row, at_most, show

import millpond
from millpond import points
from millpond_rocksdb.engine import RocksDBEngine

VALUE = 4 << 10


def fill(root: Path, size: int) -> None:
    """Make a task with one store of *size* bytes."""
    with millpond.open_job(jobs.config(root, ["s"])) as job, job.open_task("t") as task:
        put = task.store("s").put
        for number in range(size // VALUE):
            put(b"%020d" % number, os.urandom(VALUE))
        task.processed(jobs.SOURCE, size)


def restart(root: Path) -> float:
    """Open the task, and give the milliseconds from the plan to the last open store."""
    seen: dict[str, float] = {}

    def note(point: str) -> None:
        seen[point] = time.perf_counter()

    points.arm(note)
    try:
        with millpond.open_job(jobs.config(root, ["s"])) as job:
            job.open_task("t")
    finally:
        points.arm(None)
    return (seen["restore.store-opened"] - seen["restore.planned"]) * 1e3


def bare(image: Path, target: Path) -> float:
    """Link and copy the files of *image* to *target* and open the database there; give the milliseconds."""
    begun = time.perf_counter()
    target.mkdir()
    with os.scandir(image) as files:
        for file in files:
            link_or_copy(file, target)
    database = jobs.open_bare(target)
    took = (time.perf_counter() - begun) * 1e3
    database.close()
    shutil.rmtree(target)
    return took


def link_or_copy(file: os.DirEntry[str], target: Path) -> None:
    """Link what never changes, copy what does, leave the manifest."""
    if any(fnmatchcase(file.name, pattern) for pattern in RocksDBEngine.immutable):
        os.link(file.path, target / file.name)
    elif file.name != "MANIFEST":
        shutil.copyfile(file.path, target / file.name)


def measure(root: Path, gigabytes: float, repetitions: int) -> Row:
    """Restart and link and open bare, in turn."""
    fill(root, int(gigabytes * 1e9))
    (image,) = (root / "state" / "bench" / "t" / "images" / "s").iterdir()
    ours, beside = [], []
    for number in range(repetitions + 1):
        beside.append(bare(image, root / f"bare-{number}"))
        ours.append(restart(root))
    files = len(list(image.iterdir()))
    name = f"restart on an intact disk, {gigabytes:g} GB in {files} files"
    return Row(name, ours[1:], beside[1:], "ms", "<= 1.5x", at_most(1.5))


def rows(root: Path, sizes: Sequence[float], repetitions: int) -> list[Row]:
    """Measure each size of *sizes* gigabytes."""
    return [measure(jobs.new_folder(root / f"restart-{size}"), size, repetitions) for size in sizes]


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--gigabytes", type=float, nargs="+", default=[0.1, 1.0])
    words.add_argument("--repetitions", type=int, default=7)
    words.add_argument("--directory", type=Path, default=None)
    given = words.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        show(rows(Path(folder), given.gigabytes, given.repetitions))


if __name__ == "__main__":
    main()
