"""What an operator says about a coordinator: its members and its times."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType

from attrs import Attribute, field, frozen

from millpond.coordinator.state import Place
from millpond.errors import ConfigError

SHORTEST_SILENCE_S = 2.0
"""The shortest time after which a member may be taken for dead: it says every half second that it lives."""


def _frozen_members(members: Mapping[str, Place]) -> Mapping[str, Place]:
    return MappingProxyType(dict(members))


def _over_zero(of: object, attribute: Attribute[float], value: float) -> None:
    if not value > 0:
        raise ConfigError(f"the coordinator's {attribute.name} has to be over 0 seconds, and is {value!r}")


def _not_below_zero(of: object, attribute: Attribute[float], value: float) -> None:
    if not value >= 0:
        raise ConfigError(f"the coordinator's {attribute.name} cannot be below 0 seconds, and is {value!r}")


@frozen(kw_only=True)
class CoordinatorSettings:
    """
    A coordinator's settings; all times are seconds.

    Attributes:
        job: The job's name.
        job_id: Its id.
        members: The whole topology: each member's name and its place.
        interval_s: From the beginning of one attempt to the next.
        pause_s: At least this long from the end of one attempt to the next, so that slow ones do not starve the job.
        timeout_s: An attempt that is not whole by then is abandoned.
        restore_timeout_s: A restore that is not complete by then is ordered anew.
        silence_s: A member that says nothing for so long is taken for dead.
        resend_s: An order that was not answered by then is sent again.
        retry_s: The first wait before a restore that failed for now is tried again; it doubles up to a minute.
        retain: How many job checkpoints stay, besides savepoints.
        allow_empty: When no retained checkpoint can be restored, begin from nothing. All state is lost then.

    Raises:
        ConfigError: What does not fit; all of it is checked here.
    """

    job: str
    members: Mapping[str, Place] = field(converter=_frozen_members)
    job_id: str = "1"
    interval_s: float = field(default=10.0, validator=_over_zero)
    pause_s: float = field(default=0.0, validator=_not_below_zero)
    timeout_s: float = field(default=600.0, validator=_over_zero)
    restore_timeout_s: float = field(default=1800.0, validator=_over_zero)
    silence_s: float = field(default=10.0, validator=_over_zero)
    resend_s: float = field(default=2.0, validator=_over_zero)
    retry_s: float = field(default=1.0, validator=_over_zero)
    retain: int = 3
    allow_empty: bool = False

    def __attrs_post_init__(self) -> None:
        """Check what several settings say together."""
        if not self.job:
            raise ConfigError("the coordinator needs the job's name")
        if self.retain < 1:
            raise ConfigError(f"the coordinator has to retain at least 1 job checkpoint, not {self.retain}")
        if self.silence_s < SHORTEST_SILENCE_S:
            raise ConfigError(
                f"the coordinator's silence_s is {self.silence_s:g}; below {SHORTEST_SILENCE_S:g} a busy machine loses "
                f"members that live"
            )
        if self.resend_s >= self.silence_s:
            raise ConfigError(
                f"the coordinator's resend_s ({self.resend_s:g}) has to be shorter than its silence_s "
                f"({self.silence_s:g}): a member would be given up before it was asked again"
            )
        _check_topology(self.members)


def _check_topology(members: Mapping[str, Place]) -> None:
    """Refuse a topology with a gap, a double, or key groups that do not fit together."""
    if not members:
        raise ConfigError("the coordinator needs at least one member: nothing can be checkpointed without")
    components: dict[str, dict[int, tuple[str, Place]]] = {}
    for name, place in members.items():
        if not name or not place.component:
            raise ConfigError(f"a member and its component need names, not {name!r} and {place.component!r}")
        taken = components.setdefault(place.component, {})
        if place.index in taken:
            raise ConfigError(f"members {taken[place.index][0]!r} and {name!r} have the same place: {place}")
        taken[place.index] = (name, place)
    for component, places in components.items():
        _check_component(component, [places[index][1] for index in sorted(places)])


def _check_component(component: str, places: list[Place]) -> None:
    count = len(places)
    if [place.index for place in places] != list(range(count)) or {place.parallelism for place in places} != {count}:
        raise ConfigError(
            f"component {component!r} has {count} members, so each needs parallelism {count} and an index from 0 to "
            f"{count - 1}; they are {', '.join(map(str, places))}"
        )
    keyed = [place.keys for place in places if place.keys is not None]
    if keyed and len(keyed) != count:
        raise ConfigError(f"component {component!r}: either all of its members own key groups or none")
    for keys in keyed:
        if keys[0] > keys[1]:
            raise ConfigError(f"component {component!r}: key groups {keys} end before they begin")
    for earlier, later in pairwise(keyed):
        if earlier[1] != later[0]:
            raise ConfigError(
                f"component {component!r}: key groups {earlier} and {later} of neighbours leave a gap or overlap"
            )
