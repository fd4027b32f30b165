"""
How messages travel: two small roles, and both of them within one process.

A transport may lose, double, delay and reorder; it may not change a message. Whoever has message passing already, such
as actors, implements the two roles over it; the coordinator and its members do not know the difference.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from attrs import define, field

from millpond.coordinator.messages import Order, Report


class CoordinatorEnd(ABC):
    """The coordinator's end. ``send`` and ``broadcast`` come from one thread, never wait, and raise nothing."""

    @abstractmethod
    def open(self, deliver: Callable[[Report], None]) -> None:
        """
        Begin to take reports and give each to *deliver*, which may be called on any thread and never waits.

        Raises:
            ConfigError, TransientError: It cannot, e.g. since the address is taken.
        """

    @abstractmethod
    def send(self, member: str, order: Order) -> None:
        """Give *order* to *member* if it can be reached; else it is lost."""

    @abstractmethod
    def broadcast(self, order: Order) -> None:
        """Give *order* to every member that can be reached."""

    @abstractmethod
    def close(self) -> None:
        """End; idempotent. Nothing is delivered afterwards."""


class MemberEnd(ABC):
    """A member's end; several members of a process may share what lies behind it."""

    @abstractmethod
    def open(self, deliver: Callable[[Order], None]) -> None:
        """Begin to take orders for this member and give each to *deliver*, on any thread; it does not wait for long."""

    @abstractmethod
    def send(self, report: Report) -> None:
        """Give *report* to the coordinator if it can be reached; else it is lost. Any thread; does not wait."""

    @abstractmethod
    def close(self) -> None:
        """End; idempotent."""


@define
class LocalHub:
    """
    Members and the coordinators that lead them one after another, in one process. Any thread.

    Attributes:
        deliver: Takes reports for the coordinator whose end was opened last; None: there is none.
        members: Take the orders for each member.
        lock: Held to change ``members``.
    """

    deliver: Callable[[Report], None] | None = field(default=None, init=False)
    members: dict[str, Callable[[Order], None]] = field(factory=dict, init=False)
    lock: threading.Lock = field(factory=threading.Lock, init=False)

    def coordinator_end(self) -> CoordinatorEnd:
        """Give an end for one leadership; the last one that was opened is the one that members reach."""
        return _LocalCoordinatorEnd(self)

    def member_end(self, member: str) -> MemberEnd:
        """Give the end of *member*."""
        return _LocalMemberEnd(self, member)

    def report(self, report: Report) -> None:
        """Give *report* to whoever leads."""
        deliver = self.deliver
        if deliver is not None:
            deliver(report)


@define
class _LocalCoordinatorEnd(CoordinatorEnd):
    _hub: LocalHub
    _deliver: Callable[[Report], None] | None = None

    def open(self, deliver: Callable[[Report], None]) -> None:
        self._deliver = self._hub.deliver = deliver

    def send(self, member: str, order: Order) -> None:
        deliver = self._hub.members.get(member)
        if deliver is not None:
            deliver(order)

    def broadcast(self, order: Order) -> None:
        with self._hub.lock:
            members = list(self._hub.members.values())
        for deliver in members:
            deliver(order)

    def close(self) -> None:
        if self._hub.deliver is self._deliver:
            self._hub.deliver = None


@define
class _LocalMemberEnd(MemberEnd):
    _hub: LocalHub
    _member: str
    _mine: Callable[[Order], None] | None = None

    def open(self, deliver: Callable[[Order], None]) -> None:
        self._mine = deliver
        with self._hub.lock:
            self._hub.members[self._member] = deliver

    def send(self, report: Report) -> None:
        self._hub.report(report)

    def close(self) -> None:
        with self._hub.lock:
            if self._hub.members.get(self._member) is self._mine:
                self._hub.members.pop(self._member, None)
