"""
How many bytes commits send to a bucket, by files and by changes, and what a chain of changes costs the restore.

    python benchmarks/object_sizes.py [--keys 1000000] [--commits 48] [--repetitions 3] [--directory DIR]

Each commit changes 1 % of the keys, at random. The job has run for a while: commits behind the load, until RocksDB has
merged what the load left and, with changes, a base was sent since, are measured apart. Bytes are those of all objects,
manifests included.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jobs
import objects
from attrs import define, field
from services import slow_link
from services.s3_server import S3Server
from table import Row, at_most, show

import millpond
from millpond.events import BackupDecided, Event, ObjectsUploaded
from millpond.task import Task
from millpond_rocksdb.options import DEFAULTS

KEY_BYTES, VALUE_BYTES = 20, 100
SHARE = 0.01
WARM_UP = int(str(DEFAULTS["level0_file_num_compaction_trigger"]))
"""Commits behind the load: after so many, the files that the load left have been merged."""
LINK_KB_S = 50_000
SETTLED_S = 60.0


@define
class Sent:
    """
    What one job sent.

    Attributes:
        sizes: Bytes of each commit.
        links: The length of the chain behind each commit.
        state: Bytes of the store's files in the end.
    """

    sizes: list[int] = field(factory=list)
    links: list[int] = field(factory=list)
    state: int = 0

    def hear(self, event: Event) -> None:
        """Take in an event."""
        if isinstance(event, ObjectsUploaded):
            self.sizes.append(event.size)
        elif isinstance(event, BackupDecided):
            self.links.append(event.links)


class Updates:
    """Puts all keys once, and then some of them again and again; the same ones for each job."""

    def __init__(self, keys: int) -> None:
        self._keys, self._random = keys, random.Random(7)
        self.changed = int(keys * SHARE)
        self.logical = self.changed * (KEY_BYTES + VALUE_BYTES)

    def load(self, task: Task) -> None:
        """Put every key, in random order."""
        order = list(range(self._keys))
        self._random.shuffle(order)
        self._put(task, order)

    def change(self, task: Task) -> None:
        """Put 1 % of the keys."""
        self._put(task, self._random.sample(range(self._keys), self.changed))

    def _put(self, task: Task, numbers: Sequence[int]) -> None:
        put = task.store("s0").put
        for number in numbers:
            put(b"%020d" % number, jobs.value(VALUE_BYTES))


def place(root: Path, server: S3Server, name: str, *, changes: bool) -> dict[str, Any]:
    """Give the configuration of a job of its own; one that sends files only, or changes too."""
    given: dict[str, Any] = objects.config(root / name, server.settings)
    given["job"]["name"] = name
    given["backends"]["archive"]["changes"] = changes
    return given


def commit(task: Task, number: int) -> None:
    """Commit once compaction has come to rest, as it has between commits that are seconds apart."""
    task._buffers[0]._lane.submit(lambda: None).result()
    task.processed(jobs.SOURCE, number)
    task.commit_now(600)
    settle(task)


def settle(task: Task) -> None:
    """Wait until RocksDB compacts nothing."""
    database: Any = task._buffers[0].engine._database  # type: ignore[attr-defined]
    quiet, deadline = 0, time.monotonic() + SETTLED_S
    while quiet < 3 and time.monotonic() < deadline:
        running = int(database.property_value("rocksdb.num-running-compactions") or 0)
        quiet = 0 if running else quiet + 1
        time.sleep(0.02)


def run(given: Mapping[str, Any], keys: int, commits: int, kept: Sequence[int] = ()) -> tuple[Sent, list[int], int]:
    """
    Run a job: the load, the warm-up, and *commits*; pin those whose numbers are in *kept*.

    Gives what the commits sent, what the warm-up sent, and the bytes that each commit changed.
    """
    sent, updates = Sent(), Updates(keys)
    with millpond.open_job(given, listeners=[sent.hear]) as job, job.open_task("t") as task:
        updates.load(task)
        commit(task, 0)
        for number in range(1, 100):
            updates.change(task)
            commit(task, number)
            if number >= WARM_UP and sent.links[-1] == 0:
                break
        warm, sent.sizes, sent.links = sent.sizes[1:], [], []
        for number in range(commits):
            updates.change(task)
            commit(task, 100 + number)
            if number in kept:
                task._engine._task.manager.pin("t", task.last.id, f"n{number}")  # type: ignore[union-attr]
        image = task._engine._stores["s0"].image
        assert image is not None
        sent.state = image.size
    return sent, warm, updates.logical


def sizes(files: Sent, warm: list[int], changes: Sent, logical: int, first: int) -> list[Row]:
    """Give the rows about bytes."""
    of_files, of_changes = ([size / logical for size in sent.sizes] for sent in (files, changes))
    sent = [size / logical for size in files.sizes[:first]]
    worst = 100 * max(files.sizes[:first]) / files.state
    name = "uploaded / changed,"
    return [
        Row(f"{name} files only, mean of {first} commits", [statistics.mean(sent)], [], "x", "<= 1.5", at_most(1.5)),
        Row("the largest of them, of the state", [worst], [], "%", "<= 10", at_most(10)),
        Row(f"{name} files only, mean of {len(of_files)}", [statistics.mean(of_files)], [], "x", "", at_most(0)),
        Row("the largest of them, of the state", [100 * max(files.sizes) / files.state], [], "%", "", at_most(0)),
        Row(f"{name} files only, the {len(warm)} behind the load", [statistics.mean(warm) / logical], [], "x", "",
            at_most(0)),
        Row(f"{name} changes between bases, median of {len(of_changes)}", [statistics.median(of_changes)], [], "x",
            "<= 0.7", at_most(0.7)),
        Row(f"{name} the same with its bases, mean; beside files only", [statistics.mean(of_changes)],
            [statistics.mean(of_files)], "x", "<= 1x", at_most(1)),
    ]  # fmt: skip


def points_of(links: Sequence[int], most: int) -> list[int]:
    """Give the commits whose restores are measured: those of a few lengths of the chain, the longest among them."""
    wanted = [round(max(links) * step / most) for step in range(1, most + 1)]
    return [min(range(len(links)), key=lambda number: abs(links[number] - length)) for length in wanted]


def restores(
    root: Path, server: S3Server, given: Mapping[str, Mapping[str, Any]], at: Mapping[str, Sequence[int]],
    links: Sequence[int], repetitions: int,
) -> list[Row]:  # fmt: skip
    """Measure restores of the pinned checkpoints on an empty disk over a link of 50 MB/s."""
    with slow_link.before(server.endpoint, LINK_KB_S, root) as endpoint:
        taken: dict[tuple[str, int], list[float]] = {}
        for _ in range(repetitions):
            for name, numbers in at.items():
                far = objects.with_endpoint(given[name], endpoint)
                for number in numbers:
                    shutil.rmtree(far["job"]["state_dir"], ignore_errors=True)
                    with millpond.open_job(far) as job:
                        begun = time.perf_counter()
                        with job.open_task("t", at=f"n{number}"):
                            taken.setdefault((name, number), []).append(time.perf_counter() - begun)
    rows = []
    for number in at["changes"]:
        longest = number == at["changes"][-1]
        what = f"restore at a chain of {links[number]}, over {LINK_KB_S // 1000} MB/s, beside files only"
        bare = taken["files", at["files"][-1]]
        rows.append(Row(what, taken["changes", number], bare, "s", "<= 2x" if longest else "", at_most(2)))
    return rows


def measure(root: Path, keys: int, commits: int, repetitions: int) -> list[Row]:
    """Run both jobs, and restore them."""
    with objects.bucket_server(root / "s3") as server:
        given = {name: place(root, server, name, changes=name == "changes") for name in ("files", "changes")}
        files, warm, logical = run(given["files"], keys, commits, kept=range(commits))
        changes, _, _ = run(given["changes"], keys, commits, kept=range(commits))
        rows = sizes(files, warm, changes, logical, min(24, commits))
        points = points_of(changes.links, 4)
        at = {"files": [points[-1]], "changes": points}
        return rows + restores(root, server, given, at, changes.links, repetitions)


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--keys", type=int, default=1_000_000)
    words.add_argument("--commits", type=int, default=48)
    words.add_argument("--repetitions", type=int, default=3, help="of each restore")
    words.add_argument("--directory", type=Path, default=None)
    given = words.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        show(measure(Path(folder), given.keys, given.commits, given.repetitions))


if __name__ == "__main__":
    main()
