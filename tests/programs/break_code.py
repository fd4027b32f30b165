"""
Bring faults of ``docs/faults.md`` into a copy of the tree, one at a time, and see that the test that is named fails.

``python tests/programs/break_code.py`` tries all of ``tests/fault_breakages.py``; ``BR-002 BR-075`` these alone. The
tree itself stays as it is. Exit code 1 if a test did not notice; an edit that does not fit any more is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fault_breakages import BREAKAGES, Breakage

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "backends", "tests", "examples", "docs", "pyproject.toml")
_TIMEOUT_S = 600.0
_FAILED = 1
"""What pytest ends with when a test failed, and nothing else was wrong."""


def main(ids: list[str]) -> int:
    """Try the breakages of the faults *ids*, or all; give the exit code."""
    chosen = [each for each in BREAKAGES if not ids or each.fault in ids]
    with copied() as tree:
        unnoticed = [each for each in chosen if not tried(tree, each)]
    sys.stdout.write(f"{len(chosen) - len(unnoticed)} of {len(chosen)} faults were noticed\n")
    return 1 if unnoticed or not chosen else 0


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


def tried(tree: Path, breakage: Breakage) -> bool:
    """Break *tree*, run the test, mend it again; give whether the test failed."""
    path = tree / breakage.file
    whole = path.read_text("utf-8")
    path.write_text(broken(whole, breakage), "utf-8")
    try:
        ended = run(tree, breakage.test)
    finally:
        path.write_text(whole, "utf-8")
    noticed = ended.returncode == _FAILED
    sys.stdout.write(f"{breakage.fault} {'noticed' if noticed else 'NOT NOTICED'} by {breakage.test}\n")
    if not noticed:
        sys.stdout.write(f"{ended.stdout[-1500:]}\n")
    sys.stdout.flush()
    return noticed


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
    """Run *test* on the code in *tree*, whatever is installed."""
    sources = [tree / "src", *sorted(tree.glob("backends/*/src"))]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", "120", test]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources)), "HYPOTHESIS_PROFILE": "ci"}
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
