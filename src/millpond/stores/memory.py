"""
The memory engine: a store that lives in this process, and whose image is one sorted file of changes.

The entries are kept twice: in a dict for reads, and in sorted chunks that never change, for scans. A scan takes the
list of chunks as it is; an apply replaces that list, and in it only the chunks that a change falls into. So a scan
costs nothing at its start, and an apply copies one pointer for each 512 entries of the store, and up to 1,024 entries
for each chunk that changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

from attrs import frozen

from millpond.errors import FormatError, StateCorruptError, StateNotFoundError, StoreClosedError
from millpond.formats import change_file
from millpond.local import fsync_directory
from millpond.spi import SPI_VERSION, Change, StoreEngine, StoreSpec
from millpond.stores.merge import Item

DATA = "data.changes"
"""The name of an image's only file."""

_CHUNK = 512

Chunk = list[Item]
_key_of = itemgetter(0)


@frozen
class MemoryConfig:
    """The memory engine has no settings."""


class MemoryEngine(StoreEngine):
    """Holds one store in memory. Reads come from any thread."""

    spi_version: ClassVar[tuple[int, int]] = SPI_VERSION
    config_class: ClassVar[type] = MemoryConfig
    immutable: ClassVar[tuple[str, ...]] = (DATA,)
    honest_limits: ClassVar[Mapping[str, object]] = {
        "deviations": {"image.cheap": "its image is one file, written anew"},
    }

    def __init__(self, store: str = "", items: Iterable[Item] = (), *, read_only: bool = False) -> None:
        """Hold *items*, which are sorted by key."""
        self._store = store
        self._read_only = read_only
        self._closed = False
        self._chunks = list(_chunked(items))
        self._values = {key: value for chunk in self._chunks for key, value in chunk}

    @classmethod
    def validate(cls, store: StoreSpec) -> Iterable[str]:
        """Refuse every option: there is none."""
        return [f"the memory engine has no option {name!r}" for name in store.options]

    @classmethod
    def open(cls, directory: Path, store: StoreSpec, *, read_only: bool = False) -> MemoryEngine:
        """
        Read the image in *directory*, if there is one.

        Raises:
            StateCorruptError: It is damaged, or something else is there.
        """
        path = directory / DATA
        if path.exists():
            return cls(store.name, _read(path), read_only=read_only)
        stranger = next(iter(directory.iterdir()), None) if directory.exists() else None
        if stranger is not None:
            raise StateCorruptError(f"{directory} is no image of the memory engine: {DATA} is missing in it")
        return cls(store.name, read_only=read_only)

    def get(self, key: bytes) -> bytes | None:
        """Give the value of *key*, or None."""
        values = self._values  # before the check: close() replaces it
        self._check()
        return values.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Give the values of *keys*, in order."""
        values = self._values
        self._check()
        return list(map(values.get, keys))

    def scan(self, start: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[Item]:
        """Give the entries from *start* to before *stop*, as they are now."""
        chunks = self._chunks
        self._check()
        return self._scan(chunks, start, stop, reverse)

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply sorted changes. A reader may see a part of them; a scan sees all or none."""
        self._check()
        if self._read_only:
            raise StoreClosedError(f"store {self._store!r} was opened for reading only")
        self._chunks = _applied(self._chunks, changes)
        for key, value in changes:
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def checkpoint(self, directory: Path) -> None:
        """Write everything into one file in the new *directory*, and bring both to stable storage."""
        self._check()
        directory.mkdir()
        change_file.write(directory / DATA, self.scan(None, None, False), sync=True)
        fsync_directory(directory)

    def close(self) -> None:
        """Forget everything; open iterators raise at their next step."""
        self._closed = True
        self._chunks = []
        self._values = {}

    def _check(self) -> None:
        if self._closed:
            raise StoreClosedError(f"store {self._store!r} is closed: reopen its task")

    def _scan(self, chunks: list[Chunk], start: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[Item]:
        for chunk in _within(chunks, start, stop, reverse):
            for item in chunk:
                self._check()
                yield item
        self._check()


def _read(path: Path) -> Iterator[Item]:
    """Give the entries of an image's file, and check that they are what this engine writes."""
    try:
        last: bytes | None = None
        for key, value in change_file.read(path):
            if value is None or (last is not None and key <= last):
                raise StateCorruptError(f"{path} is no image of the memory engine: its entries are not sorted values")
            yield key, value
            last = key
    except (FormatError, StateNotFoundError) as error:
        raise StateCorruptError(f"{path} is no image of the memory engine: {error}") from error


def _chunked(items: Iterable[Item]) -> Iterator[Chunk]:
    stream = iter(items)
    while chunk := list(islice(stream, _CHUNK)):
        yield chunk


def _applied(chunks: list[Chunk], changes: Sequence[Change]) -> list[Chunk]:
    """Give *chunks* with sorted *changes* in them, each chunk either the same one or a new one."""
    if not chunks:
        return list(_chunked(_patched([], changes)))
    # A key before the first chunk's belongs to the first chunk.
    bounds = [0, *(bisect_left(changes, chunk[0][0], key=_key_of) for chunk in chunks[1:]), len(changes)]
    result: list[Chunk] = []
    for chunk, (low, high) in zip(chunks, pairwise(bounds), strict=True):
        result += [chunk] if low == high else _split(_patched(chunk, changes[low:high]))
    return result


def _patched(chunk: Chunk, changes: Sequence[Change]) -> Chunk:
    newest: dict[bytes, bytes | None] = dict(chunk)
    newest.update(changes)
    return [(key, value) for key in sorted(newest) if (value := newest[key]) is not None]


def _split(chunk: Chunk) -> Iterable[Chunk]:
    """Give *chunk*, in pieces if it has grown; nothing if it is empty."""
    if len(chunk) <= 2 * _CHUNK:
        return [chunk] if chunk else []
    return _chunked(chunk)


def _within(chunks: list[Chunk], start: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[Chunk]:
    """Give the parts of *chunks* from *start* to before *stop*, in the direction of the scan."""
    first = 0 if start is None else max(bisect_right(chunks, start, key=_first_key) - 1, 0)
    last = len(chunks) if stop is None else bisect_left(chunks, stop, key=_first_key)
    for place in range(last - 1, first - 1, -1) if reverse else range(first, last):
        chunk = chunks[place]
        low = 0 if start is None else bisect_left(chunk, start, key=_key_of)
        high = len(chunk) if stop is None else bisect_left(chunk, stop, key=_key_of)
        part = chunk[low:high]
        yield part[::-1] if reverse else part


def _first_key(chunk: Chunk) -> bytes:
    return chunk[0][0]
