"""
Runs: the small, closed pieces of a write buffer on their way into the engine, and the index over those that wait.

A key that is not in the open run is looked for in ``recent``, then in ``index``, then in the engine. Data moves in this
order too, and is there before it leaves the place that it was in: so a reader on another thread, which takes no lock,
cannot miss it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

from millpond.spi import BATCH, Change

RUN_KEYS = 8_192
"""A run has no more keys."""

RUN_BYTES = 4 << 20
"""A run has no more bytes, its keys' overhead included, unless it is a single record."""

RECORD_OVERHEAD = 160
"""What a record takes beside the bytes of its key and value: two objects, a place in a dict, an index and a list."""

MAX_WAITING = 8
"""So many closed runs of one store may wait for the engine."""

_MAX_STALE = 4 * RUN_KEYS

Entries = dict[bytes, bytes | None]
NOTHING: Final[Mapping[bytes, bytes | None]] = MappingProxyType({})


class Missing:
    """The class of ``MISSING``, which tells "not here" from None, a deleted key."""


MISSING: Final = Missing()


class Run:
    """A closed run: its entries never change again."""

    __slots__ = ("_keys", "entries", "number", "size")

    def __init__(self, number: int, entries: Entries, size: int) -> None:
        """Take over *entries*, which hold *size* bytes with their overhead."""
        self.number = number
        self.entries = entries
        self.size = size
        self._keys: list[bytes] | None = None

    @property
    def keys(self) -> list[bytes]:
        """Give the keys in order; sorted once, by whoever asks first, on any thread."""
        keys = self._keys
        if keys is None:
            keys = self._keys = sorted(self.entries)
        return keys

    def batches(self) -> Iterator[list[Change]]:
        """Give the changes in order, in pieces of ``BATCH``."""
        keys = iter(self.keys)
        value_of = self.entries.__getitem__
        while piece := list(islice(keys, BATCH)):
            yield list(zip(piece, map(value_of, piece), strict=True))


class WaitingRuns:
    """
    The closed runs of a store that are not wholly applied, oldest first.

    Every method but the look-ups ``recent`` and ``index`` is called under the store's lock.

    Attributes:
        runs: Oldest first. Whether it is empty may be asked without the lock.
        recent: The entries of the newest run, if the index has not taken them in yet.
        index: The newest value of every other key that waits. Applied runs may linger in it: they equal the engine, or
            a newer run that waits has replaced them.
    """

    __slots__ = ("_owned", "index", "recent", "runs")

    def __init__(self) -> None:
        """Begin with no run."""
        self.runs: deque[Run] = deque()
        self.recent: Mapping[bytes, bytes | None] = NOTHING
        self.index: Mapping[bytes, bytes | None] = NOTHING
        self._owned: Entries | None = None

    def add(self, run: Run) -> None:
        """Let *run* wait; as quick for every size, unless it is the second one since the last ``settle``."""
        if not self.runs:
            self.index = run.entries
        else:
            self.settle()
            self.recent = run.entries
        self.runs.append(run)

    def settle(self) -> None:
        """Take the recent run into the index; it has to be there before it is applied."""
        if self.recent is NOTHING:
            return
        if self._owned is None:
            self._owned = dict(self.index)
            self._owned.update(self.recent)
        else:
            self._owned.update(self.recent)
        self.index = self._owned
        self.recent = NOTHING

    def drop_oldest(self) -> None:
        """Forget the oldest run, which is wholly applied."""
        self.runs.popleft()
        if len(self.runs) < 2:
            self._index_alone(self.runs[0].entries if self.runs else NOTHING)
        elif len(self.index) > sum(len(run.entries) for run in self.runs) + _MAX_STALE:
            self._rebuild()

    def _index_alone(self, entries: Mapping[bytes, bytes | None]) -> None:
        self.index = entries
        self.recent = NOTHING
        self._owned = None

    def _rebuild(self) -> None:
        index: Entries = {}
        for run in self.runs:
            index.update(run.entries)
        self._owned = self.index = index
        self.recent = NOTHING
