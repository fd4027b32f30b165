"""
One session with an ensemble: opened by the first call, repaired when it was lost, and never waited for without an end.

kazoo's own synchronous calls wait for ever where there is no quorum. Here each request is sent only while there is a
connection, and its answer is waited for until the call's deadline.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Condition, Lock
from typing import Any, TypeVar

from attrs import define, field
from kazoo.client import KazooClient, TransactionRequest
from kazoo.protocol.serialization import Auth
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import ACL, Id, Permissions

from millpond.errors import ConfigError, StoreClosedError, TransientError
from millpond_zookeeper.failures import LOST, LostAnswerError, is_answer, reason_of, translated
from millpond_zookeeper.settings import ZooKeeperSettings

T = TypeVar("T")
Send = Callable[[KazooClient], Any]
"""Sends a request and gives kazoo's object for its answer."""

_LONGEST_PAUSE_S = 1.0
_PERMISSIONS = {
    "c": Permissions.CREATE,
    "r": Permissions.READ,
    "w": Permissions.WRITE,
    "d": Permissions.DELETE,
    "a": Permissions.ADMIN,
}

log = logging.getLogger("millpond.zookeeper")


def _shows_no_secret(record: logging.LogRecord) -> bool:
    """Whether a line of kazoo's may be logged: not a request that carries credentials, nor a session's password."""
    values = record.args if isinstance(record.args, tuple) else ()
    return "passwd" not in str(record.msg) and not any(isinstance(value, Auth) for value in values)


log.addFilter(_shows_no_secret)


def permissions(rules: list[tuple[str, str, str]]) -> list[ACL]:
    """Give kazoo's form of an ACL."""
    return [ACL(sum(_PERMISSIONS[letter] for letter in set(given)), Id(scheme, id)) for scheme, id, given in rules]


