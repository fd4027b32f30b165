"""Changes on their way up and down: written, packed, unpacked within bounds, and merged."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from pathlib import Path

from attrs import frozen

from millpond.errors import StateCorruptError
from millpond.formats import change_file
from millpond.formats.digest import Digester
from millpond.local import explained
from millpond.spi import BATCH, Change

_CHUNK = 1 << 20
_LEVEL = 1  # the deltas of sorted keys pack well at any level, and a commit should not wait for more


class TooLargeError(Exception):
    """There are more changes than it is worth to write."""


@frozen
class PackedChanges:
    """
    A change file, packed, in the scratch folder.

    Attributes:
        path: Where it is.
        size: In bytes.
        raw_size: Bytes of the change file itself.
        digest: Of the packed bytes.
    """

    path: Path
    size: int
    raw_size: int
    digest: str


def pack(changes: Iterable[Change], path: Path, most: int) -> PackedChanges:
    """
    Write *changes* and pack them into the new file *path*; holds a piece in memory at a time.

    Raises:
        TooLargeError: They exceed *most* bytes; nothing is left.
        ConfigError, TransientError: The disk refuses.
    """
    raw = path.with_name(f"{path.name}.raw")
    try:
        with explained("write the changes to", path):
            raw_size = change_file.write(raw, _bounded(changes, most))
            return _packed(raw, path, raw_size)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        raw.unlink(missing_ok=True)


def _bounded(changes: Iterable[Change], most: int) -> Iterator[Change]:
    source = iter(changes)
    size = 0
    while batch := list(islice(source, BATCH)):
        size += sum(len(key) + len(value or b"") for key, value in batch)
        if size > most:
            raise TooLargeError(f"more than {most} bytes of changes")
        yield from batch


def _packed(raw: Path, path: Path, raw_size: int) -> PackedChanges:
    packer, digester, size = zlib.compressobj(_LEVEL), Digester(), 0
    with raw.open("rb") as source, path.open("xb") as target:
        while chunk := source.read(_CHUNK):
            piece = packer.compress(chunk)
            digester.update(piece)
            size += target.write(piece)
        piece = packer.flush()
        digester.update(piece)
        size += target.write(piece)
    return PackedChanges(path, size, raw_size, digester.text())


def unpack(packed: Path, path: Path, raw_size: int, name: str) -> None:
    """
    Unpack the zlib stream *packed* into the new file *path*, and never more than *raw_size* bytes.

    Raises:
        StateCorruptError: It is no such stream, or not of that size; *name* says what it is.
    """
    unpacker, size = zlib.decompressobj(), 0
    with explained("unpack into", path), packed.open("rb") as source, path.open("xb") as target:
        while not unpacker.eof:
            chunk = unpacker.unconsumed_tail or source.read(_CHUNK)
            if not chunk:
                break
            try:
                piece = unpacker.decompress(chunk, _CHUNK)
            except zlib.error as error:
                raise StateCorruptError(f"{name} is damaged: {error}") from error
            size += len(piece)
            if size > raw_size:
                raise StateCorruptError(f"{name} unpacks to more than the {raw_size} bytes that its manifest says")
            target.write(piece)
        if not unpacker.eof or unpacker.unused_data or source.read(1) or size != raw_size:
            raise StateCorruptError(f"{name} is damaged: it does not unpack to {raw_size} bytes")


def merged(files: Sequence[Path]) -> Iterator[Change]:
    """Merge sorted change files, oldest first: of one key, the last file's change is given. A frame each in memory."""
    newest_first = [_ranked(path, age) for age, path in enumerate(reversed(files))]
    last: bytes | None = None
    for key, _, value in merge(*newest_first, key=itemgetter(0, 1)):
        if key != last:
            yield key, value
        last = key


def _ranked(path: Path, age: int) -> Iterator[tuple[bytes, int, bytes | None]]:
    last: bytes | None = None
    for key, value in change_file.read(path):
        if last is not None and key <= last:
            raise StateCorruptError(f"the changes in {path.name} are not sorted")
        yield key, age, value
        last = key
