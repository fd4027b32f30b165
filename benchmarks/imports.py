"""
What importing Millpond and asking its command for help cost beside the libraries below them, in child processes.

    python benchmarks/imports.py [--repetitions 20]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from table import Row, at_most, show

COMMAND = Path(sys.executable).with_name("millpond")
DRIVERS = ("boto3", "botocore", "confluent_kafka", "fsspec", "kazoo", "obstore", "rocksdict", "s3fs")
LOADED = f"print(len({set(DRIVERS)!r} & set(sys.modules)))"


def measure(commands: Mapping[str, Sequence[str]], repetitions: int) -> dict[str, list[float]]:
    """Run all *commands* in turn, again and again, and give the milliseconds of each run."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(repetitions + 1):
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if number:  # the first run of each fills the page cache
                times[name].append((time.perf_counter() - begun) * 1e3)
    return times


def drivers_loaded() -> list[float]:
    """Give how many drivers are loaded by the import, and by the help."""
    by_import = f"import sys, millpond; {LOADED}"
    by_help = f"import sys; from millpond.cli import main; main(['--help'], standalone_mode=False); {LOADED}"
    outputs = [subprocess.check_output([sys.executable, "-c", code], text=True) for code in (by_import, by_help)]
    return [float(output.split()[-1]) for output in outputs]


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--repetitions", type=int, default=20)
    given = words.parse_args()
    python = [sys.executable, "-c"]
    times = measure(
        {
            "millpond": [*python, "import millpond"],
            "attrs": [*python, "import attrs"],
            "help": [str(COMMAND), "--help"],
            "click": [*python, "import click"],
        },
        given.repetitions,
    )
    show(
        [
            Row(
                "import millpond beside import attrs", times["millpond"], times["attrs"], "ms", "<= 1.5x", at_most(1.5)
            ),
            Row("millpond --help / import click", times["help"], times["click"], "ms", "<= 2x", at_most(2.0)),
            Row("drivers loaded by either", [max(drivers_loaded())], [], "", "0", at_most(0)),
        ]
    )


if __name__ == "__main__":
    main()
