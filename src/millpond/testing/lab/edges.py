"""
Calls that fail at the edge of the system: a sync that fails, a full disk, a rename that is refused, a kill at a call.

``python -m millpond.testing.lab.edges --faults 60``. ``strace`` injects one fault into a running job; whatever the job
makes of it, the task opens afterwards at its last acknowledged commit or a later one, exactly.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from attrs import define, field, frozen

from millpond.testing.lab.flips import look, outcome_of
from millpond.testing.lab.forks import fork
from millpond.testing.lab.places import Place
from millpond.testing.lab.powercut import acknowledged, job_command, record
from millpond.testing.lab.short_writes import build
from millpond.testing.lab.story import Story
from millpond.testing.lab.syscalls import calls, command
from millpond.testing.lab.warming import warm

RECORDS = 45
_DEADLINE_S = 120.0
_THREADS = 4
"""strace counts the calls of each thread alone, so a job's calls are about this many times more."""


@frozen
class Edge:
    """
    A kind of fault.

    Attributes:
        name: For the table.
        calls: The calls that may have it.
        fault: What strace does to one of them.
        lasting: From then on to every one of a hundred.
        short: Each write does half of what was asked for.
    """

    name: str
    calls: tuple[str, ...]
    fault: str
    lasting: bool = False
    short: bool = False


EDGES = (
    Edge("sync fails", ("fsync", "fdatasync"), "error=EIO"),
    Edge("disk full", ("write", "pwrite64"), "error=ENOSPC", lasting=True),
    Edge("link refused", ("link", "linkat"), "error=EIO"),
    Edge("rename refused", ("rename", "renameat"), "error=EIO"),
    Edge("no folder made", ("mkdir",), "error=ENOSPC"),
    Edge("killed at a sync", ("fsync", "fdatasync"), "signal=SIGKILL"),
    Edge("killed at a rename", ("rename",), "signal=SIGKILL"),
    Edge("killed at a link", ("link", "linkat"), "signal=SIGKILL"),
    Edge("killed at a removal", ("unlink", "unlinkat"), "signal=SIGKILL"),
    Edge("slow sync", ("fsync", "fdatasync"), "delay_enter=300000"),
    Edge("slow writes", ("write", "pwrite64"), "delay_enter=20000", lasting=True),
    Edge("short writes", ("write", "pwrite64"), "", short=True),
)


@define
class Faulted:
    """
    What became of faults.

    Attributes:
        hit: How many were injected, by kind; a fault may come too late to be.
        ended: How the jobs ended: well, by an error, killed.
        wrong: What went wrong, a line each.
    """

    hit: Counter[str] = field(factory=Counter)
    ended: Counter[str] = field(factory=Counter)
    wrong: list[str] = field(factory=list)

    def as_json(self) -> Mapping[str, Any]:
        """Give all of it for a program."""
        return {
            "hit": {edge.name: self.hit[edge.name] for edge in EDGES},
            "ended": dict(self.ended),
            "told": self.wrong,
        }


def run_edges(place: Place, count: int, seed: int) -> Faulted:
    """Inject *count* faults, one a job; *seed* says which and where."""
    warm(place)
    found = Faulted()
    chance = random.Random(seed)  # noqa: S311 - a run is repeated by its seed
    for at, engine in enumerate(place.engines):
        story = Story(seed, engine, ())
        with tempfile.TemporaryDirectory(prefix="millpond-edges-") as folder:
            recording = record(place, story, Path(folder).resolve(), RECORDS, syncs=True)
        often = Counter(call.name for call in recording.calls)
        for number in range(at, count, len(place.engines)):
            edge = EDGES[number // len(place.engines) % len(EDGES)]
            most = max(1, sum(often[name] for name in edge.calls) // _THREADS)
            with tempfile.TemporaryDirectory(prefix="millpond-edges-") as folder:
                _one(place, story, Path(folder).resolve(), edge, chance.randint(1, most), found)
    return found


def _one(place: Place, story: Story, folder: Path, edge: Edge, when: int, found: Faulted) -> None:
    root, log = folder / "root", folder / "log"
    root.mkdir()
    tracer = command(log) or []
    injected = _injection(edge, when, folder)
    if injected is None:
        return
    ended = subprocess.run(  # noqa: S603 - our own interpreter, our own code
        [*tracer, *injected, *job_command(place, story, root, RECORDS, syncs=True)],
        capture_output=True,
        timeout=_DEADLINE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    text = log.read_text("ascii")
    hit = edge.short or "(INJECTED)" in text or "(DELAYED)" in text or "SIGKILL" in text
    found.hit[edge.name] += hit
    found.ended["well" if ended.returncode == 0 else "killed" if "SIGKILL" in text else "by an error"] += 1
    least = max([0, *(acknowledged(call) for call in calls(text.splitlines()))])
    outcome = outcome_of(fork(lambda say: look(place.config(story, root, 0), story.seed, least, say)))
    if outcome[0] not in ("not read", "fell back"):
        found.wrong.append(f"{story.engine}, {edge.name} at {when}: {outcome} (acknowledged: {least})")


def _injection(edge: Edge, when: int, folder: Path) -> list[str] | None:
    """Give what tells strace of *edge*; None where it cannot be had here."""
    if edge.short:
        library = build(folder)
        return None if library is None else ["-E", f"LD_PRELOAD={library}"]
    inject = f"inject={','.join(edge.calls)}:{edge.fault}:when={when}"
    return ["-e", inject + (f"..{when + 100}" if edge.lasting else "")]


@click.command("edges")
@click.option("--backend", default="rocksdb-local", show_default=True)
@click.option("--faults", "count", default=60, show_default=True, help="How many jobs have one.")
@click.option("--seed", default=1, show_default=True)
@click.option("--config-template", type=click.Path(path_type=Path), help="TOML: [checkpoint] and [backends.*].")
def main(backend: str, count: int, seed: int, config_template: Path | None) -> None:
    """Let calls of a job fail; exit code 1 if a commit was lost or a state wrong afterwards."""
    found = run_edges(Place.named(backend, config_template), count, seed)
    click.echo(json.dumps({"backend": backend, "faults": count, **found.as_json()}, indent=2, ensure_ascii=False))
    click.get_current_context().exit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()
