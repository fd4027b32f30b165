"""
The crash lab on Kafka: it starts a broker, and the trials keep their changes and their checkpoints there.

``python tests/programs/crash_kafka.py --seeds 0-300``; all arguments are those of the lab, but for
``--kill-the-broker SECONDS``, which comes first: so often the broker dies, too, and is started again on its data. Each
trial has topics and transactional ids of its own, and removes the topics at its end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab_runs import run_beside
from services import kafka

TEMPLATE = """
[job]
name = "{trial}"

[checkpoint]
manager = "kafka"
bootstrap_servers = ["ADDRESS"]
replication_factor = 1

[backends.main]
type = "changelog"
bootstrap_servers = ["ADDRESS"]
replication_factor = 1
partitions = 1
"""
# The broker forgets removed topics at once: there are four for each trial, in memory.
SETTINGS = {"log.segment.delete.delay.ms": 100}


@contextmanager
def serve(folder: Path, kill_every_s: float | None = None) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Serve a broker, which may die now and then."""
    if (reason := kafka.missing()) is not None:
        raise FileNotFoundError(reason)
    with kafka.serve(folder / "kafka", SETTINGS) as broker:
        ended, kills = Event(), list[float]()
        killer = Thread(target=_kill, args=(broker, kill_every_s, ended, kills))
        killer.start()
        try:
            yield TEMPLATE.replace("ADDRESS", broker.address), {}
        finally:
            ended.set()
            killer.join()
        if kills:
            sys.stderr.write(f"the broker was killed {len(kills)} times, and away for {max(kills):.1f} s at most\n")


def _kill(broker: kafka.Broker, every_s: float | None, ended: Event, kills: list[float]) -> None:
    """Kill *broker* so often until *ended*; note how long it was away each time."""
    while every_s is not None and not ended.wait(every_s):
        died = time.monotonic()
        broker.kill()
        broker.restart()
        kills.append(time.monotonic() - died)


def main(arguments: list[str]) -> int:
    """Run the lab with *arguments*; give its exit code."""
    if arguments[:1] == ["--kill-the-broker"]:
        return run_beside("kafka", partial(serve, kill_every_s=float(arguments[1])), arguments[2:])
    return run_beside("kafka", serve, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
