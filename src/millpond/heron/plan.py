"""
What a checkpoint manager takes from a physical plan: who runs what, and whether states are spilled. Pure.

A plan may be missing (old stream managers send none) or damaged (a stream manager that re-registers after a new plan
reads freed memory): then nothing is taken from it, and the registration stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import field, frozen

from millpond.heron import messages
from millpond.heron.fields import without
from millpond.heron.messages import NotThatMessageError
from millpond.heron.names import NameRefusedError, segment

SPILL = "topology.stateful.spill.state"
SPILL_LOCATION = "topology.stateful.spill.state.location"
_PLAN = 4

Place = tuple[str, int]
"""Component and index: one instance, as storage sees it."""


@frozen
class Plan:
    """
    A physical plan.

    Attributes:
        instances: Stream manager's id to the instances that it runs.
        spill_location: The folder through which large states pass; None: states travel in packets.
    """

    instances: Mapping[str, frozenset[Place]] = field(factory=dict)
    spill_location: str | None = None

    @property
    def parallelism(self) -> dict[str, int]:
        """Component to the number of its instances."""
        return dict(Counter(component for places in self.instances.values() for component, _ in places))

    def home(self, place: Place) -> str | None:
        """Give the stream manager that runs *place*; None if nobody does."""
        return next((stmgr for stmgr, places in self.instances.items() if place in places), None)


@frozen
class Registration:
    """
    A request to be let in.

    Attributes:
        slot: The stream manager's id; None: the coordinator.
        plan: What a stream manager brought; None: nothing that can be read.
    """

    topology: str
    topology_id: str
    slot: str | None = None
    plan: Plan | None = None


def read_coordinator(name: str, body: bytes) -> Registration:
    """Read a coordinator's registration, in either spelling; NotThatMessageError if it is none."""
    found = messages.parse(name, body)
    return Registration(messages.text(found.topology_name), messages.text(found.topology_id))


def read_stream_manager(body: bytes) -> Registration:
    """
    Read a stream manager's registration, whatever became of its plan.

    Raises:
        NotThatMessageError: It does not say who it is.
    """
    plan: Plan | None = None
    try:
        found = messages.parse("RegisterStMgrRequest", body)
        plan = read_plan(found.physical_plan)
    except NotThatMessageError:
        found = _without_plan(body)
    name, id, stmgr = map(messages.text, (found.topology_name, found.topology_id, found.stmgr_id))
    return Registration(name, id, stmgr, plan)


def _without_plan(body: bytes) -> Any:
    try:
        found = messages.message("RegisterStMgrRequest").FromString(without(body, _PLAN))
    except messages.DecodeError as error:
        raise NotThatMessageError(f"{len(body):,} bytes are no RegisterStMgrRequest: {error}") from None
    missing = [name for name in ("topology_name", "topology_id", "stmgr_id") if not found.HasField(name)]
    if missing:
        raise NotThatMessageError(f"a RegisterStMgrRequest lacks {', '.join(missing)}")
    return found


def read_plan(plan: Any) -> Plan:
    """Read a ``PhysicalPlan``; NotThatMessageError where a name in it is no text, or none that can be stored."""
    instances: dict[str, set[Place]] = {}
    for one in plan.instances:
        place = _storable(one.info.component_name), int(one.info.component_index)
        instances.setdefault(_storable(one.stmgr_id), set()).add(place)
    settings = dict(_settings(plan.topology))
    spills = settings.get(SPILL, "").strip().lower() == "true"
    location = settings.get(SPILL_LOCATION, "") if spills else ""
    return Plan({stmgr: frozenset(places) for stmgr, places in instances.items()}, location or None)


def _storable(name: object) -> str:
    """Give a name, of which notes are written; with one that cannot be stored, no other state could be noted."""
    found = messages.text(name)
    try:
        segment(found)
    except NameRefusedError as error:
        raise NotThatMessageError(str(error)) from None
    return found


def _settings(topology: Any) -> Iterator[tuple[str, str]]:
    for one in topology.topology_config.kvs:
        if one.HasField("value"):
            yield messages.text(one.key), messages.text(one.value)
