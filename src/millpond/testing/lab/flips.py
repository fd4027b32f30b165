"""
Flipped bits: in any record, object or local file that is read back, one bit is turned, and the task opened.

``python -m millpond.testing.lab.flips --backend rocksdb-local --flips 2000``. The damage has to be an error, or lead to
another copy; it never gives another state.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
from attrs import define, field

from millpond.blob import BlobBackend
from millpond.checkpoint import Checkpoint
from millpond.config import BackendConfig, JobConfig
from millpond.errors import MillpondError, TransientError
from millpond.events import CleanupFailed, Event, Quarantined, RestoreFailedOver
from millpond.job import Job
from millpond.local import escape_name
from millpond.reading import JobReader
from millpond.testing.lab.forks import Child, Say, fork
from millpond.testing.lab.leftovers import objects_of
from millpond.testing.lab.life import live, offset_of, stores_of
from millpond.testing.lab.mirror import MIRROR, lies_outside, put_back, read_objects
from millpond.testing.lab.places import Place
from millpond.testing.lab.seeds import in_memory
from millpond.testing.lab.story import Life, Story
from millpond.testing.lab.warming import warm
from millpond.testing.lab.world import TASK, compare, expected

RECORDS = 40
_DEADLINE_S = 60.0
_HANG_S = 3 * _DEADLINE_S
"""An opening gives itself up after ``_DEADLINE_S``; one that has not ended long after that hangs."""
_MOST_TRIES = 8
_NOTICED = (RestoreFailedOver, Quarantined, CleanupFailed)


@define
class Flips:
    """
    What became of flipped bits.

    Attributes:
        outcomes: How many were an error, fell back, were not read, or gave a wrong state.
        wrong: What went wrong, a line each.
        unread: Kinds of files in which a bit was turned that nobody read.
        seconds: How long all took.
    """

    outcomes: Counter[str] = field(factory=Counter)
    wrong: list[str] = field(factory=list)
    unread: Counter[str] = field(factory=Counter)
    seconds: float = 0.0

    @property
    def read(self) -> int:
        """How many bits were read, so far as anybody can tell: all but those that made no difference."""
        return self.outcomes.total() - self.outcomes["not read"]

    def count(self, where: str, kind: str, outcome: str, told: str) -> None:
        """Note what became of one bit."""
        self.outcomes[outcome] += 1
        if outcome == "wrong":
            self.wrong.append(f"{where}: {told}")
        elif outcome == "not read":
            self.unread[kind] += 1

    def as_json(self) -> Mapping[str, Any]:
        """Give all of it for a program."""
        outcomes = {name: self.outcomes[name] for name in ("error", "fell back", "not read", "wrong")}
        return {**outcomes, "told": self.wrong, "not read in": dict(self.unread), "seconds": round(self.seconds, 1)}


def run_flips(place: Place, count: int, seed: int) -> Flips:
    """Turn bits, one at a time, in what jobs with each engine left, until *count* were read; *seed* says which."""
    warm(place)
    flips, begun = Flips(), time.monotonic()
    for at, engine in enumerate(place.engines):
        with tempfile.TemporaryDirectory(prefix="millpond-flips-", dir=in_memory()) as folder:
            share = count // len(place.engines) + (at < count % len(place.engines))
            _flip_all(place, Story(seed, engine, ()), Path(folder), share, flips)
    flips.seconds = time.monotonic() - begun
    return flips


def _flip_all(place: Place, story: Story, folder: Path, count: int, flips: Flips) -> None:
    root, pristine = folder / f"{folder.name}-{story.engine}", folder / "pristine"
    root.mkdir()
    config = place.config(story, root, 0)
    _grow(config, story)
    outside = lies_outside(place)
    if outside:
        _in_a_child(lambda: read_objects(config, root))
    files = read_back(place, story, root)
    root.rename(pristine)
    chance = random.Random(f"{story.seed} {story.engine}")  # noqa: S311 - a run is repeated by its seed
    local, kept = [each for each in files if _is_local(each)], [each for each in files if not _is_local(each)]
    wanted, file = flips.read + count, ""
    for _ in range(_MOST_TRIES * count):
        shutil.rmtree(root, ignore_errors=True)
        link_tree(pristine, root)
        before, file = file, chance.choice(chance.choice([local, kept]))
        bit = flip(root / file, chance)
        if file in kept:
            shutil.rmtree(root / "disk 0")
        if outside:
            _in_a_child(partial(put_back, config, root, (before, file)))
        flips.count(f"{story.engine}: {file}, bit {bit}", _kind(file), *_outcome(config, story))
        if flips.read == wanted:
            return
    raise AssertionError(f"of {_MOST_TRIES * count} bits fewer than {count} were read: {dict(flips.unread)}")


def _grow(config: JobConfig, story: Story) -> None:
    """Let a job run to a good end."""
    child = fork(lambda say: live(config, story.seed, Life(records=RECORDS, seed=story.seed), config, say))
    child.follow(_DEADLINE_S)
    if child.words("failed") or RECORDS not in child.words("durable"):
        raise AssertionError(f"a job could not run: {child.said[-3:]}")


def _in_a_child(work: Callable[[], int]) -> None:
    """Do *work*, which may start threads."""
    child = fork(lambda say: say("done", work()))
    child.follow(_DEADLINE_S)
    if not child.words("done"):
        raise AssertionError(f"objects could not be read or put back: {child.said[-3:]}")


def read_back(place: Place, story: Story, root: Path) -> list[str]:
    """Give the files below *root* that an opening of the newest checkpoint reads, relative to it."""
    child = fork(lambda say: say("newest", _named(place.config(story, root, 0))))
    child.follow(_DEADLINE_S)
    images, objects, logs = child.words("newest")[0]
    records = set(_newest_records(root))
    found = []
    for path in sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size):
        parts = path.relative_to(root).parts
        of_an_image = any([store, name] == list(pair) for store, name in images for pair in pairwise(parts))
        of_a_log = any(path.is_relative_to(log) for log in logs)
        if path in records or path.name in objects or of_an_image or of_a_log:
            found.append("/".join(parts))
    return found


def _named(config: JobConfig) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """Give what the newest checkpoint names: stores' folders and images, and objects; and the folders of logs."""
    with JobReader(config) as reader:
        newest = reader.checkpoint(TASK)
        named = [newest.images, *newest.markers.values()]
        pairs = sorted({(escape_name(store), name) for each in named for store, name in each.items()})
        objects = sorted({each for backend in config.backends.values() for each in _objects(reader, backend, newest)})
    logs = [getattr(backend.settings, "directory", None) for backend in config.backends.values()]
    return pairs, objects, [str(log) for log in logs if log is not None]


