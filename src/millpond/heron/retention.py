"""
Which checkpoints go: by a clean, and by the number that a node keeps. Pure.

A clean names the oldest id to keep. An id before it goes, unless it was written after it: then a clock went back, or
the ids have lost a digit, and the newer state would be deleted for the older. A clean that is later removes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from millpond.heron.ids import Order


def cleaned_by(found: Mapping[str, int], oldest: str, order: Order, *, by_age_too: bool) -> list[str]:
    """
    Give the ids that a clean removes, oldest first.

    *found* is id to the time when it was last written; *oldest* is kept, and ``""`` removes nothing. Without
    *by_age_too* the order of ids is all that counts, as with Heron.
    """
    if not oldest:
        return []
    limit = found.get(oldest)
    return [
        id
        for id in sorted(found, key=order)
        if order(id) < order(oldest) and not (by_age_too and limit is not None and found[id] > limit)
    ]


def outnumbered(found: Mapping[str, int], whole: Collection[str], keep: int, order: Order) -> list[str]:
    """
    Give the ids that a node which keeps *keep* whole checkpoints removes.

    Only whole ones count, so that failed attempts push nobody out; and an attempt that was written after the oldest one
    to keep may still become whole.
    """
    kept = sorted((id for id in whole if id in found), key=order)[-keep:]
    if len(kept) < keep:
        return []
    limit = min(found[id] for id in kept)
    return [
        id for id in sorted(found, key=order) if id not in kept and order(id) < order(kept[0]) and found[id] <= limit
    ]
