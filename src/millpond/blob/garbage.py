"""Removing what was found, with few requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from millpond.points import reached
from millpond.spi import Garbage

BATCH = 1_000


def collect(garbage: Iterable[Garbage], batch: int = BATCH) -> int:
    """Remove all of *garbage*, neighbours that can go together in batches; give how many. The first error ends it."""
    removed = 0
    for group in _groups(garbage, batch):
        reached("gc.before-removal")
        together = group[0].remove_all
        if together is not None and len(group) > 1:
            together(group)
        else:
            for each in group:
                each.remove()
        removed += len(group)
    return removed


def _groups(garbage: Iterable[Garbage], batch: int) -> Iterator[Sequence[Garbage]]:
    group: list[Garbage] = []
    for each in garbage:
        if group and (len(group) >= batch or each.remove_all is None or each.remove_all != group[0].remove_all):
            yield group
            group = []
        group.append(each)
    if group:
        yield group
