"""Scans over a store with a dirty buffer: the merged entries as one iterator, which a closing store can end."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from itertools import count

from millpond.stores.merge import Item


class Window(list[Item]):
    """The piece of a scan that is being given out: a list that can be referred to weakly."""

    __slots__ = ("__weakref__",)


class OpenScans:
    """The windows of a store's scans. Any thread."""

    def __init__(self) -> None:
        """Begin without a scan."""
        self._windows: weakref.WeakValueDictionary[int, Window] = weakref.WeakValueDictionary()
        self._numbers = count()

    def window(self) -> Window:
        """Give an empty window for a new scan."""
        window = Window()
        self._windows[next(self._numbers)] = window
        return window

    def end(self) -> None:
        """Empty every window, so that its scan looks up at its next step, and not when the piece would be used up."""
        for window in list(self._windows.values()):
            window.clear()


def scanned(
    pieces: Iterator[list[Item]], window: Window, below: Iterator[Item], check: Callable[[], None]
) -> Iterator[Item]:
    """
    Give the entries of *pieces* through *window*; close *below* at the end.

    *check* raises when the store is closed. It is asked before each piece, and after it as the window may be empty.
    """
    try:
        for piece in pieces:
            window[:] = piece
            check()
            yield from window
            check()
    finally:
        close_iterator(below)


def close_iterator(iterator: Iterator[object]) -> None:
    """Close *iterator* if it can be closed."""
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