@define(eq=False)
class Connection:
    """
    The session. Any thread may use it.

    Attributes:
        settings: Where and how.
        on_state: Told of kazoo's states on its own thread; must be quick.
    """

    settings: ZooKeeperSettings
    on_state: Callable[[str], None] | None = None
    _client: KazooClient | None = field(default=None, init=False)
    _changed: Condition = field(factory=Condition, init=False)
    _opening: Lock = field(factory=Lock, init=False)
    _closed: bool = field(default=False, init=False)
    _negotiated_s: float | None = field(default=None, init=False)

    # Requests

    def deadline(self) -> float:
        """Give the moment, by the monotonic clock, at which a call that begins now is given up."""
        return time.monotonic() + self.settings.timeout.total_seconds()

    def read(self, send: Send, doing: str, until: float | None = None) -> Any:
        """
        Ask what may be asked again, and give the answer; kazoo's own errors of the kind ``ANSWERS`` come through.

        Raises:
            TransientError: There was no answer in time.
            ConfigError: The operator has to do something.
        """
        until = self.deadline() if until is None else until
        while True:
            try:
                return self.change(send, doing, until)
            except LostAnswerError:
                if time.monotonic() >= until:
                    raise

    def change(self, send: Send, doing: str, until: float | None = None) -> Any:
        """
        Ask once, and give the answer.

        Raises:
            LostAnswerError: It may have been carried out.
            TransientError: It was not sent, for want of a connection.
        """
        until = self.deadline() if until is None else until
        client = self._connected(doing, until)
        try:
            return send(client).get(timeout=max(0.0, until - time.monotonic()))
        except LOST as error:
            if is_answer(error):
                raise
            raise translated(error, doing, self.settings.hosts) from error

    def multi(self, build: Callable[[TransactionRequest], None], doing: str, until: float | None = None) -> list[Any]:
        """Do all that *build* puts together, or nothing: then the reason is raised. Once, as ``change``."""

        def send(client: KazooClient) -> Any:
            request = client.transaction()
            build(request)
            return request.commit_async()

        results: list[Any] = self.change(send, doing, until)
        if (reason := reason_of(results)) is not None:
            if is_answer(reason):
                raise reason
            raise translated(reason, doing, self.settings.hosts) from reason
        return results

    # What most callers ask

    def get(self, path: str, doing: str, until: float | None = None) -> tuple[bytes, Any]:
        """Give a node's data and state as they are now: not as a server that lags behind has them."""

        def send(client: KazooClient) -> Any:
            client.sync_async(path)
            return client.get_async(path)

        data, state = self.read(send, doing, until)
        return data or b"", state

    def children(self, path: str, doing: str, until: float | None = None) -> list[str]:
        """Give the names below a node as they are now."""

        def send(client: KazooClient) -> Any:
            client.sync_async(path)
            return client.get_children_async(path)

        return list(self.read(send, doing, until))

    def ensure(self, path: str, doing: str, until: float | None = None) -> None:
        """Make a node and all above it, where they are missing. Those above the root are everybody's to build on."""
        above = self.settings.root.rpartition("/")[0]
        if above:
            shared = permissions(self.settings.rules_above())
            self.read(lambda client: client.ensure_path_async(above, acl=shared), doing, until)
        self.read(lambda client: client.ensure_path_async(path), doing, until)

    # The session

    @property
    def session(self) -> int | None:
        """The session's number; None while there is none."""
        client = self._client
        identity = client.client_id if client is not None else None
        return None if identity is None else identity[0]

    @property
    def negotiated_s(self) -> float:
        """The session's time-out as the servers granted it, in seconds; what was asked for until they have."""
        return self._negotiated_s or self.settings.session_timeout.total_seconds()

    def close(self) -> None:
        """End the session; idempotent. What others wait for ends with StoreClosedError."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with self._opening:
            client, self._client = self._client, None
        if client is not None:
            _stop(client)

    def _connected(self, doing: str, until: float) -> KazooClient:
        """Give a client that has a connection, waiting for one if need be."""
        while True:
            if time.monotonic() >= until:
                raise TransientError(
                    f"ZooKeeper ({self.settings.hosts}): {doing}: not done in time; are a majority of the servers "
                    "running and reachable?"
                )
            client = self._living()
            with self._changed:
                fit = self._changed.wait_for(
                    lambda client=client: self._closed or client.connected,  # type: ignore[misc]
                    max(0.0, min(until - time.monotonic(), _LONGEST_PAUSE_S)),
                )
            if self._closed:
                raise _closed()
            if fit and client.connected:
                return client
            if client.client_state == KeeperState.AUTH_FAILED:
                raise ConfigError(
                    f"ZooKeeper ({self.settings.hosts}): {doing}: the credentials are refused: correct them"
                )

    def _living(self) -> KazooClient:
        """Give the client, a new one if there is none or if the last one gave up."""
        with self._opening:
            if self._closed:
                raise _closed()
            if self._client is not None and _gave_up(self._client):
                dead, self._client = self._client, None
                _stop(dead)
            if self._client is None:
                self._client = self._started()
            return self._client

    def _started(self) -> KazooClient:
        settings = self.settings
        secret = None if settings.password is None else settings.password.reveal()
        client = KazooClient(
            hosts=settings.hosts,
            timeout=settings.session_timeout.total_seconds(),
            auth_data=[("digest", f"{settings.user}:{secret}")] if secret is not None else None,
            default_acl=permissions(settings.rules()),
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0},
            logger=log,
            use_ssl=settings.tls,
            verify_certs=True,
            check_hostname=settings.tls,
            **_certificates(settings),
        )
        client.add_listener(self._hear)
        self._watch_timeout(client)
        client.start_async()
        return client

    def _watch_timeout(self, client: KazooClient) -> None:
        """Learn the time-out that the servers grant: kazoo gives it to nobody, and a leader's lease hangs on it."""
        connection = client._connection  # noqa: SLF001
        connect = connection._connect  # noqa: SLF001

        def noting(*address: Any) -> tuple[float, float]:
            read_timeout, connect_timeout = connect(*address)
            self._negotiated_s = read_timeout * 1.5 / 1000  # kazoo reads for two thirds of it
            return read_timeout, connect_timeout

        connection._connect = noting  # noqa: SLF001

    def _hear(self, state: str) -> None:
        if state == KazooState.LOST:
            self._negotiated_s = None
        with self._changed:
            self._changed.notify_all()
        if self.on_state is not None:
            self.on_state(state)


def _certificates(settings: ZooKeeperSettings) -> dict[str, Any]:
    password = settings.key_password
    paths = {"ca": settings.ca, "certfile": settings.certificate, "keyfile": settings.key}
    found: dict[str, Any] = {name: str(path) for name, path in paths.items() if path is not None}
    return found if password is None else {**found, "keyfile_password": password.reveal()}


def _gave_up(client: KazooClient) -> bool:
    """Whether its connecting thread has ended: kazoo starts no other one."""
    routine = client._connection._connection_routine  # noqa: SLF001
    return routine is None or not routine.is_alive()


def _stop(client: KazooClient) -> None:
    """End a client's session and threads. One that does not end in time is left behind, and said to be."""
    try:
        client.stop()
        client.close()
    except LOST as error:
        log.warning("a session with ZooKeeper could not be ended: %s; its servers end it by its time-out", error)


def _closed() -> StoreClosedError:
    return StoreClosedError("this connection to ZooKeeper is closed: reopen the job")
