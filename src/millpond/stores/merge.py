"""
Buffered runs laid over one another and over an engine's entries, in small pieces.

Nothing here sorts or copies more than a piece at a time: a large sort would hold the interpreter.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from millpond.spi import Change

PIECE = 512
"""So many entries of one source are merged at once."""

_FIRST_PIECE = 16
_MERGED = 2_048
"""About so many changes of all runs together are merged at once: they fit into a core's cache."""
_FEWEST = 32

Item = tuple[bytes, bytes]
_key_of = itemgetter(0)


class Cursor:
    """The part of one sorted run that a scan has not passed yet, in ascending or descending order."""

    __slots__ = ("_descending", "_high", "_keys", "_low", "entries")

    def __init__(
        self,
        keys: Sequence[bytes],
        entries: Mapping[bytes, bytes | None],
        start: bytes | None = None,
        stop: bytes | None = None,
        descending: bool = False,
    ) -> None:
        """Stand before the first of *keys*, which are sorted, from *start* to before *stop*."""
        self._keys = keys
        self.entries = entries
        self._low = 0 if start is None else bisect_left(keys, start)
        self._high = len(keys) if stop is None else bisect_left(keys, stop, self._low)
        self._descending = descending

    def __bool__(self) -> bool:
        """Say whether anything is left."""
        return self._low < self._high

    def ahead(self, count: int) -> bytes:
        """Give the key *count* entries ahead, or the last one that is left; something must be left."""
        if self._descending:
            return self._keys[max(self._high - count, self._low)]
        return self._keys[min(self._low + count, self._high) - 1]

    def take(self, until: bytes | None) -> Sequence[bytes]:
        """Give the keys up to *until*, itself included, in ascending order, and stand behind them; None: all."""
        low, high = self._low, self._high
        if self._descending:
            self._high = low if until is None else bisect_left(self._keys, until, low, high)
            return self._keys[self._high : high]
        self._low = high if until is None else bisect_right(self._keys, until, low, high)
        return self._keys[low : self._low]


