"""
The crash lab on Kafka: it starts a broker, and the trials keep their changes and their checkpoints there.

``python tests/programs/crash_kafka.py --seeds 0-300``; all arguments are those of the lab, but for
``--kill-the-server SECONDS``, which comes first: so often the broker dies, too, and is started again on its data. Each
trial has topics and transactional ids of its own, and removes the topics at its end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab_runs import Served, run_beside
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
def serve(folder: Path) -> Iterator[Served]:
    """Serve a broker."""
    if (reason := kafka.missing()) is not None:
        raise FileNotFoundError(reason)
    with kafka.serve(folder / "kafka", SETTINGS) as broker:

        def restart() -> None:
            broker.kill()
            broker.restart()

        yield Served(TEMPLATE.replace("ADDRESS", broker.address), restart=restart)


if __name__ == "__main__":
    sys.exit(run_beside("kafka", serve, sys.argv[1:]))
