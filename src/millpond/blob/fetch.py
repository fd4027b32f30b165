"""Which parts of which objects a restore reads, and where their bytes go: decided from a manifest alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from attrs import frozen

PART = 8 << 20
"""The most bytes that one read asks for."""

GAP = 64 << 10
"""Bytes that nobody needs between two pieces are read along, up to so many, rather than asked around."""


@frozen
class Wanted:
    """
    Some bytes of an object that become a file.

    Attributes:
        object: The object's name.
        start: The first byte there.
        size: Bytes; not 0.
        digest: Of them.
        path: The file.
        what: What it is, for messages.
    """

    object: str
    start: int
    size: int
    digest: str
    path: Path
    what: str


@frozen
class Slice:
    """
    A part of what one read gives.

    Attributes:
        wanted: Whose bytes these are.
        offset: Where they begin in its file.
        at: Where they begin in what was read.
        length: Bytes.
    """

    wanted: Wanted
    offset: int
    at: int
    length: int

    @property
    def whole(self) -> bool:
        """Whether these are all of its bytes."""
        return self.length == self.wanted.size


@frozen
class Fetch:
    """
    One ranged read.

    Attributes:
        object: The object's name.
        start: The first byte there.
        length: Bytes.
        slices: What they are.
    """

    object: str
    start: int
    length: int
    slices: tuple[Slice, ...]


def plan_fetches(wanted: Iterable[Wanted]) -> list[Fetch]:
    """Cut *wanted* into reads of a bounded size: large pieces into parts, small neighbours together; largest first."""
    fetches: list[Fetch] = []
    group: list[Wanted] = []
    for piece in sorted(wanted, key=lambda piece: (piece.object, piece.start, piece.size)):
        if piece.size > PART:
            fetches += _parts(piece)
        elif group and _joins(group, piece):
            group.append(piece)
        else:
            fetches += _together(group)
            group = [piece]
    fetches += _together(group)
    return sorted(fetches, key=lambda fetch: -fetch.length)


def _parts(piece: Wanted) -> list[Fetch]:
    return [
        Fetch(piece.object, piece.start + offset, length, (Slice(piece, offset, 0, length),))
        for offset in range(0, piece.size, PART)
        for length in [min(PART, piece.size - offset)]
    ]


def _joins(group: Sequence[Wanted], piece: Wanted) -> bool:
    first, end = group[0], max(each.start + each.size for each in group)
    return (
        first.object == piece.object
        and piece.start - end <= GAP
        and max(end, piece.start + piece.size) - first.start <= PART
    )


def _together(group: Sequence[Wanted]) -> list[Fetch]:
    if not group:
        return []
    start = group[0].start
    end = max(piece.start + piece.size for piece in group)
    slices = tuple(Slice(piece, 0, piece.start - start, piece.size) for piece in group)
    return [Fetch(group[0].object, start, end - start, slices)]