class Column:
    """The changes of one sorted run that a merge has not passed yet."""

    __slots__ = ("_high", "_keys", "_low", "_values")

    def __init__(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Stand before the first of *keys*, which are sorted; *values* are theirs."""
        self._keys, self._values = keys, values
        self._low, self._high = 0, len(keys)

    def __bool__(self) -> bool:
        """Say whether anything is left."""
        return self._low < self._high

    def ahead(self, count: int) -> bytes:
        """Give the key *count* changes ahead, or the last one that is left; something must be left."""
        return self._keys[min(self._low + count, self._high) - 1]

    def take(self, until: bytes) -> Iterator[Change]:
        """Give the changes up to the key *until*, itself included, and stand behind them."""
        low = self._low
        self._low = high = bisect_right(self._keys, until, low, self._high)
        return zip(self._keys[low:high], self._values[low:high], strict=True)


def merged_changes(columns: Sequence[Column]) -> Iterator[Sequence[Change]]:
    """Give each key of *columns* (oldest first) once, in order, with its newest value; in pieces."""
    while left := [column for column in columns if column]:
        count = max(_FEWEST, _MERGED // len(left))
        until = min(column.ahead(count) for column in left)
        newest: dict[bytes, bytes | None] = {}
        for column in left:
            newest.update(column.take(until))
        yield sorted(newest.items(), key=_key_of)


class Pieces:
    """A sorted source of changes that comes in pieces, of which one is held."""

    __slots__ = ("_low", "_piece", "_rest")

    def __init__(self, pieces: Iterator[Sequence[Change]]) -> None:
        """Hold none of *pieces* yet; each begins behind the one before it."""
        self._rest = pieces
        self._piece: Sequence[Change] = ()
        self._low = 0

    def __bool__(self) -> bool:
        """Say whether anything is left, and hold it."""
        while self._low == len(self._piece):
            piece = next(self._rest, None)
            if piece is None:
                return False
            self._piece, self._low = piece, 0
        return True

    @property
    def last(self) -> bytes:
        """The last key that is held; something must be."""
        return self._piece[-1][0]

    def take(self, until: bytes) -> Sequence[Change]:
        """Give what is held up to the key *until*, itself included, and stand behind it."""
        low = self._low
        self._low = bisect_right(self._piece, until, low, key=_key_of)
        return self._piece[low : self._low]


def newest_changes(sources: Sequence[Pieces]) -> Iterator[Sequence[Change]]:
    """Give each key of *sources* (oldest first) once, in order, with its newest value; in pieces."""
    while left := [source for source in sources if source]:
        until = min(source.last for source in left)
        parts = [part for source in left if (part := source.take(until))]
        if len(parts) == 1:
            yield parts[0]
            continue
        newest: dict[bytes, bytes | None] = {}
        for part in parts:
            newest.update(part)
        yield sorted(newest.items(), key=_key_of)


def overlaid(below: Iterator[Item], cursors: Sequence[Cursor], descending: bool) -> Iterator[list[Item]]:
    """Give the entries of *below* with those of *cursors* (oldest first) laid over them, in lists; None hides one."""
    size = _FIRST_PIECE
    more = True
    while more:
        items = list(islice(below, size))
        more = len(items) == size
        size = min(size * 2, PIECE)
        yield from _overlay(items, items[-1][0] if more else None, cursors, descending)


def _overlay(
    items: list[Item], until: bytes | None, cursors: Sequence[Cursor], descending: bool
) -> Iterator[list[Item]]:
    """Lay what *cursors* have up to *until* (None: all) over *items*, which are all that is below up to there."""
    while (reach := _reach(cursors, until, descending)) is not None:
        within, items = _split(items, reach, descending)
        patch: dict[bytes, bytes | None] = {}
        for cursor in cursors:
            _take_into(patch, cursor, reach)
        yield _patched(within, patch, descending)
    yield items


def _reach(cursors: Sequence[Cursor], until: bytes | None, descending: bool) -> bytes | None:
    """Give the key up to which the next piece goes; None when no cursor has anything up to *until*."""
    nearest = max if descending else min
    left = [cursor for cursor in cursors if cursor]
    if not left:
        return None
    if until is not None:
        first = nearest(cursor.ahead(1) for cursor in left)
        if (first < until) if descending else (first > until):
            return None
    reach = nearest(cursor.ahead(PIECE) for cursor in left)
    return reach if until is None else nearest(reach, until)


def _split(items: list[Item], reach: bytes, descending: bool) -> tuple[list[Item], list[Item]]:
    """Cut *items* behind *reach*."""
    if not items:
        return items, items
    if (items[-1][0] >= reach) if descending else (items[-1][0] <= reach):
        return items, []
    cut = next(place for place, (key, _) in enumerate(items) if ((key < reach) if descending else (key > reach)))
    return items[:cut], items[cut:]


def _take_into(newest: dict[bytes, bytes | None], cursor: Cursor, until: bytes | None) -> None:
    keys = cursor.take(until)
    newest.update(zip(keys, map(cursor.entries.__getitem__, keys), strict=True))


def _patched(items: list[Item], patch: Mapping[bytes, bytes | None], descending: bool) -> list[Item]:
    """Give *items* with *patch* laid over them, in the same direction."""
    if descending:
        items.reverse()
    if len(patch) * 8 <= len(items):
        _splice(items, patch)
    else:
        newest: dict[bytes, bytes | None] = dict(items)
        newest.update(patch)
        items = [(key, value) for key in sorted(newest) if (value := newest[key]) is not None]
    if descending:
        items.reverse()
    return items


def _splice(items: list[Item], patch: Mapping[bytes, bytes | None]) -> None:
    """Lay a few changes over ascending *items*, in place."""
    for key, value in patch.items():
        place = bisect_left(items, key, key=_key_of)
        there = place < len(items) and items[place][0] == key
        items[place : place + there] = [] if value is None else [(key, value)]
