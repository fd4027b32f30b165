"""
The coordinator's messages as calls of Ray actors: two small classes, and whoever uses them knows no difference.

An actor that takes part has one more method: a coordinator's ``report(data)``, which calls
:meth:`RayCoordinatorEnd.take`, and a member's ``order(data)``, which calls :meth:`RayMemberEnd.take`. What is passed is
bytes, JSON of ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import ray

from millpond.coordinator import CoordinatorEnd, MemberEnd
from millpond.coordinator.messages import Order, Report
from millpond.coordinator.wire import Addressed, addressed_of, report_of, to_json


class Handles:
    """Finds actors by their names, and keeps their handles. Any thread."""

    def __init__(self) -> None:
        """Begin without any."""
        self._found: dict[str, Any] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Any | None:
        """Give the handle of the actor *name*, which outlives its restarts; None while there is no such actor."""
        with self._lock:
            if name not in self._found:
                try:
                    self._found[name] = ray.get_actor(name)
                except ValueError:
                    return None
            return self._found[name]


class RayCoordinatorEnd(CoordinatorEnd):
    """Gives orders by calling the members' actors. A call that fails is a lost order, as it may be."""

    def __init__(self, members: Sequence[str]) -> None:
        """Lead *members*, each an actor of its own name."""
        self._members = members
        self._handles = Handles()
        self._deliver: Callable[[Report], None] | None = None

    def take(self, data: bytes) -> None:
        """Take a report that an actor's call brought."""
        deliver = self._deliver
        if deliver is not None:  # else this one does not lead
            deliver(report_of(data))

    def open(self, deliver: Callable[[Report], None]) -> None:
        """Take reports from now on."""
        self._deliver = deliver

    def send(self, member: str, order: Order) -> None:
        """Call the member's actor, and do not wait for it."""
        handle = self._handles.get(member)
        if handle is not None:
            handle.order.remote(to_json(Addressed(member, order)))

    def broadcast(self, order: Order) -> None:
        """Call each of them."""
        for member in self._members:
            self.send(member, order)

    def close(self) -> None:
        """Lead no more."""
        self._deliver = None


class RayMemberEnd(MemberEnd):
    """Reports to every coordinator; of the candidates, the one that leads listens."""

    def __init__(self, coordinators: Sequence[str]) -> None:
        """Report to *coordinators*, each an actor of its own name."""
        self._coordinators = coordinators
        self._handles = Handles()
        self._deliver: Callable[[Order], None] | None = None

    def take(self, data: bytes) -> None:
        """Take an order that an actor's call brought."""
        deliver = self._deliver
        if deliver is not None:
            deliver(addressed_of(data).order)

    def open(self, deliver: Callable[[Order], None]) -> None:
        """Take orders from now on."""
        self._deliver = deliver

    def send(self, report: Report) -> None:
        """Call the coordinators' actors, and do not wait for them."""
        data = to_json(report)
        for name in self._coordinators:
            handle = self._handles.get(name)
            if handle is not None:
                handle.report.remote(data)

    def close(self) -> None:
        """Take no more."""
        self._deliver = None
