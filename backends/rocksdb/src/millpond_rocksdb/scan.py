"""Iterating over a RocksDB database: in chunks, as it was at one moment, and never ending early on damage."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

from rocksdict import Rdict, RdictIter, ReadOptions

from millpond.errors import StateCorruptError, StoreClosedError
from millpond_rocksdb.driver_errors import translated

Entry = tuple[bytes, bytes]

_FIRST = 16
_MOST = 512
_CHUNK_BYTES = 1 << 20


class Scan:
    """
    The entries from *start* (inclusive) to *stop* (exclusive), as they were when this object was made.

    One thread at a time iterates; any thread may close. ``items()`` of the driver is fast but ends without a word at a
    damaged block, so when it ends, a second iterator is asked what comes after the last entry. Each iterator shows the
    moment at which it was made: nothing may be written while a Scan is made. (The driver's snapshot objects are no
    help: in rocksdict 0.3.29 what they iterate over is the present.)
    """

    def __init__(self, database: Rdict, start: bytes | None, stop: bytes | None, reverse: bool, where: str) -> None:
        self._start, self._stop, self._reverse, self._doing = start, stop, reverse, f"scanning {where}"
        self._lock = threading.Lock()
        self._closed = False
        self._last: bytes | None = None
        self._items: Iterator[Any] | None = None
        self._proof: RdictIter | None = None
        if start is not None and stop is not None and start >= stop:
            return
        with translated(self._doing):
            # no lower bound for the driver: rocksdict 0.3.29 takes it for the upper one
            from_key = None if reverse else start
            self._items = database.items(backwards=reverse, from_key=from_key, read_opt=self._read_options())
            self._proof = database.iter(self._read_options())

    def entries(self) -> Generator[Entry, None, None]:
        """Give the entries; to be called once."""
        size = _FIRST
        try:
            while chunk := self._fetch(size):
                for entry in chunk:
                    if self._closed:
                        self._fetch(0)
                    yield entry
                size = _next_size(size, chunk)
        finally:
            self.close()

    def close(self) -> None:
        """End the scan; idempotent, from any thread. The next step of ``entries`` raises StoreClosedError."""
        self._closed = True
        with self._lock:
            self._let_go()

    def _read_options(self) -> ReadOptions:
        options = ReadOptions()
        if self._stop is not None:
            options.set_iterate_upper_bound(self._stop)
        return options

    def _fetch(self, size: int) -> list[Entry]:
        """Give the next entries, *size* of them at most; none at the proven end."""
        with self._lock, translated(self._doing):
            if self._closed:
                raise StoreClosedError(f"{self._doing}: the store was closed")
            if self._items is None:
                return []
            chunk: list[Entry] = list(islice(self._items, size))
            self._last = chunk[-1][0] if chunk else self._last
            if len(chunk) < size:
                self._prove_end()
                self._let_go()
            return self._from_start(chunk)

    def _from_start(self, chunk: list[Entry]) -> list[Entry]:
        """Cut off what a descending scan has read below its start."""
        if not self._reverse or self._start is None or not chunk or chunk[-1][0] >= self._start:
            return chunk
        self._let_go()
        chunk.reverse()
        kept = chunk[bisect_left(chunk, self._start, key=_key) :]
        kept.reverse()
        return kept

    def _prove_end(self) -> None:
        """Look at what comes after the last entry: the status tells the end from a damaged block."""
        proof = self._proof
        assert proof is not None
        if self._last is None:
            proof.seek_to_last() if self._reverse else proof.seek(self._start or b"")
        else:
            proof.seek(self._last)
            if proof.valid():
                proof.prev() if self._reverse else proof.next()
        proof.status()
        if proof.valid():
            raise StateCorruptError(f"{self._doing}: the scan ended before the key {proof.key()!r}")

    def _let_go(self) -> None:
        """Drop the driver's objects: while one of them lives, the database stays open and locked."""
        self._items = self._proof = None


def _key(entry: Entry) -> bytes:
    return entry[0]


def _next_size(size: int, chunk: list[Entry]) -> int:
    """Grow while the chunks stay small, so that large values do not fill the memory."""
    sample = chunk[:: max(1, len(chunk) // 8)]
    mean = sum(len(key) + len(value) for key, value in sample) // len(sample) + 1
    return max(1, min(size * 2, _MOST, _CHUNK_BYTES // mean))
