"""
What records and a coordinator's metadata in ZooKeeper cost beside bare kazoo, and how long a failure stands in the way.

    python tests/services/zookeeper.py        once: fetches the server
    python benchmarks/coordination.py [--repetitions 200] [--kills 5] [--directory DIR]

One server for the costs, three for the kills; all on this machine, each with a disk of its own folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

from kazoo.client import KazooClient
from table import Row, show

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from services import zookeeper

from millpond.checkpoint import Checkpoint, CheckpointId, SystemStreamPartition
from millpond.clock import SystemClock
from millpond.events import Listener
from millpond.formats import record as record_format
from millpond.spi import JobContext, Transfers, VersionPolicy
from millpond_zookeeper import ZooKeeperCheckpoints, ZooKeeperCheckpointsConfig, ZooKeeperMetadata, ZooKeeperSettings

TASK = "Partition 0"
SESSION = timedelta(seconds=6)


def manager_at(hosts: str) -> ZooKeeperCheckpoints:
    """Give a manager for an ensemble."""
    context = JobContext("bench", "1", None, cast(Listener, None), SystemClock(), cast(Transfers, None))
    config = ZooKeeperCheckpointsConfig(hosts=hosts, session_timeout=SESSION)
    return ZooKeeperCheckpoints(config, context, VersionPolicy())


def checkpoint(number: int) -> Checkpoint:
    """Give a checkpoint of ten inputs and ten stores."""
    inputs = {SystemStreamPartition("kafka", "flights", n): str(number) for n in range(10)}
    return Checkpoint(CheckpointId(number, 0), inputs, {"main": {f"store-{n}": f"{number}-{n}" * 4 for n in range(10)}})


def timed(work: Callable[[int], object], count: int) -> list[float]:
    """Give the milliseconds of each of *count* calls."""
    times = []
    for number in range(1, count + 1):
        begun = time.perf_counter()
        work(number)
        times.append((time.perf_counter() - begun) * 1e3)
    return times


@contextmanager
def bare(hosts: str) -> Iterator[KazooClient]:
    """Give a kazoo client of its own."""
    client = KazooClient(hosts=hosts)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def records(hosts: str, count: int) -> list[Row]:
    """Measure a task's records beside the same bytes by bare kazoo."""
    data = record_format.encode_checkpoint(checkpoint(1))
    with bare(hosts) as client, closing(manager_at(hosts)) as manager:
        client.create("/bare", b"x" * 300)
        claim = manager.claim(TASK)

        def bare_write(number: int) -> None:
            request = client.transaction()
            request.set_data("/bare", b"x" * 300)
            request.create(f"/bare/{number}", data)
            request.commit()

        def write(number: int) -> None:
            manager.write(claim, checkpoint(number), after=None)

        rows = [(f"write a checkpoint of {len(data):,} bytes", timed(write, count), timed(bare_write, count))]
        rows += [("read the last one", timed(lambda _: manager.read_last(TASK), count),
                  timed(lambda number: client.get(f"/bare/{number}"), count))]  # fmt: skip
        rows += [("claim", timed(lambda _: manager.claim(TASK), count // 10), [])]
    return [Row(name, ours, beside, "ms", "", bool) for name, ours, beside in rows]


def coordinator(hosts: str, count: int) -> list[Row]:
    """Measure the coordinator's record beside a bare set, and the check that comes before each act."""
    with bare(hosts) as client, ZooKeeperMetadata(ZooKeeperSettings(hosts=hosts), "bench") as metadata:
        leadership = metadata.lead("bench", 60)
        client.create("/record", b"")
        last: list[str | None] = [None]

        def write(_number: int) -> None:
            last[0] = metadata.write(leadership, b"x" * 10_000, last[0])

        rows = [("write a coordinator's record of 10 kB", timed(write, count),
                 timed(lambda _: client.set("/record", b"x" * 10_000), count))]  # fmt: skip
        rows += [("check a leadership", timed(lambda _: leadership.check(), count), [])]
    return [Row(name, ours, beside, "ms", "", bool) for name, ours, beside in rows]


def takeovers(hosts: str, count: int) -> list[Row]:
    """Measure from a leader's SIGKILL to a standby that leads."""
    code = (
        "import sys; from millpond_zookeeper import *; from datetime import timedelta\n"
        f"session = timedelta(seconds={SESSION.seconds})\n"
        "m = ZooKeeperMetadata(ZooKeeperSettings(hosts=sys.argv[1], session_timeout=session), 'b')\n"
        "m.lead('child', 60); print('leads', flush=True); sys.stdin.read()"
    )
    took = []
    for _ in range(count):
        with ZooKeeperMetadata(ZooKeeperSettings(hosts=hosts, session_timeout=SESSION), "b") as standby:
            child = subprocess.Popen([sys.executable, "-c", code, hosts], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.readline()
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(standby.lead, "standby", 60.0)
                begun = time.perf_counter()
                child.kill()
                waiting.result().resign()
                took.append(time.perf_counter() - begun)
            child.communicate()
    return [Row(f"takeover after SIGKILL, sessions of {SESSION.seconds} s", took, [], "s", "", bool)]


def kills(ensemble: zookeeper.Ensemble, count: int) -> list[Row]:
    """Measure from the SIGKILL of the ensemble's leader to the next checkpoint."""
    took = []
    with closing(manager_at(ensemble.hosts)) as manager:
        claim = manager.claim(TASK)
        for number in range(1, count + 1):
            manager.write(claim, checkpoint(2 * number), after=None)
            leader = ensemble.leader()
            begun = time.perf_counter()
            leader.kill()
            manager.write(claim, checkpoint(2 * number + 1), after=None)
            took.append(time.perf_counter() - begun)
            leader.start()
            leader.await_ready()
    return [Row("next checkpoint after the ensemble's leader was killed", took, [], "s", "", bool)]


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--repetitions", type=int, default=200)
    words.add_argument("--kills", type=int, default=5)
    words.add_argument("--directory", type=Path, default=None)
    given = words.parse_args()
    if (reason := zookeeper.missing()) is not None:
        sys.exit(reason)
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        with zookeeper.serve(Path(folder) / "one") as one:
            rows = records(one.hosts, given.repetitions) + coordinator(one.hosts, given.repetitions)
            rows += takeovers(one.hosts, given.kills)
        with zookeeper.serve(Path(folder) / "three", 3) as three:
            rows += kills(three, given.kills)
    show(rows)


if __name__ == "__main__":
    main()
