"""Carrying out reads: several at once within the job's transfer memory, each file verified as its last part comes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from threading import Lock

from attrs import define, field

from millpond.blob.fetch import Fetch, Slice, Wanted, plan_fetches
from millpond.blob.reading import read_part
from millpond.blob.store import BlobStore
from millpond.errors import StateCorruptError
from millpond.formats.digest import algorithm_of, digest_bytes, digest_file
from millpond.local import explained
from millpond.spi import Transfers


@define
class Download:
    """
    Brings pieces of objects to files.

    Attributes:
        store: Where they are.
        prefix: What the objects' keys begin with.
        transfers: Reads several at once.
        check: Raises when nobody wants this any more.
        done: Told the bytes that each read brought; not by two threads at once.
    """

    store: BlobStore
    prefix: str
    transfers: Transfers
    check: Callable[[], None]
    done: Callable[[int], None]
    _missing: Counter[Wanted] = field(factory=Counter, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def run(self, wanted: Iterable[Wanted]) -> None:
        """
        Read all of *wanted* into files that do not exist yet; each is verified when this returns.

        Raises:
            StateNotFoundError, StateCorruptError: Something is not there, or not what it should be; with its object.
            TransientError: The store does not answer, or the disk is full.
        """
        pieces = list(wanted)
        for piece in pieces:
            self._missing[piece] += piece.size
            self._make_room(piece)
        self.transfers.map(self._fetch, plan_fetches(pieces), self.check)

    def _make_room(self, piece: Wanted) -> None:
        with explained("write", piece.path):
            piece.path.parent.mkdir(parents=True, exist_ok=True)
            piece.path.open("xb").close()

    def _fetch(self, fetch: Fetch) -> None:
        with self.transfers.reserve(fetch.length):
            data = memoryview(read_part(self.store, self.prefix + fetch.object, fetch.start, fetch.length))
            for part in fetch.slices:
                self._take(part, data[part.at : part.at + part.length])
        with self._lock:
            self.done(sum(part.length for part in fetch.slices))

    def _take(self, part: Slice, data: memoryview) -> None:
        wanted = part.wanted
        if part.whole:
            self._compare(wanted, digest_bytes(data, algorithm_of(wanted.digest)))
        with explained("write", wanted.path):
            _write_at(wanted, part.offset, data)
        with self._lock:
            self._missing[wanted] -= part.length
            last = self._missing[wanted] == 0
        if last and not part.whole:
            with explained("read", wanted.path):
                digest = digest_file(wanted.path, algorithm_of(wanted.digest))
            self._compare(wanted, digest)

    def _compare(self, wanted: Wanted, digest: str) -> None:
        if digest != wanted.digest:
            raise StateCorruptError(
                f"{wanted.what} in the object {self.store.where(self.prefix + wanted.object)} is damaged: its digest "
                f"is {digest}, and its manifest says {wanted.digest}"
            )


def _write_at(wanted: Wanted, offset: int, data: memoryview) -> None:
    descriptor = os.open(wanted.path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while data:
            written = os.pwrite(descriptor, data, offset)
            data, offset = data[written:], offset + written
    finally:
        os.close(descriptor)
