"""Who of the members is here: which start of each counts, and who has been silent for how long."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from attrs import define, field

from millpond.coordinator.state import Place

_REMEMBERED = 64
"""How many earlier starts of a member are known as such."""


@define
class _Presence:
    incarnation: str
    heard: float


@define
class Roster:
    """
    The members of one job, as one coordinator knows them. Each call but ``missing`` costs the same, however many there
    are.

    Attributes:
        job: The job's name.
        members: The whole topology.
    """

    job: str
    members: Mapping[str, Place]
    _present: OrderedDict[str, _Presence] = field(factory=OrderedDict, init=False)  # the longest silent comes first
    _past: dict[str, OrderedDict[str, None]] = field(factory=dict, init=False)

    @property
    def is_complete(self) -> bool:
        """Whether everybody is here."""
        return len(self._present) == len(self.members)

    def missing(self) -> tuple[str, ...]:
        """Give the members that are not here."""
        return tuple(member for member in self.members if member not in self._present)

    def incarnation(self, member: str) -> str:
        """Give which start of *member*, who is here, counts."""
        return self._present[member].incarnation

    def hear(self, member: str, incarnation: str, now: float) -> bool:
        """Note that this start of *member* was heard *now*; False: it is not the one that counts."""
        presence = self._present.get(member)
        if presence is None or presence.incarnation != incarnation:
            return False
        presence.heard = now
        self._present.move_to_end(member)
        return True

    def is_past(self, member: str, incarnation: str) -> bool:
        """Whether this start of *member* has left, or a later one has its place."""
        return incarnation in self._past.get(member, ())

    def misplaced(self, member: str, place: Place) -> str | None:
        """Say why *member* does not belong at *place*; None: it does."""
        wanted = self.members.get(member)
        if wanted is None:
            return f"the topology of job {self.job!r} has no member {member!r}: correct its name, or add it"
        if wanted != place:
            return f"member {member!r} says that it is {place}, and the topology says {wanted}: correct one of them"
        return None

    def admit(self, member: str, incarnation: str, now: float) -> bool:
        """Let this start of *member* count from *now* on; say whether it replaces another."""
        replaced = member in self._present
        if replaced:
            self.remove(member, for_good=True)
        self._present[member] = _Presence(incarnation, now)
        return replaced

    def remove(self, member: str, *, for_good: bool) -> str:
        """Let *member* be gone, and give its incarnation; unless *for_good*, the same start may come back."""
        incarnation = self._present.pop(member).incarnation
        if for_good:
            past = self._past.setdefault(member, OrderedDict())
            past[incarnation] = None
            while len(past) > _REMEMBERED:
                past.popitem(last=False)
        return incarnation

    def longest_silent(self, now: float) -> tuple[str, float] | None:
        """Give the member that was silent longest, and for how many seconds; None: nobody is here."""
        if not self._present:
            return None
        member, presence = next(iter(self._present.items()))
        return member, now - presence.heard
