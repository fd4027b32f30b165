"""A job's nodes: made, tried, listed, and a ledger for each task."""

from __future__ import annotations

import secrets
from contextlib import suppress

from attrs import frozen
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from millpond.checkpoints.directory import DirectoryFolder
from millpond.errors import ConfigError, MillpondError
from millpond.local import escape_name, job_folder, unescape_name
from millpond_zookeeper.connection import Connection
from millpond_zookeeper.failures import LostAnswerError
from millpond_zookeeper.history import TaskHistory
from millpond_zookeeper.layout import TaskPaths, job_path, tasks_path
from millpond_zookeeper.ledger import TaskLedger
from millpond_zookeeper.settings import ZooKeeperSettings
from millpond_zookeeper.shelf import Outside, Parts, Shelves

_PROBE = ".probe-"


@frozen
class JobRoom:
    """
    The part of the tree that is one job's. Any thread may use it.

    Attributes:
        connection: The session that all of its ledgers share.
        job: The job's name.
        job_id: Its id.
    """

    connection: Connection
    job: str
    job_id: str

    @classmethod
    def of(cls, settings: ZooKeeperSettings, job: str, job_id: str) -> JobRoom:
        """Give a job's room; nothing is sent yet."""
        return cls(Connection(settings), job, job_id)

    def create(self) -> None:
        """Make the node above the tasks, and those above it."""
        self.connection.ensure(self._tasks, f"make {self._tasks}")

    def tasks(self) -> list[str]:
        """Give the names of all tasks, sorted."""
        try:
            names = self.connection.children(self._tasks, f"list {self._tasks}")
        except NoNodeError:
            return []
        return sorted(task for task in map(_task_of, names) if task is not None)

    def ledger(self, task: str) -> TaskLedger:
        """Give a task's ledger; ConfigError if its name is too long."""
        paths = TaskPaths.of(self.connection.settings.root, self.job, self.job_id, task)
        folder = f"{job_folder(self.job, self.job_id)}/tasks/{escape_name(task)}"
        return TaskLedger(TaskHistory(task, self.connection, paths, shelves(self.connection, paths.parts, folder)))

    def probe(self) -> None:
        """
        Try what everything here relies on, in nodes that are removed again.

        Raises:
            ConfigError: A permission is missing, or the largest request is refused.
        """
        path = f"{self.node}/{_PROBE}{secrets.token_hex(8)}"
        self.connection.ensure(self.node, f"make {self.node}")
        try:
            probe_conditions(self.connection, path)
            _probe_size(self.connection, path)
        finally:
            with suppress(MillpondError, NoNodeError):
                self.connection.read(lambda client: client.delete_async(path, -1), f"remove {path}")

    def close(self) -> None:
        """End the session; idempotent."""
        self.connection.close()

    @property
    def node(self) -> str:
        """The job's node."""
        return job_path(self.connection.settings.root, self.job, self.job_id)

    @property
    def _tasks(self) -> str:
        return tasks_path(self.connection.settings.root, self.job, self.job_id)


def shelves(connection: Connection, parts: str, folder: str) -> Shelves:
    """Give the shelves for what is larger than a node: *parts* is a node, *folder* lies below the setting ``large``."""
    settings = connection.settings
    here = Parts(connection, parts)
    if settings.large is None:
        return Shelves(here, (), settings.max_node)
    root = settings.large.absolute()
    return Shelves(Outside(DirectoryFolder(root / folder, root)), (here,), settings.max_node)


def probe_conditions(connection: Connection, path: str) -> None:
    """Try to create, read and set the node *path*, and that what must be refused is."""
    with suppress(NodeExistsError):  # an answer that was lost; the name is random
        connection.read(lambda client: client.create_async(path, b"1"), f"make {path}")
    _, state = connection.get(path, f"read {path}")
    with suppress(BadVersionError):  # likewise
        connection.read(lambda client: client.set_async(path, b"2", state.version), f"set {path}")
    data, now = connection.get(path, f"read {path}")
    if data != b"2" or now.version == state.version:
        raise ConfigError(f"ZooKeeper ({connection.settings.hosts}) does not give back what was set at {path}")
    _expect_refusal(connection, path, state.version)


def _expect_refusal(connection: Connection, path: str, stale: int) -> None:
    def build(request: object) -> None:
        request.set_data(path, b"3", stale)  # type: ignore[attr-defined]
        request.delete(path)  # type: ignore[attr-defined]

    try:
        connection.multi(build, f"try a stale version at {path}")
    except BadVersionError:
        return
    raise ConfigError(f"ZooKeeper ({connection.settings.hosts}) lets a stale version win: it cannot keep records")


def _probe_size(connection: Connection, path: str) -> None:
    """Try whether the servers take a node as large as the settings allow: a larger request ends the connection."""
    size = connection.settings.max_node
    until = connection.deadline()
    for _ in range(2):
        try:
            connection.change(lambda client: client.set_async(path, bytes(size)), f"set {path}", until)
        except LostAnswerError:
            continue
        return
    connection.get(path, f"read {path}")  # TransientError: the request was not to blame
    raise ConfigError(
        f"ZooKeeper ({connection.settings.hosts}) drops the connection at a request of {size:,} bytes: set max_node "
        "below the servers' jute.maxbuffer"
    )


def _task_of(node: str) -> str | None:
    try:
        return unescape_name(node)
    except ValueError:
        return None
