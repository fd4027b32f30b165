"""Many trials, several at once, each worker a process without threads."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from attrs import asdict

from millpond.errors import ConfigError, TransientError
from millpond.testing.lab.forks import Child, Say, fork
from millpond.testing.lab.places import Place
from millpond.testing.lab.story import story_of
from millpond.testing.lab.tally import Tally
from millpond.testing.lab.trial import Trial, Verdict
from millpond.testing.lab.warming import warm

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of a name of its own is made there
_ROOM = 256 << 20


def seeds_of(text: str) -> range:
    """
    Read ``"7"`` or ``"0-300"``, which is 300 seeds.

    Raises:
        ConfigError: It is neither.
    """
    first, dash, end = text.partition("-")
    if not first.isdecimal() or (dash and not end.isdecimal()):
        raise ConfigError(f"seeds are a number or FIRST-END, such as 0-300, not {text!r}")
    return range(int(first), int(end) if dash else int(first) + 1)


def run_seeds(
    place: Place,
    seeds: range,
    jobs: int,
    replay: str,
    *,
    keep: Path | None = None,
    folder: Path | None = None,
    told: Callable[[Verdict], None] = lambda verdict: None,
) -> Tally:
    """
    Run the trials of *seeds*, *jobs* at once; those that fail leave their folder in *keep*, if that is given.

    *told* hears of each as it ends. Interrupted, it gives what it has by then.
    """
    warm(place)
    tally, begun = Tally(place.name, place.points(), replay), time.monotonic()
    with (
        tempfile.TemporaryDirectory(
            prefix="millpond-lab-", dir=folder or in_memory(), ignore_cleanup_errors=True
        ) as root,
        suppress(KeyboardInterrupt),
    ):
        for verdict in _work(place, seeds, jobs, Path(root), keep):
            tally.add(verdict)
            told(verdict)
    tally.seconds = time.monotonic() - begun
    return tally


def in_memory() -> Path | None:
    """
    Give a folder in memory, where there is one.

    Trials kill processes, and what a process has written outlives it there too; syncs, which they wait for most of the
    time elsewhere, cost nothing.
    """
    there = os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free > _ROOM
    return _IN_MEMORY if there else None


def _work(place: Place, seeds: Sequence[int], jobs: int, root: Path, keep: Path | None) -> Iterator[Verdict]:
    """Let *jobs* workers take turns, and give the verdicts as they come."""
    workers = [fork(partial(_trials, place, seeds[at::jobs], root, keep)) for at in range(jobs)]
    seen = [0] * jobs
    try:
        while any(worker.status is None for worker in workers) or any(
            seen[at] < len(worker.said) for at, worker in enumerate(workers)
        ):
            for at, worker in enumerate(workers):
                if worker.status is None:
                    worker.step()
                for word, value in worker.said[seen[at] :]:
                    if word != "verdict":
                        raise TransientError(f"a worker of the lab failed: {value}")
                    yield Verdict(**value)
                seen[at] = len(worker.said)
        _see_all(workers, [len(seeds[at::jobs]) for at in range(jobs)])
    finally:
        for worker in workers:
            worker.kill()


def _see_all(workers: Sequence[Child], wanted: Sequence[int]) -> None:
    """Raise TransientError if a worker has ended before its last trial: of the rest nothing is known."""
    for worker, count in zip(workers, wanted, strict=True):
        if len(worker.said) != count:
            raise TransientError(
                f"a worker of the lab ended by {worker.status} after {len(worker.said)} of its {count} trials"
            )


def _trials(place: Place, seeds: Sequence[int], root: Path, keep: Path | None, say: Say) -> None:
    """Run the trials of one worker."""
    for seed in seeds:
        folder = root / f"trial-{seed}-{os.getpid()}"
        folder.mkdir()
        verdict = Trial(place, story_of(seed, place.points(), place.engines, place.pace), folder).run()
        if keep is not None and not verdict.good:
            shutil.copytree(folder, keep / f"seed-{seed}", dirs_exist_ok=True, ignore_dangling_symlinks=True)
        shutil.rmtree(folder, ignore_errors=True)
        say("verdict", asdict(verdict))
