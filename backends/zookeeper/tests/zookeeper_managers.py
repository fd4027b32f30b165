"""Managers, metadata and sessions on a server, as tests want them."""

from __future__ import annotations

from datetime import timedelta
from threading import Event
from typing import Any, cast

from kazoo.client import KazooClient

from millpond.checkpoint import Checkpoint, CheckpointId, SystemStreamPartition
from millpond.clock import SystemClock
from millpond.spi import JobContext, Listener, Transfers, VersionPolicy
from millpond_zookeeper import ZooKeeperCheckpoints, ZooKeeperCheckpointsConfig, ZooKeeperMetadata, ZooKeeperSettings
from millpond_zookeeper.connection import Connection

INPUT = SystemStreamPartition("kafka", "flights.in", 0)
TASK = "Partition 0"
SESSION = timedelta(seconds=4)
"""Short, for tests that wait for its end; a leader on a busy machine may lose it."""
LONG_SESSION = timedelta(seconds=30)


def job_context(job: str = "flights", job_id: str = "1") -> JobContext:
    return JobContext(job, job_id, None, cast(Listener, None), SystemClock(), cast(Transfers, None))


def manager_at(hosts: str, root: str, **settings: Any) -> ZooKeeperCheckpoints:
    given = {"session_timeout": SESSION, "timeout": timedelta(seconds=20), **settings}
    return ZooKeeperCheckpoints(
        ZooKeeperCheckpointsConfig(hosts=hosts, root=root, **given), job_context(), VersionPolicy()
    )


def metadata_at(hosts: str, root: str, **settings: Any) -> ZooKeeperMetadata:
    given = {"session_timeout": LONG_SESSION, "timeout": timedelta(seconds=20), **settings}
    return ZooKeeperMetadata(ZooKeeperSettings(hosts=hosts, root=root, **given), "flights")


def connection_of(manager: ZooKeeperCheckpoints | ZooKeeperMetadata) -> Connection:
    return manager._opened().connection


def checkpoint(millis: int, **fields: Any) -> Checkpoint:
    return Checkpoint(CheckpointId(millis, 0), offsets={INPUT: str(millis)}, **fields)


def ids_of(*millis: int) -> list[CheckpointId]:
    return [CheckpointId(each, 0) for each in millis]


def expire(hosts: str, connection: Connection) -> None:
    """End a session as the servers would after its time-out: a second client takes it over and closes it."""
    client = connection._client
    assert client is not None
    gone = Event()
    client.add_listener(lambda state: gone.set() if state == "LOST" else None)
    thief = KazooClient(hosts=hosts, client_id=client.client_id, timeout=SESSION.total_seconds())
    thief.start(15)
    thief.stop()
    thief.close()
    assert gone.wait(15), "the session did not end"


def tree(connection: Connection, path: str) -> list[str]:
    """Give the paths of all nodes below *path*."""
    below = [f"{path}/{name}" for name in sorted(connection.children(path, "look"))]
    return [each for node in below for each in (node, *tree(connection, node))]
