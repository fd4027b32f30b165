"""
Power cuts without a plug: a job's calls are recorded, and the states that a cut could leave are opened one by one.

``python -m millpond.testing.lab.powercut --cuts 400``. A child runs under ``strace``; its writes, syncs and renames are
done again on a :mod:`simulated disk <millpond.testing.lab.disk>`, which is cut between any two of them. Each state has
to give the last acknowledged commit back, or a later one, exactly.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from attrs import define, field, frozen

from millpond.errors import ConfigError, TransientError
from millpond.testing.lab.disk import Disk, Kept, tree
from millpond.testing.lab.flips import look, outcome_of
from millpond.testing.lab.forks import die_with_the_parent, fork
from millpond.testing.lab.life import live
from millpond.testing.lab.places import Place
from millpond.testing.lab.story import Life, Story
from millpond.testing.lab.syscalls import Call, calls, command
from millpond.testing.lab.warming import warm

_DEADLINE_S = 120.0
_ALWAYS = ("fsync", "fdatasync", "rename", "renameat", "link", "linkat")


@define
class Cuts:
    """
    What became of power cuts.

    Attributes:
        outcomes: How many gave the last commit back, did so from another copy, refused, or gave a wrong state.
        by_kept: How many there were, by what was kept of what was not synced.
        wrong: What went wrong, a line each.
        calls: How many calls changed or synced something.
        seconds: How long all took.
    """

    outcomes: Counter[str] = field(factory=Counter)
    by_kept: Counter[str] = field(factory=Counter)
    wrong: list[str] = field(factory=list)
    calls: int = 0
    seconds: float = 0.0

    def as_json(self) -> Mapping[str, Any]:
        """Give all of it for a program."""
        outcomes = {name: self.outcomes[name] for name in ("exact", "from another copy", "refused", "wrong")}
        seconds = round(self.seconds, 1)
        return {**outcomes, "kept": dict(self.by_kept), "calls": self.calls, "told": self.wrong, "seconds": seconds}


@frozen
class Recording:
    """
    What a job did to a folder.

    Attributes:
        before: The folder before it.
        calls: What it called.
    """

    before: Disk
    calls: Sequence[Call]


def run_cuts(place: Place, count: int, seed: int, records: int = 45, *, syncs: bool = True) -> Cuts:
    """Cut the power *count* times in jobs with each engine; *seed* says where. Without *syncs* nothing is synced."""
    warm(place)
    cuts, begun = Cuts(), time.monotonic()
    for at, engine in enumerate(place.engines):
        share = count // len(place.engines) + (at < count % len(place.engines))
        with tempfile.TemporaryDirectory(prefix="millpond-cuts-") as folder:
            _cut_all(place, Story(seed, engine, ()), Path(folder).resolve(), records, share, cuts, syncs=syncs)
    cuts.seconds = time.monotonic() - begun
    return cuts


def _cut_all(place: Place, story: Story, folder: Path, records: int, count: int, cuts: Cuts, *, syncs: bool) -> None:
    recording = record(place, story, folder, records, syncs=syncs)
    chance = random.Random(f"{story.seed} {story.engine}")  # noqa: S311 - a run is repeated by its seed
    disk, least, places = recording.before, 0, _places(recording, count, chance)
    for at, call in enumerate(recording.calls):
        cuts.calls += disk.do(call)
        least = max(least, acknowledged(call))
        for _ in range(places[at]):
            kept = list(Kept)[sum(cuts.by_kept.values()) % len(Kept)]
            where = f"{story.engine}: after call {at} ({call.name}), {kept.value} kept"
            target = folder / "cut"
            disk.write_after_a_cut(target, kept, chance)
            _judge(cuts, where, kept, *_outcome(place, story, target, least))
    if sum(places.values()) < count:
        raise AssertionError("not every cut had its place")
    disk.write_now(folder / "end")
    differing = [a for a, b in zip(tree(folder / "end"), tree(folder / "root"), strict=True) if a != b]
    if differing:
        raise TransientError(f"the recording is not whole: {differing[0][0]} differs from the real disk")


def record(place: Place, story: Story, folder: Path, records: int, *, syncs: bool) -> Recording:
    """
    Let a job run below *folder* under strace.

    Raises:
        ConfigError: There is no strace.
        TransientError: The job failed.
    """
    root, log = folder / "root", folder / "log"
    tracer = command(log)
    if tracer is None:
        raise ConfigError("there is no strace here: install it")
    root.mkdir()
    ended = subprocess.run(  # noqa: S603 - our own interpreter, our own code
        [*tracer, *job_command(place, story, root, records, syncs=syncs)],
        capture_output=True,
        timeout=_DEADLINE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if ended.returncode:
        raise TransientError(f"the job under strace ended with {ended.returncode}: {ended.stderr.decode()[-500:]}")
    with log.open(encoding="ascii") as lines:
        return Recording(Disk(str(root)), list(calls(lines)))


def job_command(place: Place, story: Story, root: Path, records: int, *, syncs: bool) -> list[str]:
    """Give the command that runs a job of *records* records below *root*."""
    told = {"backend": place.name, "sections": place.sections, "engine": story.engine, "seed": story.seed}
    told |= {"root": str(root), "records": records, "syncs": syncs}
    code = "from millpond.testing.lab.powercut import job; job()"
    return [sys.executable, "-c", code, json.dumps(told)]


def job() -> None:
    """Run the job of ``sys.argv[1]``; what it says goes to standard output, and so into the trace."""
    die_with_the_parent()
    told = json.loads(sys.argv[1])
    if not told["syncs"]:
        os.fsync = lambda fd: None
    place = Place(told["backend"], told["sections"])
    config = place.config(Story(told["seed"], told["engine"], ()), Path(told["root"]), 0)

    def say(word: str, value: Any = None) -> None:
        os.write(1, json.dumps([word, value]).encode())

    for part in range(3):  # reopened, so that restores and clean-ups are in it too
        live(config, told["seed"], Life(records=told["records"] // 3, seed=told["seed"] + part), config, say)


def acknowledged(call: Call) -> int:
    """Give the offset that *call* tells the parent is durable; 0 if it does not."""
    if call.name != "write" or call.arguments[0] != "1":
        return 0
    word, value = json.loads(call.data(1))
    return int(value) if word == "durable" else 0


def _places(recording: Recording, count: int, chance: random.Random) -> Counter[int]:
    """Choose where to cut: half of the cuts right after syncs, renames and links."""
    probe, found, sharp = Disk(recording.before.root), [], []
    for at, call in enumerate(recording.calls):
        if probe.do(call):
            found.append(at)
            if call.name in _ALWAYS:
                sharp.append(at)
    return Counter(chance.choice(sharp if number % 2 else found) for number in range(count))


def _outcome(place: Place, story: Story, target: Path, least: int) -> tuple[str, str]:
    config = place.config(story, target, 0)
    word, said = outcome_of(fork(lambda say: look(config, story.seed, least, say)))
    subprocess.run(["rm", "-rf", str(target)], check=True)  # noqa: S603,S607 - quick
    return word, f"{said} (acknowledged: {least})"


def _judge(cuts: Cuts, where: str, kept: Kept, outcome: str, told: str) -> None:
    name = {"not read": "exact", "fell back": "from another copy", "error": "refused"}.get(outcome, outcome)
    cuts.outcomes[name] += 1
    cuts.by_kept[kept.value] += 1
    if name in ("refused", "wrong"):
        cuts.wrong.append(f"{where}: {told}")


@click.command("powercut")
@click.option("--backend", default="rocksdb-local", show_default=True)
@click.option("--cuts", "count", default=400, show_default=True, help="How many states are opened.")
@click.option("--seed", default=1, show_default=True)
@click.option("--config-template", type=click.Path(path_type=Path), help="TOML: [checkpoint] and [backends.*].")
@click.option("--without-fsync", is_flag=True, help="Sync nothing from Python: what the lab has to find.")
def main(backend: str, count: int, seed: int, config_template: Path | None, without_fsync: bool) -> None:
    """Cut the power between any two writes of a job; exit code 1 if a commit was lost or a state wrong."""
    cuts = run_cuts(Place.named(backend, config_template), count, seed, syncs=not without_fsync)
    click.echo(json.dumps({"backend": backend, "cuts": count, **cuts.as_json()}, indent=2, ensure_ascii=False))
    click.get_current_context().exit(1 if cuts.wrong else 0)


if __name__ == "__main__":
    main()
