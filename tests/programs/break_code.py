"""
Bring faults of ``docs/faults.md`` into a copy of the tree, one at a time, and see that the test that is named fails.

``python tests/programs/break_code.py`` tries all of ``tests/fault_breakages.py``; ``BR-002 BR-075`` these alone;
``--jobs 2`` two at a time, each in a copy of its own. The tree itself stays as it is. Exit code 1 if a test did not
notice, or failed by a slip of the edit; with ``MILLPOND_INSIST=1`` also if one was skipped. An edit that does not fit
any more is an error.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from breakage import Breakage
from fault_breakages import BREAKAGES

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "backends", "tests", "examples", "docs", "pyproject.toml")
_TIMEOUT_S = 600.0
_SETTLED = ("--hypothesis-profile", "ci")
"""Property tests try the same examples each time, however long one takes."""
_FAILED = 1
"""What pytest ends with when a test failed, and nothing else was wrong."""
_SLIP = re.compile(r"^E +(?:\w+\.)*(?:Name|Attribute|UnboundLocal|Syntax|Import|ModuleNotFound)Error\b", re.MULTILINE)


class Outcome(Enum):
    """What a test said to a fault."""

    NOTICED = "noticed"
    UNNOTICED = "NOT NOTICED"
    SLIP = "NOT SHOWN, since the edit is wrong:"
    SKIPPED = "could not be tried here, for want of what is needed"


def main(arguments: list[str]) -> int:
    """Try what the command line asks for; give the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("faults", nargs="*", metavar="BR-NNN")
    parser.add_argument("--jobs", type=int, default=1)
    wanted = parser.parse_args(arguments)
    if unknown := set(wanted.faults) - {each.fault for each in BREAKAGES}:
        parser.error(f"nobody knows how to bring in {', '.join(sorted(unknown))}")
    chosen = [each for each in BREAKAGES if not wanted.faults or each.fault in wanted.faults]
    said = all_tried(chosen, wanted.jobs)
    noticed, skipped = said.count(Outcome.NOTICED), said.count(Outcome.SKIPPED)
    sys.stdout.write(f"{noticed} of {len(chosen)} faults were noticed\n")
    if skipped:
        sys.stdout.write(f"{skipped} could not be tried here\n")
    enough = len(chosen) if os.environ.get("MILLPOND_INSIST") else len(chosen) - skipped
    return 0 if noticed and noticed == enough else 1


def all_tried(chosen: list[Breakage], jobs: int) -> list[Outcome]:
    """Try *chosen*, *jobs* at a time; give what was said to each."""
    trees: SimpleQueue[Path] = SimpleQueue()
    with ExitStack() as copies, ThreadPoolExecutor(jobs) as threads:
        for _ in range(jobs):
            trees.put(copies.enter_context(copied()))
        return list(threads.map(partial(tried_in_one_of, trees), chosen))


def tried_in_one_of(trees: SimpleQueue[Path], breakage: Breakage) -> Outcome:
    """Try *breakage* in a tree that nobody else has."""
    tree = trees.get()
    try:
        return tried(tree, breakage)
    finally:
        trees.put(tree)


@contextmanager
def copied() -> Iterator[Path]:
    """Give a copy of the tree, which ends with the block."""
    with tempfile.TemporaryDirectory(prefix="millpond-broken-") as folder:
        tree = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", ".*cache*"))
            elif source.exists():
                shutil.copy(source, tree / name)
        (tree / "build").symlink_to(ROOT / "build")  # the servers that tests start
        yield tree


def tried(tree: Path, breakage: Breakage) -> Outcome:
    """Break *tree*, run the test, mend it again; give what the test said."""
    path = tree / breakage.file
    whole = path.read_text("utf-8")
    path.write_text(broken(whole, breakage), "utf-8")
    try:
        ended = run(tree, breakage.test)
    finally:
        path.write_text(whole, "utf-8")
    said = outcome(ended.returncode, ended.stdout)
    sys.stdout.write(f"{breakage.fault} {said.value} by {breakage.test}\n")
    if said is not Outcome.NOTICED:
        sys.stdout.write(f"pytest ended with {ended.returncode}\n{ended.stdout[-1500:]}\n{ended.stderr[-3000:]}\n")
    sys.stdout.flush()
    return said


def outcome(code: int, text: str) -> Outcome:
    """
    Read what pytest ended with and printed.

    A name that is not there is a slip of the edit, and no fault. One that hangs ends the run without a last word.
    """
    if code == _FAILED and " failed" in text:
        return Outcome.SLIP if _SLIP.search(text) else Outcome.NOTICED
    return Outcome.SKIPPED if code == 0 and " passed" not in text else Outcome.UNNOTICED


def broken(text: str, breakage: Breakage) -> str:
    """
    Give *text* with the edit of *breakage*.

    Raises:
        ValueError: The text to be replaced does not stand there once: the code has changed, and so has the edit to.
    """
    if text.count(breakage.old) != 1:
        raise ValueError(
            f"{breakage.fault}: {breakage.file} holds what is to be edited {text.count(breakage.old)} times"
        )
    return text.replace(breakage.old, breakage.new)


def run(tree: Path, test: str) -> subprocess.CompletedProcess[str]:
    """Run *test* on the code in *tree*, whatever is installed; where a server is missing it skips, and never fails."""
    sources = [tree / "src", *sorted(tree.glob("backends/*/src"))]
    options = ["-q", "-x", "-p", "no:cacheprovider", "--timeout", "120", *_SETTLED]
    command = [sys.executable, "-m", "pytest", *options, test]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources))}
    environment.pop("MILLPOND_INSIST", None)
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
