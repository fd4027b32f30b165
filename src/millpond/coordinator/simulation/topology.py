"""A small topology whose states can be checked against one another: sources, maps, sinks, all to all."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field

from millpond.coordinator.state import Place


@define
class Topology:
    """
    Layers of tasks; each sends to all of the next layer, each record to one of them.

    Attributes:
        layers: The size of each layer; sources first.
    """

    layers: tuple[int, ...] = (2, 2, 2)
    members: dict[str, Place] = field(init=False)
    upstream: dict[str, tuple[str, ...]] = field(init=False)
    downstream: dict[str, tuple[str, ...]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        names = [[f"{layer}/{index}" for index in range(count)] for layer, count in enumerate(self.layers)]
        self.members, self.upstream, self.downstream = {}, {}, {}
        for layer, group in enumerate(names):
            for index, name in enumerate(group):
                self.members[name] = Place(str(layer), index, len(group))
                self.upstream[name] = tuple(names[layer - 1]) if layer else ()
                self.downstream[name] = tuple(names[layer + 1]) if layer + 1 < len(names) else ()

    def misfit(self, states: Mapping[str, Mapping[str, int]]) -> str | None:
        """Say where a channel's sender has sent another number of records than its receiver has got; None: nowhere."""
        for receiver, senders in self.upstream.items():
            for sender in senders:
                sent = states[sender].get(f"to {receiver}", 0)
                got = states[receiver].get(f"from {sender}", 0)
                if sent != got:
                    return f"{sender} has sent {sent} records to {receiver}, which has {got} of them"
        return None
