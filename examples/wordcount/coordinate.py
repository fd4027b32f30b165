"""One coordinator of the word count, in a process of its own; of the two, one leads and one stands by."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from task import read_ground
from topology import JOB

from millpond.coordinator import Coordinator, TcpCoordinatorEnd, in_directory


def main() -> None:
    """Lead or stand by until this process is killed."""
    number = int(sys.argv[1])
    logging.basicConfig(format=f"%(asctime)s coordinator-{number} %(levelname)s %(message)s", level=logging.INFO)
    ground = read_ground(Path(sys.argv[2]))
    with in_directory(ground.records, JOB) as metadata:
        address = ground.addresses[number]
        Coordinator(
            ground.settings,
            metadata,
            lambda: TcpCoordinatorEnd(address, ground.trust),
            candidate=f"coordinator-{number}",
        ).run()


if __name__ == "__main__":
    main()
