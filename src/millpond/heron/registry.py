"""
Who is registered: one coordinator and each stream manager of each topology, or Heron's single slot. Pure.

Heron has one slot for everybody, and a newcomer finds it taken until its second try, ten seconds later. Here each
client has a slot of its own, and a newcomer with its name takes its place at once: it is the same one, restarted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import Factory, field, frozen

from millpond.heron.plan import Plan, Registration


class Client(Protocol):
    """
    A connection.

    Attributes:
        peer: Its client's address, for events.
    """

    peer: str

    def drop(self, reason: str) -> None:
        """End it."""


@frozen
class Decision:
    """
    What becomes of a registration.

    Attributes:
        refusal: Why it is answered with NOTOK; empty: it is let in.
        evicted: A connection that has to be closed.
        hang_up: The connection that asked ends, without an answer.
    """

    refusal: str = ""
    evicted: Client | None = None
    hang_up: bool = False


@frozen
class Registry:
    """
    The slots of a server.

    Attributes:
        topologies: Name to id of those that are served; None: any, each under the first id that it came with.
        strict: There is one slot for all, as Heron has it.
    """

    topologies: Mapping[str, str] | None
    strict: bool = False
    _only: str | None = field(init=False, default=Factory(lambda self: _only(self.topologies), takes_self=True))
    _slots: dict[tuple[str, str | None], Client] = field(factory=dict, init=False)
    _clients: dict[Client, tuple[str, str | None]] = field(factory=dict, init=False)
    _ids: dict[str, str] = field(factory=dict, init=False)
    _plans: dict[str, Plan] = field(factory=dict, init=False)

    def register(self, client: Client, asked: Registration) -> Decision:
        """Decide, validating first and acting second."""
        if client in self._clients:
            return Decision(hang_up=True)
        if refusal := self._refusal(asked):
            return Decision(refusal)
        slot = ("", None) if self.strict else (asked.topology, asked.slot)
        holder = self._slots.get(slot)
        if holder is not None and self.strict:
            self._clear(holder)
            return Decision("another client was registered and has been removed: try again", holder)
        if holder is not None:
            self._clear(holder)
        self._slots[slot] = client
        self._clients[client] = slot if not self.strict else (asked.topology, asked.slot)
        self._ids.setdefault(asked.topology, asked.topology_id)
        if asked.plan is not None:
            self._plans[asked.topology] = asked.plan
        return Decision(evicted=holder)

    def closed(self, client: Client) -> None:
        """Note that a connection has ended. With Heron's single slot, any one's end empties it."""
        if self.strict:
            self._slots.clear()
        topology, _ = self._clients.get(client, ("", None))
        self._clear(client)
        if self.topologies is None and not any(each == topology for each, _ in self._clients.values()):
            # Whoever may come under any name leaves nothing behind.
            self._plans.pop(topology, None)
            self._ids.pop(topology, None)

    def topology_of(self, client: Client) -> str | None:
        """Give the topology that *client* speaks for: what it registered, else the only one that is served."""
        found = self._clients.get(client)
        return self._only if found is None else found[0]

    def slot_of(self, client: Client) -> str | None:
        """Give the stream manager's id under which *client* registered; None: none, or the coordinator's."""
        found = self._clients.get(client)
        return None if found is None else found[1]

    def is_registered(self, client: Client) -> bool:
        """Tell whether *client* was let in."""
        return client in self._clients

    def plan_of(self, topology: str) -> Plan | None:
        """Give the newest plan of *topology*."""
        return self._plans.get(topology)

    def _refusal(self, asked: Registration) -> str:
        if self.topologies is None:
            known = self._ids.get(asked.topology)
            if known not in (None, asked.topology_id):
                return f"topology {asked.topology!r} runs under the id {known!r}, not {asked.topology_id!r}"
            return "" if asked.topology else "the topology has no name"
        if asked.topology not in self.topologies:
            return f"topology {asked.topology!r} is not served here: {', '.join(self.topologies)} is"
        if (wanted := self.topologies[asked.topology]) != asked.topology_id:
            return f"topology {asked.topology!r} is served under the id {wanted!r}, not {asked.topology_id!r}"
        return ""

    def _clear(self, client: Client) -> None:
        self._clients.pop(client, None)
        for slot in [slot for slot, holder in self._slots.items() if holder == client]:
            del self._slots[slot]


def _only(topologies: Mapping[str, str] | None) -> str | None:
    return next(iter(topologies)) if topologies is not None and len(topologies) == 1 else None
