"""The names of a partition's segments, and which of them hold which offsets; a function of names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from attrs import frozen

from millpond.errors import StateCorruptError

_NAME = re.compile(r"([0-9]{20})(?:-([0-9]{20}))?\.log")
_START = re.compile(r"([0-9]{20})\.start")


@frozen(order=True)
class Segment:
    """
    One file of a partition.

    Attributes:
        first: Its first offset.
        end: The offset behind its last, for what compaction left; None: as the next one says, or still growing.
    """

    first: int
    end: int | None = None

    @property
    def name(self) -> str:
        """Its file's name."""
        return f"{self.first:020}.log" if self.end is None else f"{self.first:020}-{self.end:020}.log"

    @classmethod
    def parse(cls, name: str) -> Segment | None:
        """Read a file's name; None: it is no segment."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), None if match[2] is None else int(match[2]))


def in_force(names: Iterable[str]) -> tuple[list[Segment], list[Segment]]:
    """
    Give the segments that hold a partition, in order, and those whose offsets a compacted one has taken over.

    What a compaction that was killed left behind is among the latter.
    """
    found = [segment for name in names if (segment := Segment.parse(name)) is not None]
    found.sort(key=lambda each: (each.first, -(each.end or 0)))
    chosen: list[Segment] = []
    replaced: list[Segment] = []
    covered = 0
    for segment in found:
        if segment.first < covered and (segment.end or 0) <= covered:
            replaced.append(segment)
        else:
            chosen.append(segment)
            covered = max(covered, segment.end or 0)
    return chosen, replaced


def start_of(names: Iterable[str]) -> int:
    """Give the offset before which all was removed, as the files of a partition say it; 0: nothing was."""
    return max((int(match[1]) for name in names if (match := _START.fullmatch(name)) is not None), default=0)


def start_name(offset: int) -> str:
    """Give the name of the file that says that all before *offset* was removed."""
    return f"{offset:020}.start"


def place_of(segments: list[Segment], offset: int) -> int:
    """Give the index of the segment in which *offset* is, or would be written; -1: it is before all."""
    index = -1
    for number, segment in enumerate(segments):
        if segment.first > offset:
            break
        index = number
    return index


def check_chain(segments: list[Segment], folder: Path) -> None:
    """
    Check that no segment is missing after one that compaction left.

    Raises:
        StateCorruptError: One is.
    """
    for earlier, later in pairwise(segments):
        if earlier.end is not None and earlier.end != later.first:
            raise StateCorruptError(
                f"{folder} lacks a segment: {earlier.name} ends at {earlier.end}, and the next is {later.name}"
            )
