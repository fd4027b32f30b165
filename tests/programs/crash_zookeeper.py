"""
The crash lab on ZooKeeper's checkpoint manager: it starts a server, and the trials keep their checkpoints there.

``python tests/programs/crash_zookeeper.py --seeds 0-300``; all arguments are those of the lab, but for
``--kill-the-server SECONDS``, which comes first: so often the server dies, too, and is started again on its data. The
state lies in local images and in a folder by ``rocksdb-local``. Nodes are so small that some checkpoints lie in parts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab_runs import Served, run_beside
from services import zookeeper

TEMPLATE = """
[checkpoint]
manager = "zookeeper"
hosts = "HOSTS"
root = "/lab/{trial}"
max_node = "800B"

[backends.main]
type = "rocksdb-local"
path = "{root}/backup"
grace = "0s"
"""


@contextmanager
def serve(folder: Path) -> Iterator[Served]:
    """Serve one server."""
    if (reason := zookeeper.missing()) is not None:
        raise FileNotFoundError(reason)
    with zookeeper.serve(folder / "zookeeper", preAllocSize=4096) as ensemble:
        (server,) = ensemble.servers

        def restart() -> None:
            server.kill()
            server.start()
            server.await_ready()

        yield Served(TEMPLATE.replace("HOSTS", ensemble.hosts), restart=restart)


if __name__ == "__main__":
    sys.exit(run_beside("zookeeper", serve, sys.argv[1:]))
