"""
All benchmarks, one after another and each in its own process, as one Markdown table.

    python benchmarks/run.py [--quick] [--only imports,commits] [--directory DIR]

What a program says besides its table goes to stderr. The exit code is 1 if a program fails, not if a goal is missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from table import cells_in, show_cells

HERE = Path(__file__).parent
QUICK = {
    "imports": ["--repetitions", "7"],
    "restart": ["--gigabytes", "0.1", "--repetitions", "3"],
    "memory": ["--megabytes", "200", "--repetitions", "1"],
    "stores": ["--keys", "50000", "--repetitions", "3"],
    "commits": ["--gigabytes", "0.5", "--repetitions", "3", "--stores", "200"],
    "objects": ["--gigabytes", "0.2", "--repetitions", "3"],
    "object_sizes": ["--keys", "100000", "--commits", "24", "--repetitions", "1"],
    "coordinator": ["--tasks", "300", "--repetitions", "2"],
    "changelog": ["--records", "100000", "--puts", "30000", "--repetitions", "3"],
    "kafka_checkpoints": ["--records", "30000", "--commits", "20", "--repetitions", "3"],
    "hosts_kafka": ["--records", "60000", "--gigabytes", "0.2", "--repetitions", "3"],
    "heron": ["--seconds", "1", "--repetitions", "3"],
}
"""The programs in their order, with what makes each quick."""
NO_FOLDER = ("imports",)


def run(program: str, quick: bool, folder: Path) -> list[tuple[str, ...]]:
    """Run *program*, and give the rows of its table."""
    words = [*(QUICK[program] if quick else []), *([] if program in NO_FOLDER else ["--directory", str(folder)])]
    print(f"# {program} {' '.join(words)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, str(HERE / f"{program}.py"), *words], check=True, stdout=subprocess.PIPE, text=True
    )
    print(done.stdout, file=sys.stderr, flush=True)
    return cells_in(done.stdout)


def main() -> None:
    """Run them all and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--quick", action="store_true", help="smaller and fewer, in a few minutes")
    words.add_argument("--only", default=",".join(QUICK), help="some of %(default)s")
    words.add_argument("--directory", type=Path, default=None, help="where the databases are made; on a real disk")
    given = words.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        rows = [row for program in given.only.split(",") for row in run(program, given.quick, Path(folder))]
    show_cells(rows)


if __name__ == "__main__":
    main()
