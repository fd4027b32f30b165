"""
How long Faust takes to recover a table from its changelog, in an environment that has faust-streaming[rocksdict].

    python faust_recovery.py BROKER APPLICATION TABLE STATE_FOLDER

The changelog `APPLICATION-TABLE-changelog` is there. It prints the seconds from the application's start, joining the
group included, to the end of the recovery, by Faust's own signal.
"""

from __future__ import annotations

import os
import sys
import time

import faust


def main() -> None:
    """Recover once."""
    broker, name, table, folder = sys.argv[1:]
    begun = time.perf_counter()
    app = faust.App(
        name,
        broker=f"kafka://{broker}",
        store="rocksdb://",
        datadir=folder,
        topic_partitions=1,
        topic_replication_factor=1,
        web_enabled=False,
        topic_disable_leader=True,
    )
    app.Table(table, key_type=bytes, value_type=bytes, partitions=1)

    @app.task
    async def done() -> None:
        await app.tables.recovery.completed.wait()
        print(time.perf_counter() - begun, flush=True)
        os._exit(0)  # leaving the group in good order is not what is measured

    worker = faust.Worker(app, loglevel="ERROR", redirect_stdouts=False)
    worker.execute_from_commandline()


if __name__ == "__main__":
    main()
