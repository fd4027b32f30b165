"""The blocks in which an open run claims its memory: most puts only subtract from what was claimed before."""

from __future__ import annotations

from millpond.spi import Change
from millpond.stores.runs import RECORD_OVERHEAD, RUN_BYTES, RUN_KEYS

SMALLEST_BLOCK = 4 << 10
LARGEST_BLOCK = 64 << 10

FEW_KEYS = 64
"""A run that could take so few keys more is closed: smaller and smaller blocks would cost more than they hold."""

MANY_KEYS = 1_024
"""A run of so many keys is closed early if a scan had to copy that many of them: the next one would have to, too."""


def next_block(claimed: int, room: int, keys: int, limit: int | None) -> int:
    """
    Give how many bytes to claim next, of which *room* bytes are left; maybe too few for the record that is to come.

    It doubles what was claimed. While it lasts no bound can be jumped over: of a run's keys, of its bytes, of a record
    (*limit*), so that only a put that asks for the next block has to look at them.
    """
    keys_left = (RUN_KEYS - keys) * RECORD_OVERHEAD - room
    record_left = LARGEST_BLOCK if limit is None else limit - room
    return min(max(claimed, SMALLEST_BLOCK), LARGEST_BLOCK, keys_left, RUN_BYTES - claimed, record_left)


def held_by(entry: Change) -> int:
    """Give the bytes that an entry of a run takes."""
    key, value = entry
    return len(key) + RECORD_OVERHEAD + (0 if value is None else len(value))
