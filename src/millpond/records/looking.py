"""
When a writer has to look at the newest record before it writes: decided from counts and times.

The number that it takes next is the fence: a later claim has taken it, and stays for ``CLAIM_LIFE``. The look is for a
writer that slept longer than that. So one look serves many writes of a writer that stayed awake.
"""

from __future__ import annotations

from attrs import frozen

LOOK_EVERY = 32
"""Writes of one writer that one look serves, where looking is a request."""

LOOK_LIFE_S = 24 * 3600.0
"""Seconds that one look serves at most, by the wall clock and by the monotonic one: far less than a claim lives."""


@frozen
class Look:
    """
    When a writer last saw that the newest record is its own. A write shows less: its number may have become free again.

    Attributes:
        wall_s: By the wall clock, which goes on in a machine that is suspended.
        monotonic_s: By the monotonic one, which nobody sets.
        writes: Writes since.
    """

    wall_s: float
    monotonic_s: float
    writes: int = 0

    def serves(self, wall_s: float, monotonic_s: float) -> bool:
        """Whether a write now may do without another look. A wall clock that went back says nothing: then not."""
        asleep = (wall_s - self.wall_s, monotonic_s - self.monotonic_s)
        return self.writes < LOOK_EVERY and all(0 <= seconds < LOOK_LIFE_S for seconds in asleep)
