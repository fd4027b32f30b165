"""
Runs: the small, closed pieces of a write buffer on their way into the engine, and the index over those that wait.

A key that is not in the open run is looked for in ``recent``, then in ``index``, then in the newest applied runs, then
in the engine. Data moves in this order too, and is there before it leaves the place that it was in: so a reader on
another thread, which takes no lock, cannot miss it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final, cast

from millpond.spi import BATCH, Change
from millpond.stores.budget import Allowance

RUN_KEYS = 8_192
"""A run has no more keys."""

RUN_BYTES = 4 << 20
"""A run has no more bytes, its keys' overhead included, unless it is a single record."""

RECORD_OVERHEAD = 160
"""What a record takes beside the bytes of its key and value: two objects, a place in a dict, an index and two lists."""

MAX_WAITING = 8
"""So many closed runs of one store may wait for the engine."""

MAX_APPLIED = 2
"""So many applied runs are read from before the engine is: what is written again and again is read from them."""

_MAX_STALE = 4 * RUN_KEYS

Entries = dict[bytes, bytes | None]
NOTHING: Final[Mapping[bytes, bytes | None]] = MappingProxyType({})


class Missing:
    """The class of ``MISSING``, which tells "not here" from None, a deleted key."""


MISSING: Final = Missing()


class Run:
    """A closed run: its entries never change again."""

    __slots__ = ("_keys", "_values", "entries", "number", "size")

    def __init__(self, number: int, entries: Entries, size: int, keys: list[bytes] | None = None) -> None:
        """Take over *entries*, which hold *size* bytes with their overhead, and their sorted *keys* if known."""
        self.number = number
        self.entries = entries
        self.size = size
        self._keys = keys
        self._values: list[bytes | None] | None = None

    @property
    def keys(self) -> list[bytes]:
        """Give the keys in order; sorted once, by whoever asks first, on any thread."""
        keys = self._keys
        if keys is None:
            keys = self._keys = sorted(self.entries)
        return keys

    @property
    def values(self) -> list[bytes | None]:
        """Give the values in the order of their keys; looked up once, since that costs a merge most of its time."""
        values = self._values
        if values is None:
            values = self._values = list(map(self.entries.__getitem__, self.keys))
        return values

    def batches(self) -> Iterator[list[Change]]:
        """Give the changes in order, in pieces of ``BATCH``."""
        changes = zip(self.keys, self.values, strict=True)
        while piece := list(islice(changes, BATCH)):
            yield piece


class AppliedRuns:
    """
    The newest runs that are wholly applied. They equal the engine, and are ten times as quick to read.

    One that finds no memory takes the older ones' away from them, and is else not held: then none is, since older ones
    would hide it. Every method is called under the store's lock; ``layers`` is read without it.

    Attributes:
        layers: Their entries, newest first.
    """

    __slots__ = ("_memory", "_sizes", "layers")

    def __init__(self, memory: Allowance) -> None:
        """Hold none yet; *memory* is shared with other stores."""
        self.layers: tuple[Entries, ...] = ()
        self._sizes: tuple[int, ...] = ()
        self._memory = memory

    def add(self, run: Run) -> None:
        """Take *run*, which is applied, while it can still be found among those that wait."""
        self._keep(MAX_APPLIED - 1)
        while not self._memory.take(run.size):
            if not self.layers:
                return
            self._keep(len(self.layers) - 1)
        self.layers, self._sizes = (run.entries, *self.layers), (run.size, *self._sizes)

    def end(self) -> None:
        """Hold none, and leave the memory to others."""
        self._keep(0)

    def _keep(self, count: int) -> None:
        """Let go of all but the newest *count*."""
        self.layers = self.layers[:count]
        self._memory.give_back(sum(self._sizes[count:]))
        self._sizes = self._sizes[:count]


class WaitingRuns:
    """
    The closed runs of a store that are not wholly applied, and an index over them that only reading builds.

    Every method is called under the store's lock; the attributes are read without it.

    Attributes:
        runs: Oldest first.
        recent: The entries of those that the index has not taken in, newest first.
        index: The newest value of every key of the others. Applied runs may linger in it, as long as a younger run that
            is in it waits: they equal the engine, or a younger run has replaced them.
    """

    __slots__ = ("_indexed", "index", "recent", "runs")

    def __init__(self) -> None:
        """Begin with no run."""
        self.runs: deque[Run] = deque()
        self.recent: tuple[Entries, ...] = ()
        self.index: Mapping[bytes, bytes | None] = NOTHING
        self._indexed = 0

    def add(self, run: Run) -> None:
        """Let *run* wait; as quick for every size."""
        self.recent = (run.entries, *self.recent)
        self.runs.append(run)

    def make_index(self) -> None:
        """Take all recent runs into the index: a key that is in none of them is then looked for in one dict."""
        if not self.recent:
            return
        waiting = sum(len(run.entries) for run in self.runs)
        if self.index is NOTHING or len(self.index) > waiting + _MAX_STALE:
            self.index = _newest(run.entries for run in self.runs)
        else:
            self.index = _newest(reversed(self.recent), cast(Entries, self.index))
        self.recent = ()
        self._indexed = self.runs[-1].number

    def drop_oldest(self) -> None:
        """Forget the oldest run, which is wholly applied."""
        run = self.runs.popleft()
        if run.number >= self._indexed:
            self.index = NOTHING  # before the run leaves ``recent``: nothing older may come to light
        if run.number > self._indexed:
            self.recent = self.recent[:-1]


def _newest(layers: Iterable[Entries], index: Entries | None = None) -> Entries:
    """Give *index* with *layers* in it, the last one on top."""
    index = {} if index is None else index
    for entries in layers:
        index.update(entries)
    return index
