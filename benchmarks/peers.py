"""
How fast a store comes back from a changelog topic on one broker: with us, with Quix Streams, and with Faust.

    python benchmarks/peers.py [--records 200000] [--repetitions 3] [--directory DIR]

Each has a topic of its own with the same records, since each has its own names and headers. Quix Streams and Faust run
in an environment of their own, which this program makes in the build folder. Ours is the opening of a task, claim and
fence included. Faust's time begins with its application: it shows no other moment; so what a run on one record takes is
taken off it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from changelog import Bench, changes, numbers, repeated
from confluent_kafka import Producer
from table import Row, at_least, show

from millpond_changelog.kafka.log import KafkaLog

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from services import kafka

PROGRAMS = Path(__file__).parent / "peers"
PLACE = Path(__file__).resolve().parents[1] / "build" / "peers"
NEEDED = ("quixstreams==3.28.1", "faust-streaming[rocksdict]==0.15.3", "aiokafka[lz4]")
QUIX = "orders"
FAUST = "totals"
QUIX_HEADERS: Sequence[tuple[str, bytes]] = (("__column_family__", b"default"), ("__processed_tp_offsets__", b"null"))


def install() -> Path:
    """Make the environment, unless it is there, and give its interpreter."""
    python = PLACE / "bin" / "python"
    if not (PLACE / "ready").exists():
        subprocess.run(["uv", "venv", "--quiet", "--clear", str(PLACE)], check=True, timeout=120)
        subprocess.run(["uv", "pip", "install", "--quiet", "-p", str(python), *NEEDED], check=True, timeout=600)
        (PLACE / "ready").touch()
    return python


class Peers:
    """The changelogs of both, and their recoveries."""

    def __init__(self, address: str, folder: Path, python: Path, count: int) -> None:
        self.address, self.folder, self.python, self.count = address, folder, python, count

    def fill(self) -> None:
        """Write the changelogs, and one record that makes Quix Streams begin."""
        self._write(f"changelog__quix--{QUIX}--default", self.count, QUIX_HEADERS)
        self._write(QUIX, 1)

    def _write(self, topic: str, count: int, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        log = KafkaLog([self.address])
        log.create(topic, 1, {"replication.factor": "1"})
        log.close()
        producer = Producer(
            {"bootstrap.servers": self.address, "linger.ms": 5, "compression.type": "lz4", "log_level": 2}
        )
        for number, (key, value) in enumerate(changes(count)):
            producer.produce(topic, value, key, 0, headers=list(headers))
            if number % 10_000 == 0:
                producer.flush(60)
        assert producer.flush(60) == 0

    def quix(self) -> float:
        """Give records a second."""
        return self.count / self._run("quix_recovery", QUIX)

    def faust(self) -> float:
        """Give records a second, without what a start costs by itself."""
        return self.count / max(0.001, self._faust(self.count) - self._faust(1))

    def _faust(self, count: int) -> float:
        """Give the seconds for *count* records, as an application of its own: an earlier one lingers in its group."""
        app = f"faust{next(numbers)}"
        self._write(f"{app}-{FAUST}-changelog", count)
        return self._run("faust_recovery", app, FAUST)

    def _run(self, program: str, *arguments: str) -> float:
        state = self.folder / f"{program}-{next(numbers)}"
        state.mkdir()
        words = [str(self.python), str(PROGRAMS / f"{program}.py"), self.address, *arguments, str(state)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
        said = done.stdout.split()
        if done.returncode or not said:
            raise SystemExit(f"{program} failed:\n{done.stderr[-2000:]}")
        return float(said[-1])


def main() -> None:
    """Start a broker, measure, print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--records", type=int, default=200_000)
    words.add_argument("--repetitions", type=int, default=3)
    words.add_argument("--directory", type=Path, default=None)
    given = words.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    python = install()
    with tempfile.TemporaryDirectory(dir=given.directory) as folder, kafka.serve(Path(folder, "kafka")) as broker:
        bench, peers = (
            Bench(broker.address, Path(folder, "ours")),
            Peers(broker.address, Path(folder), python, given.records),
        )
        bench.fill(given.records)
        peers.fill()
        ours: Callable[[], float] = lambda: bench.restore(given.records)[0]  # noqa: E731 - one of three measures
        us, quix, faust = repeated(given.repetitions, ours, peers.quix, peers.faust)
    what = f"restore {given.records:,} records from empty, beside"
    show(
        [
            Row(f"{what} Quix Streams", us, quix, "1/s", ">= 2x", at_least(2.0)),
            Row(f"{what} Faust", us, faust, "1/s", ">= 2x", at_least(2.0)),
        ]
    )


if __name__ == "__main__":
    main()
