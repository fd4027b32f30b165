"""
What memory open stores and uncommitted writes take beside what the configuration allows, in child processes.

    python benchmarks/memory.py [--stores 100] [--megabytes 400] [--repetitions 3] [--directory DIR]

Each child loads the library and the driver, notes its resident memory, opens the stores, writes far more than the
budgets hold, and gives by how much its resident memory grew at most. Nothing is committed while it writes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Self

import jobs
from table import Row, at_most, show

import millpond

MIB = 1 << 20
VALUE = 1_000
BUDGETS = {"buffer_memory": 64 * MIB, "cache_size": 128 * MIB, "write_buffer_memory": 64 * MIB}
FLOOR = 64 << 10
"""What a store whose job is at its bound may take beyond it: the block that lets a waiting put through."""


def child(root: Path, count: int, size: int) -> dict[str, int]:
    """Write *size* bytes to *count* stores without a commit, and give the most that was in use."""
    names = [f"s{number:03d}" for number in range(count)]
    config = jobs.config(root, names)
    sizes = {name: f"{size}B" for name, size in BUDGETS.items()}
    config["job"] |= {"buffer_memory": sizes.pop("buffer_memory")}  # type: ignore[operator]
    config["engines"] = {"rocksdb": sizes}
    load_everything(root)
    idle = resident()
    with Watch() as watch, millpond.open_job(config) as job, job.open_task("t") as task:
        watch.also(lambda: job._parts.budget.held)
        stores = [task.store(name) for name in names]
        for number in range(size // VALUE // count):
            key = b"%020d" % number
            for store in stores:
                store.put(key, os.urandom(VALUE))
        for store in stores:  # read some back: indexes, filters and blocks come into the cache
            for number in range(0, size // VALUE // count, 97):
                store.get(b"%020d" % number)
        task.close()
    return {"grown": watch.most - idle, "held": watch.held}


def load_everything(root: Path) -> None:
    """Open and close a small job, so that all code is loaded and all threads have run once."""
    with millpond.open_job(jobs.config(root / "small", ["s"], engine="memory")) as job, job.open_task("t") as task:
        task.store("s").put(b"k", b"v")
    import_module("millpond_rocksdb.database")


def resident() -> int:
    """Give this process's resident bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Looks a hundred times a second, and remembers the most."""

    def __enter__(self) -> Self:
        self.most = self.held = 0
        self._look: Callable[[], int] = lambda: 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def also(self, look: Callable[[], int]) -> None:
        """Remember the most of what *look* gives too."""
        self._look = look

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.most = max(self.most, resident())
            self.held = max(self.held, self._look())


def in_child(folder: Path, count: int, size: int) -> dict[str, int]:
    """Run :func:`child` in a process of its own."""
    words = ["--child", str(folder), "--stores", str(count), "--megabytes", str(size // MIB)]
    found: dict[str, int] = json.loads(subprocess.check_output([sys.executable, __file__, *words], text=True))
    return found


def rows(root: Path, count: int, size: int, repetitions: int) -> list[Row]:
    """Measure one store and *count* stores."""
    found = []
    limit = (BUDGETS["buffer_memory"] + BUDGETS["cache_size"]) / MIB
    for stores in (1, count):
        runs = [in_child(jobs.new_folder(root / f"{stores}-{number}"), stores, size) for number in range(repetitions)]
        allowed = (BUDGETS["buffer_memory"] + stores * FLOOR) / MIB
        found += [
            Row(
                f"resident memory of {stores} stores while {size / MIB:.0f} MiB are written, beside all budgets",
                [run["grown"] / MIB for run in runs],
                [limit],
                "MiB",
                "<= 1.25x",
                at_most(1.25),
            ),
            Row(
                f"uncommitted writes in the buffers of {stores} stores, no commit",
                [run["held"] / MIB for run in runs],
                [],
                "MiB",
                f"<= {allowed:.1f} MiB",
                at_most(allowed),
            ),
        ]
    return found


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--stores", type=int, default=100)
    words.add_argument("--megabytes", type=int, default=400)
    words.add_argument("--repetitions", type=int, default=3)
    words.add_argument("--directory", type=Path, default=None)
    words.add_argument("--child", type=Path, default=None, help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.child is not None:
        print(json.dumps(child(given.child, given.stores, given.megabytes * MIB)))
        return
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        show(rows(Path(folder), given.stores, given.megabytes * MIB, given.repetitions))


if __name__ == "__main__":
    main()
