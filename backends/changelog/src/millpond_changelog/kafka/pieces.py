"""How changes are cut into what is handed to the driver at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from millpond.spi import Change

BATCH = 1_000_000
"""The most bytes that the driver puts into one batch, before it is compressed."""

_MOST = 1_000
_FIRST = 64
_BYTES = 4 << 20
_OVERHEAD = 128


def pieces(changes: Iterable[Change], limit: int | None) -> Iterator[tuple[list[Change], bool]]:
    """
    Give *changes* in pieces of a few MiB, each with whether it must be acknowledged before the next one goes.

    That is so for a record that may be larger than the topic takes: alone, it is what the brokers' answer is about. It
    is so for all records of a topic whose *limit*, in bytes, is below that of the driver's batches, since brokers
    compare it with whole batches.
    """
    stream, count = iter(changes), _FIRST
    while piece := list(islice(stream, count)):
        sizes = [len(value) for _, value in piece if value]
        total, largest = sum(sizes), max(sizes, default=0)
        if limit is None or (limit >= BATCH and largest <= limit // 2):
            yield piece, False
        else:
            yield from ((part, True) for part in _parts(piece, limit // 2))
        count = max(1, min(_MOST, 2 * count, len(piece) * _BYTES // (total or 1)))


def _parts(piece: list[Change], most: int) -> Iterator[list[Change]]:
    """Cut *piece* into parts of at most so many bytes each; a larger record is one alone."""
    part: list[Change] = []
    room = most
    for key, value in piece:
        size = len(key) + len(value or b"") + _OVERHEAD
        if part and size > room:
            yield part
            part, room = [], most
        part.append((key, value))
        room -= size
    if part:
        yield part
