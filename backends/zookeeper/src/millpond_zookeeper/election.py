"""
An election: the first to make an ephemeral node leads, and takes the next epoch in the same multi-operation.

All others watch that node. It goes when its leader gives it back, or its session ends, and then they try again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Condition
from typing import Any

from attrs import define, field
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from millpond.errors import TransientError
from millpond_zookeeper.connection import Connection
from millpond_zookeeper.coordinator_nodes import CoordinatorPaths, Leader, decode_leader, encode_leader
from millpond_zookeeper.failures import LostAnswerError
from millpond_zookeeper.leadership import SessionLeadership
from millpond_zookeeper.lease import lease_end, now_s

_LONGEST_WAIT_S = 10.0


@define(eq=False)
class Election:
    """
    Elections for one job's coordinator. Any thread may stand.

    Attributes:
        connection: The session.
        paths: The nodes.
        unless: Raises once there is nothing to be waited for any more.
    """

    connection: Connection
    paths: CoordinatorPaths
    unless: Callable[[], None]
    _stirred: Condition = field(factory=Condition, init=False)
    _stirrings: int = field(default=0, init=False)

    def stand(self, candidate: str, until: float) -> SessionLeadership:
        """Wait until *candidate* leads, to the moment *until* at most: then TransientError."""
        token = secrets.token_hex(16)
        while True:
            self.unless()
            stirrings, sent = self._stirrings, now_s()
            newest, version = self._newest(until)
            leading = self._leading(until)
            if leading is None:
                self._take(Leader(newest.epoch + 1, candidate, token), version, until)
                continue
            leader, owner = leading
            if leader.token == token and newest.token == token and owner == self.connection.session:
                return self._elected(leader, version, owner, sent)
            if leader.token == token:
                self._remove(version, until)  # Of a session of ours that has ended since.
                continue
            self._wait(stirrings, leader, until)

    def stir(self, *_ignored: object) -> None:
        """Let all who wait look again; quick, from any thread. kazoo calls it as a watch."""
        with self._stirred:
            self._stirrings += 1
            self._stirred.notify_all()

    def newest(self) -> Leader | None:
        """Give the newest leadership; None if there never was one."""
        try:
            data, _ = self.connection.get(self.paths.epoch, f"read {self.paths.epoch}")
        except NoNodeError:
            return None
        leader = decode_leader(data)
        return leader if leader.epoch else None

    def prepare(self, until: float | None = None) -> None:
        """Make the nodes that stay; what is there already is left as it is."""
        self.connection.ensure(self.paths.base, f"make {self.paths.base}", until)
        for path, data in ((self.paths.record, b""), (self.paths.epoch, encode_leader(Leader()))):
            with suppress(NodeExistsError):
                self.connection.read(
                    lambda client, path=path, data=data: client.create_async(path, data),  # type: ignore[misc]
                    f"make {path}",
                    until,
                )

    def _newest(self, until: float) -> tuple[Leader, int]:
        """Give the newest leadership and the version of its node, which is made where it is missing."""
        while True:
            try:
                data, state = self.connection.get(self.paths.epoch, f"read {self.paths.epoch}", until)
            except NoNodeError:
                self.prepare(until)
                continue
            return decode_leader(data), state.version

    def _leading(self, until: float) -> tuple[Leader, int] | None:
        """Give who leads and in which session, and watch for its end; None: nobody does."""
        path = self.paths.leading

        def send(client: KazooClient) -> Any:
            client.sync_async(path)
            return client.get_async(path, watch=self.stir)

        try:
            data, state = self.connection.read(send, f"read {path}", until)
        except NoNodeError:
            return None
        return decode_leader(data), state.ephemeralOwner

    def _take(self, leader: Leader, version: int, until: float) -> None:
        """Try to lead; whether that worked is read afterwards, also where the answer was lost."""

        def build(request: TransactionRequest) -> None:
            request.set_data(self.paths.epoch, encode_leader(leader), version)
            request.create(self.paths.leading, encode_leader(leader), ephemeral=True)

        with suppress(LostAnswerError, BadVersionError, NodeExistsError):
            self.connection.multi(build, f"stand for election at {self.paths.base}", until)

    def _remove(self, version: int, until: float) -> None:
        def build(request: TransactionRequest) -> None:
            request.check(self.paths.epoch, version)
            request.delete(self.paths.leading)

        with suppress(LostAnswerError, BadVersionError, NoNodeError):
            self.connection.multi(build, f"remove {self.paths.leading}", until)

    def _elected(self, leader: Leader, version: int, session: int, sent: float) -> SessionLeadership:
        end = lease_end(sent, self.connection.negotiated_s)
        return SessionLeadership(
            leader.candidate, leader.epoch, leader.token, version, session, self.connection, self.paths, end
        )

    def _wait(self, stirrings: int, leader: Leader, until: float) -> None:
        with self._stirred:
            left = max(0.0, until - time.monotonic())
            self._stirred.wait_for(lambda: self._stirrings != stirrings, min(left, _LONGEST_WAIT_S))
        if time.monotonic() >= until:
            raise TransientError(f"{leader.candidate!r} (epoch {leader.epoch}) leads still: stand again")
