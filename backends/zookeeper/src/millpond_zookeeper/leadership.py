"""
A leadership that hangs on a session: renewed by a thread of its own, and lost by the local clock before anybody else
can have it.
"""

from __future__ import annotations

import logging
import time
from threading import Event, Lock, Thread, current_thread

from attrs import define, field
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import BadVersionError, NoNodeError

from millpond.coordinator.metadata import Leadership
from millpond.errors import FencedError, FormatError, MillpondError, StateCorruptError, StoreClosedError, TransientError
from millpond_zookeeper.connection import Connection
from millpond_zookeeper.coordinator_nodes import CoordinatorPaths, decode_leader
from millpond_zookeeper.lease import beat_interval_s, lease_end, now_s

_SHORTEST_BEAT_S = 0.05

log = logging.getLogger("millpond.zookeeper")


@define(eq=False)
class SessionLeadership(Leadership):
    """
    Of one coordinator, in one session. Any thread may use it.

    Attributes:
        candidate: Who was elected.
        epoch: Its number.
        token: Random; no other leadership has it.
        version: Of the node ``epoch`` since this election.
        session: The session that holds the node ``leading``.
    """

    candidate: str
    epoch: int
    token: str
    version: int
    session: int
    _connection: Connection
    _paths: CoordinatorPaths
    _until: float
    _lost: str | None = field(default=None, init=False)
    _lock: Lock = field(factory=Lock, init=False)
    _ended: Event = field(factory=Event, init=False)
    _thread: Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin to renew it."""
        self._thread = Thread(target=self._keep, name=f"millpond-leader-{self.epoch}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Return while nobody else can have been elected; by the local clock, without a request."""
        if self._lost is None and now_s() >= self._until:
            self.lose("no server has confirmed its session in time")
        if self._lost is not None:
            raise FencedError(f"{self.candidate!r} (epoch {self.epoch}) leads no more: {self._lost}; stand anew")

    def is_lost(self) -> bool:
        """Whether it is lost."""
        return self._lost is not None or now_s() >= self._until

    def lose(self, reason: str) -> None:
        """Be lost for good; idempotent, from any thread."""
        with self._lock:
            self._lost = self._lost or reason
        self._ended.set()

    def resign(self) -> None:
        """Give it back; waits half a time-out at most for the answer, and a thread for as long as it takes."""
        self.lose("it was given back")
        if current_thread() is not self._thread:
            self._thread.join(self._connection.negotiated_s / 2)

    def is_running(self) -> bool:
        """Whether its thread has something to do still: to renew it, or to give it back."""
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread of a leadership that is lost and whose connection is closed."""
        self._thread.join(timeout_s)

    def condition(self, request: TransactionRequest) -> None:
        """Let a multi-operation fail unless this leadership still holds."""
        request.check(self._paths.epoch, self.version)
        request.check(self._paths.leading, -1)

    def _keep(self) -> None:
        """Renew until it is lost; then remove the node, so that a standby need not wait for the time-out."""
        while not self._ended.wait(self._pause_s()):
            try:
                self._renew()
            except StoreClosedError:
                self.lose("its connection was closed")
            except MillpondError as error:
                log.warning("the leadership of %r was not renewed: %s", self.candidate, error)
            if self.is_lost():
                self.lose("no server has confirmed its session in time")
        self._give_back()

    def _pause_s(self) -> float:
        return max(_SHORTEST_BEAT_S, beat_interval_s(self._connection.negotiated_s))

    def _renew(self) -> None:
        sent, path = now_s(), self._paths.leading

        def send(client: KazooClient) -> object:
            client.sync_async(path)
            return client.get_async(path)

        try:
            data, state = self._connection.change(send, "renew a leadership", time.monotonic() + self._until - sent)
            mine = state.ephemeralOwner == self.session and decode_leader(data).token == self.token
        except NoNodeError:
            mine = False
        except (FormatError, StateCorruptError) as error:
            return self.lose(f"its node cannot be read: {error}")
        if not mine:
            return self.lose("its session has expired")
        self._until = max(self._until, lease_end(sent, self._connection.negotiated_s))
        return None

    def _give_back(self) -> None:
        """Remove the node as long as it is this leadership's; a session that has expired took it along."""
        while self._connection.session in (self.session, None):
            try:
                self._connection.multi(self._remove, "give a leadership back")
            except (NoNodeError, BadVersionError):
                return
            except StoreClosedError:
                return  # The session ends with the connection, and the node with the session.
            except TransientError as error:
                log.warning("the leadership of %r was not given back yet: %s", self.candidate, error)
                continue
            except MillpondError as error:
                log.warning(
                    "the leadership of %r cannot be given back, and ends with its session: %s", self.candidate, error
                )
            return

    def _remove(self, request: TransactionRequest) -> None:
        request.check(self._paths.epoch, self.version)
        request.delete(self._paths.leading)
