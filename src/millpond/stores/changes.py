"""
The changes of a store that no published checkpoint holds yet: kept after they are applied, until they are forgotten.

They are asked for between *marks*, the numbers of the newest runs at the times of commits. What exceeds the store's
bound stays in memory as long as the job has some left for that, and else moves to change files; no file reaches across
a mark, so that any two marks bound whole files.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from pathlib import Path

from attrs import frozen

from millpond.errors import StateNotFoundError
from millpond.formats import change_file
from millpond.spi import Change
from millpond.stores.budget import Allowance
from millpond.stores.merge import Column, Pieces, merged_changes, newest_changes
from millpond.stores.runs import Run

KEEP_BYTES = 16 << 20
"""So many bytes of applied runs are kept in memory, unless the store says otherwise."""


@frozen
class Spilled:
    """
    Runs whose merged changes are in a file.

    Attributes:
        first: The number of the first of them.
        number: The number of the last of them.
        path: The change file.
    """

    first: int
    number: int
    path: Path


Piece = Run | Spilled


class KeptChanges:
    """The runs of one store that are still needed after they were applied. Any thread."""

    def __init__(
        self, store: str, directory: Path | None, limit: int = KEEP_BYTES, beyond: Allowance | None = None
    ) -> None:
        """
        Keep *limit* bytes of applied runs in memory, and more as far as *beyond* allows.

        The rest goes to *directory*; without one all stay in memory.
        """
        self._store = store
        self._directory = directory
        self._limit = limit
        self._beyond = Allowance(0) if beyond is None else beyond
        self._taken = 0
        self._lock = threading.Lock()
        self._pieces: list[Piece] = []
        self._marks: set[int] = set()
        self._applied = 0
        self._forgotten = 0

    def add(self, run: Run) -> None:
        """Keep *run*, which was just closed."""
        with self._lock:
            self._pieces.append(run)

    def mark(self, number: int) -> None:
        """Note that a commit ends with the run *number*."""
        with self._lock:
            self._marks.add(number)

    def spill(self, applied: int) -> None:
        """Move the runs up to *applied* to files if they are too large; on the lane."""
        if self._directory is None:
            return
        with self._lock:
            self._applied = applied
            runs = self._applied_runs()
            if self._may_stay(sum(run.size for run in runs)):
                return
            groups = [list(group) for _, group in groupby(runs, key=self._marks_before)]
        for group in groups:
            self._replace(group, _write(self._directory, group))

    def _applied_runs(self) -> list[Run]:
        return [piece for piece in self._pieces if isinstance(piece, Run) and piece.number <= self._applied]

    def _may_stay(self, size: int) -> bool:
        """Say whether *size* bytes may be in memory; what they need beyond the store's own bound is then taken."""
        more = size - self._limit - self._taken
        if more > 0 and not self._beyond.take(more):
            return False
        self._taken += max(0, more)
        return True

    def _return_unused(self) -> None:
        """Give back what the runs in memory do not need any more."""
        needed = max(0, sum(run.size for run in self._applied_runs()) - self._limit)
        unused = max(0, self._taken - needed)
        self._taken -= unused
        self._beyond.give_back(unused)

    def _marks_before(self, run: Run) -> int:
        return sum(mark < run.number for mark in self._marks)

    def _replace(self, runs: list[Run], spilled: Spilled) -> None:
        with self._lock:
            if runs[-1].number <= self._forgotten:
                spilled.path.unlink()
                return
            gone = set(runs)
            place = next(place for place, piece in enumerate(self._pieces) if piece in gone)
            self._pieces[place:] = [spilled, *(piece for piece in self._pieces[place:] if piece not in gone)]
            self._return_unused()

    def between(self, since: int, until: int) -> Iterator[Change]:
        """
        Give the changes of the runs after *since* up to *until*, sorted, the newest value of each key.

        Raises:
            StateNotFoundError: Some of them were forgotten.
        """
        with self._lock:
            if since < self._forgotten:
                raise StateNotFoundError(
                    f"the changes of store {self._store!r} since run {since} are gone: those up to run "
                    f"{self._forgotten} were forgotten"
                )
            pieces = [piece for piece in self._pieces if since < piece.number <= until]
        return _merged(pieces)

    def forget(self, until: int) -> None:
        """Drop the runs up to *until*, and their files."""
        with self._lock:
            self._forgotten = max(self._forgotten, until)
            gone = [piece for piece in self._pieces if piece.number <= until]
            self._pieces = [piece for piece in self._pieces if piece.number > until]
            self._marks = {mark for mark in self._marks if mark >= until}
            self._return_unused()
        for piece in gone:
            if isinstance(piece, Spilled):
                piece.path.unlink(missing_ok=True)

    def end(self) -> None:
        """Leave the job's memory to others: the store is over. Who reads changes still, holds them."""
        with self._lock:
            self._beyond.give_back(self._taken)
            self._taken, self._limit, self._beyond = 0, 0, Allowance(0)


def _write(directory: Path, runs: list[Run]) -> Spilled:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{secrets.token_hex(8)}.changes"
    change_file.write(path, chain.from_iterable(merged_changes(_columns(runs))))
    return Spilled(runs[0].number, runs[-1].number, path)


def _columns(runs: Iterable[Run]) -> list[Column]:
    return [Column(run.keys, run.values) for run in runs]


def _merged(pieces: list[Piece]) -> Iterator[Change]:
    """Merge *pieces*, oldest first."""
    runs = merged_changes(_columns(piece for piece in pieces if isinstance(piece, Run)))
    files = [change_file.read_frames(piece.path) for piece in pieces if isinstance(piece, Spilled)]
    # Runs are always younger than files: they are spilled in order.
    return chain.from_iterable(newest_changes([Pieces(source) for source in (*files, runs)]) if files else runs)
