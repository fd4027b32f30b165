"""Streams of changes: whether there is one at all, and which is the last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from millpond.spi import Change

_PIECE = 200


class AllButLast:
    """All of some changes but the last one, which is there when those are through. Once."""

    def __init__(self, changes: Iterable[Change]) -> None:
        """Take *changes*."""
        self._changes = iter(changes)
        self.last: list[Change] = []

    def __iter__(self) -> Iterator[Change]:
        """Give them at the speed of lists."""
        return chain.from_iterable(self._pieces())

    def _pieces(self) -> Iterator[list[Change]]:
        while piece := list(islice(self._changes, _PIECE)):
            yield self.last
            self.last = piece
        rest, self.last = self.last[:-1], self.last[-1:]
        yield rest


def unless_empty(changes: Iterator[Change]) -> Iterator[Change] | None:
    """Give *changes* as they were; None if there are none."""
    for first in changes:
        return chain((first,), changes)
    return None
