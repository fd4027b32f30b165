"""Many inputs for each reader, in processes of their own: one that dies or hangs is a finding, not the end."""

from __future__ import annotations

import mmap
import random
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from millpond.errors import MillpondError, TransientError
from millpond.testing.fuzz.reader import Reader, measured
from millpond.testing.lab.forks import Say, fork

HANG_S = 60.0
"""How long one reader's inputs of one batch may take in all."""

BATCH = 500
"""How many inputs one process tries."""

_MEMORY = 1 << 30
_PLACE = struct.Struct("<q")


@frozen
class Finding:
    """
    An input that a reader does not bear.

    Attributes:
        reader: Its name.
        seed: Of the input.
        what: What became of it.
        data: The input.
    """

    reader: str
    seed: int
    what: str
    data: bytes


@define
class Fuzzed:
    """
    A run.

    Attributes:
        inputs: How many there were, by reader.
        findings: What was found.
        seconds: How long it took.
    """

    inputs: Counter[str] = field(factory=Counter)
    findings: list[Finding] = field(factory=list)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Give all of it for a program."""
        findings = [
            {"reader": each.reader, "seed": each.seed, "what": each.what, "data": each.data[:2000].hex()}
            for each in self.findings
        ]
        return {"inputs": dict(self.inputs), "findings": findings, "seconds": round(self.seconds, 1)}


def input_of(reader: Reader, seed: int) -> bytes:
    """Give the input number *seed* of *reader*."""
    return reader.input(random.Random(f"{reader.name} {seed}"))  # noqa: S311 - a run is repeated by its seed


def fuzz(readers: Sequence[Reader], seeds: range, told: Callable[[Finding], None] = lambda finding: None) -> Fuzzed:
    """Try the inputs *seeds* of each of *readers*; this process must have no thread."""
    run, begun = Fuzzed(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millpond-fuzz-") as folder:
        for reader in readers:
            _warm(reader, Path(folder))
            for first in range(seeds.start, seeds.stop, BATCH):
                batch = range(first, min(first + BATCH, seeds.stop))
                for finding in _batch(reader, batch, Path(folder)):
                    run.findings.append(finding)
                    told(finding)
                run.inputs[reader.name] += len(batch)
    run.seconds = time.monotonic() - begun
    return run


def _warm(reader: Reader, folder: Path) -> None:
    """Read something valid here, so that what is loaded once is loaded for all children."""
    own = folder / "own"
    own.mkdir(exist_ok=True)
    with suppress(MillpondError):  # a fault is told by the inputs
        reader.read(reader.valid[0], own)


def _batch(reader: Reader, seeds: range, folder: Path) -> list[Finding]:
    """Try a batch; after an input at which the process died or hung the next process goes on behind it."""
    found: list[Finding] = []
    at = seeds.start
    while at < seeds.stop:
        rest = range(at, seeds.stop)
        with mmap.mmap(-1, _PLACE.size) as place:
            child = fork(lambda say, rest=rest, place=place: _try_all(reader, rest, folder, place, say))  # type: ignore[misc]
            try:
                child.follow(HANG_S)
                died = f"the process ended with {child.status}" if child.status else None
            except TransientError:
                died = f"hangs: no end after {HANG_S:g} s"
            (last,) = _PLACE.unpack(place[: _PLACE.size])
        found += [Finding(reader.name, seed, what, input_of(reader, seed)) for seed, what in child.words("fault")]
        if died is None:
            return found
        found.append(Finding(reader.name, last, f"{died}; {child.words('failed')}", input_of(reader, last)))
        at = last + 1
    return found


def _try_all(reader: Reader, seeds: range, folder: Path, place: mmap.mmap, say: Say) -> None:
    """Try inputs one after the other; *place* holds the one that is tried now."""
    _limit_memory()
    own = folder / "own"
    own.mkdir(exist_ok=True)
    for seed in seeds:
        place[: _PLACE.size] = _PLACE.pack(seed)
        what = reader.fault(input_of(reader, seed), own, measured=measured(seed))
        if what is not None:
            say("fault", [seed, what])


def _limit_memory() -> None:
    """Let an allocation of gigabytes fail instead of succeeding lazily."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + _MEMORY, hard))
