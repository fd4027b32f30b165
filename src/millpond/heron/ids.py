"""
Checkpoint ids: how they are ordered, and how ones are made that every peer orders alike. Pure.

Heron's coordinator makes ``<its start in clock ticks>-<seconds now>`` and everybody compares them as texts, which is
right only while both parts keep their number of digits: as texts ``100-10`` is older than ``100-2``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

_NUMBERS = re.compile(r"([0-9]{1,32})-([0-9]{1,32})")

Order = Callable[[str], Any]
"""What ids are sorted by."""


def text_order(id: str) -> tuple[bytes, ...]:
    """Order ids as Heron does: by code units of UTF-16, as Java compares texts."""
    return (id.encode("utf-16-be", "surrogatepass"),)


def number_order(id: str) -> tuple[object, ...]:
    """Order ids of Heron's form by their numbers, behind all others, which are ordered as texts."""
    found = _NUMBERS.fullmatch(id)
    if found is None:
        return (0, 0, 0, *text_order(id))
    return (1, int(found[1]), int(found[2]), *text_order(id))


def next_id(known: Iterable[str], millis: int) -> str:
    """
    Give an id that is greater than all of *known*, as a text and as a number, whatever the clock *millis* says.

    It has Heron's form with 19 and 10 digits: an epoch that follows the clock and the known ids, and a counter. Two of
    one second differ, and a clock that goes back does no harm.
    """
    epoch, count = millis * 1_000_000, 0
    for id in known:
        if found := _NUMBERS.fullmatch(id):
            epoch, count = max((epoch, count), (int(found[1]), int(found[2]) + 1))
    if count >= 10**10:
        epoch, count = epoch + 1, 0
    return f"{epoch:019d}-{count:010d}"
