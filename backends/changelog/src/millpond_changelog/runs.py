"""Changes of any number, sorted by key in bounded memory: sorted runs in files, merged; the later change wins."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path

from millpond.formats import change_file
from millpond.local import make_folders
from millpond.spi import Change

RECORDS = 100_000
SIZE = 16 << 20


class SortedRuns:
    """
    Takes changes in any order, and gives them sorted, one a key. One thread.

    A run of changes is held in memory; when it is full, it becomes a file in *folder*, which the caller removes.
    """

    def __init__(self, folder: Path, records: int = RECORDS, size: int = SIZE) -> None:
        """Put files into *folder*, which need not exist before the first."""
        self._folder = folder
        self._records, self._size = records, size
        self._run: dict[bytes, bytes | None] = {}
        self._held = 0
        self._files: list[Path] = []

    def __bool__(self) -> bool:
        return bool(self._run or self._files)

    def add(self, changes: Iterable[Change]) -> None:
        """Take *changes*: each is later than all before it."""
        for key, value in changes:
            self._run[key] = value
            self._held += len(key) + len(value or b"")
        if len(self._run) >= self._records or self._held >= self._size:
            self._spill()

    def _spill(self) -> None:
        make_folders(self._folder)
        path = self._folder / f"{len(self._files):06}.run"
        change_file.write(path, sorted(self._run.items()))
        self._files.append(path)
        self._run, self._held = {}, 0

    def sorted(self) -> Iterator[Change]:
        """Give the changes, sorted by key; may be asked for repeatedly."""
        runs = [_numbered(change_file.read(path), -number) for number, path in enumerate(self._files)]
        runs.append(_numbered(sorted(self._run.items()), -len(runs)))
        last: bytes | None = None
        for key, _, value in heapq.merge(*runs, key=lambda each: each[:2]):
            if key != last:
                yield key, value
            last = key


def _numbered(changes: Iterable[Change], number: int) -> Iterator[tuple[bytes, int, bytes | None]]:
    """Give *changes* with *number* between key and value: the lowest comes first."""
    for key, value in changes:
        yield key, number, value


def laid_over(below: Iterable[Change], above: Iterable[Change]) -> Iterator[Change]:
    """Merge two sorted streams with one change a key each; of two for one key, that of *above*."""
    last: bytes | None = None
    for key, _, value in heapq.merge(_numbered(above, 0), _numbered(below, 1), key=lambda each: each[:2]):
        if key != last:
            yield key, value
        last = key


def with_keys(changes: Iterable[Change], keys: Iterable[bytes]) -> Iterator[tuple[bytes, bytes | None, bool]]:
    """
    Give *changes*, and those of *keys* that have none, all sorted: key, value, and whether it is a change.

    Both are sorted, each key once.
    """
    changed = ((key, 0, value) for key, value in changes)
    asked = ((key, 1, None) for key in keys)
    last: bytes | None = None
    for key, kind, value in heapq.merge(changed, asked, key=lambda each: each[:2]):
        if key != last:
            yield key, value, kind == 0
        last = key