def _objects(reader: JobReader, backend: BackendConfig, newest: Checkpoint) -> list[str]:
    """Give the names of the objects that *newest* needs of an object store: bases and changes too."""
    if not isinstance(backend.factory, BlobBackend):
        return []
    with closing(backend.factory.open_store(reader.context)) as store:
        return list(objects_of(store, list(store.list("")), [newest], backend.marker_key))


def _newest_records(root: Path) -> Iterator[Path]:
    """Give the newest record of each folder of records: numbers count down in their names."""
    for folder in root.rglob("records"):
        yield from sorted(path for path in folder.iterdir() if path.is_file())[:1]


def link_tree(source: Path, target: Path) -> None:
    """Make *target* as *source* is, with links to its files: what is written through one is seen through the other."""
    shutil.copytree(source, target, copy_function=os.link)


def flip(path: Path, chance: random.Random) -> int:
    """Turn one bit of *path*, and of no other name of the same file; give which."""
    data = bytearray(path.read_bytes())
    bit = chance.randrange(len(data) * 8)
    data[bit // 8] ^= 1 << bit % 8
    path.unlink()
    path.write_bytes(data)
    return bit


def _outcome(config: JobConfig, story: Story) -> tuple[str, str]:
    return outcome_of(fork(lambda say: look(config, story.seed, RECORDS, say)))


def outcome_of(child: Child) -> tuple[str, str]:
    """Wait for a child that looks, and give what it said became of it; one that hangs is wrong, and ends no run."""
    try:
        child.follow(_HANG_S)
    except TransientError as error:
        return "wrong", str(error)
    if child.status != 0 or not child.words("outcome"):
        return "wrong", f"the process ended with {child.status}: {child.said}"
    word, told = child.words("outcome")[0]
    return word, told


def look(config: JobConfig, seed: int, least: int, say: Say) -> None:
    """Open the task in another boot, when digests are computed, and say what became of it."""
    noticed: list[Event] = []
    with (
        patch("millpond.local.task.current_boot", lambda: "a later boot"),
        patch("millpond.stores.images.current_boot", lambda: "a later boot"),
    ):
        try:
            with Job(config, [noticed.append]) as job, job.open_task(TASK, timeout_s=_DEADLINE_S) as task:
                offset, found = offset_of(task), stores_of(task)
        except MillpondError as error:
            say("outcome", ["error", f"{type(error).__name__}: {error}"])
            return
    difference = compare(found, expected(seed, offset))
    if difference or offset < least:
        say("outcome", ["wrong", f"offset {offset} instead of {least}; {difference}"])
    elif events := [type(each).__name__ for each in noticed if isinstance(each, _NOTICED)]:
        say("outcome", ["fell back", ", ".join(sorted(set(events)))])
    else:
        say("outcome", ["not read", ""])


def _is_local(file: str) -> bool:
    return file.startswith("disk 0/")


def _kind(file: str) -> str:
    parts: Sequence[str] = file.split("/")
    if parts[0] == MIRROR:
        return f"{MIRROR}/…/{parts[-2]}"
    if parts[0] == "log":
        return "/".join(parts[:2]) if parts[-1] != "TOPIC" else "log/…/TOPIC"
    return f"{parts[0]}/…/{parts[-2]}" if parts[-2] in ("records", "main") else f"{parts[0]}/…/{parts[-1]}"


@click.command("flips")
@click.option("--backend", default="rocksdb-local", show_default=True)
@click.option("--flips", "count", default=2000, show_default=True, help="How many bits that are read.")
@click.option("--seed", default=1, show_default=True)
@click.option("--config-template", type=click.Path(path_type=Path), help="TOML: [checkpoint] and [backends.*].")
def main(backend: str, count: int, seed: int, config_template: Path | None) -> None:
    """Turn bits in what a job reads back; exit code 1 if one gave a wrong state."""
    flips = run_flips(Place.named(backend, config_template), count, seed)
    click.echo(json.dumps({"backend": backend, "flips": count, **flips.as_json()}, indent=2, ensure_ascii=False))
    click.get_current_context().exit(1 if flips.wrong else 0)


if __name__ == "__main__":
    main()
