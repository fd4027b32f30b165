"""A process that claims and commits, and kills itself at a step."""

from __future__ import annotations

import os
import signal
import sys

from millpond import points
from millpond.checkpoint import Checkpoint, CheckpointId, SystemStreamPartition
from millpond.clock import SystemClock
from millpond.spi import JobContext, VersionPolicy
from millpond_changelog.checkpoints.manager import KafkaCheckpoints
from millpond_changelog.checkpoints.settings import KafkaCheckpointsSettings


def main(job: str, step: str) -> None:
    """Claim the task, and commit; die at *step*."""

    def look(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    points.arm(look)
    context = JobContext(job, "1", None, lambda event: None, SystemClock(), None)  # type: ignore[arg-type]
    config = KafkaCheckpointsSettings(bootstrap_servers=os.environ["MILLPOND_CHILD_KAFKA"], replication_factor=1)
    manager = KafkaCheckpoints(config, context, VersionPolicy())
    claim = manager.claim("t")
    last = manager.read_last("t")
    offsets = {SystemStreamPartition("kafka", "dotted.input.topic", 0): "2"}
    manager.write(claim, Checkpoint(CheckpointId(2, 0), offsets), after=None if last is None else last.id)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
