"""
The sorted keys of an open run, kept from scan to scan: a short scan must not sort, or look at, the whole run.

An open run never loses a key (a deleted one has None), and a dict keeps its keys in the order in which they came. So
what is new since the last scan stands at its end.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from itertools import islice

from millpond.stores.runs import Entries

_FEW = 64
_MANY = 256


class OpenKeys:
    """The keys of one store's open run in order. Every method is called under the store's lock."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        """Know no run."""
        self._state: tuple[Entries, list[bytes]] = ({}, [])

    def within(
        self, entries: Entries, start: bytes | None, stop: bytes | None
    ) -> tuple[Sequence[bytes], Mapping[bytes, bytes | None]] | None:
        """
        Give the sorted keys from *start* to before *stop* and their values, all of one moment.

        None when that would take long, or another thread writes meanwhile: then the run has to be copied.
        """
        keys = self._up_to_date(entries)
        if keys is None:
            return None
        low = 0 if start is None else bisect_left(keys, start)
        high = len(keys) if stop is None else bisect_left(keys, stop, low)
        part = keys[low:high]
        values = _values(entries, part)
        # No key came before the values were read, and none ever goes: so the keys are those of that moment.
        return (part, values) if len(entries) == len(keys) else None

    def remember(self, entries: Entries, keys: Sequence[bytes]) -> None:
        """Take over that *keys* are the sorted keys of what *entries* began with."""
        self._state = (entries, list(keys))

    def release(self, entries: Entries) -> list[bytes] | None:
        """Forget *entries*, which are being closed; give their sorted keys if they are known."""
        known, keys = self._state
        self._state = ({}, [])
        return keys if known is entries and len(keys) == len(entries) else None

    def _up_to_date(self, entries: Entries) -> list[bytes] | None:
        """Give all keys of *entries*, or None when there are many that are not known."""
        known, keys = self._state
        if known is not entries:
            keys = []
        fresh = len(entries) - len(keys)
        if fresh > _FEW:
            return None
        try:
            newest = list(islice(reversed(entries), fresh))
        except RuntimeError:  # a key came while we looked
            return None
        if len(entries) != len(keys) + fresh:  # or right before
            return None
        for key in newest:
            insort(keys, key)
        self._state = (entries, keys)
        return keys


def _values(entries: Entries, keys: Sequence[bytes]) -> Entries:
    """Give the values of *keys*, all of one moment: each way reads them in one call, in which no other thread runs."""
    if len(keys) > _MANY:
        return entries.copy()  # of everything, and yet cheaper: it copies a table
    return dict(zip(keys, list(map(entries.__getitem__, keys)), strict=True))
