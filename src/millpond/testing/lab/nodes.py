"""What ZooKeeper holds of a trial's task and nothing needs: claims of earlier owners, parts that no record leads to."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from millpond.config import JobConfig
from millpond.reading import JobReader
from millpond.testing.lab.world import TASK

_MANAGER = "zookeeper"


def needless_nodes(config: JobConfig) -> list[str]:
    """Give such nodes, once the last owner has ended; none where the manager is another."""
    if config.checkpoint.manager != _MANAGER:
        return []
    with JobReader(config) as reader:
        rooms = importlib.import_module("millpond_zookeeper.rooms")
        with closing(rooms.JobRoom.of(config.checkpoint.settings, reader.context.job, reader.context.job_id)) as room:
            return list(_needless(room.ledger(TASK).history))


def _needless(history: Any) -> Iterator[str]:
    """Compare what is there with what the head and the records name: each of those was read, so it is whole."""
    known = importlib.import_module("millpond_zookeeper.shelf")
    paths, connection = history.paths, history.connection
    owners = connection.children(paths.owners, f"list {paths.owners}")
    current = history.read_head().head.claim.writer
    yield from (f"{paths.owners}/{owner}" for owner in owners if owner != current)
    parts = history.shelves.here.names()
    handles = [kept for kept in history.all_kept() if known.is_handle(kept)]
    if len(parts) != len(handles):
        yield f"{len(parts)} things in parts below {paths.parts}, of which {len(handles)} are needed"
