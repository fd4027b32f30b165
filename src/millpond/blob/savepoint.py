"""
Copying a checkpoint to another store, or to another place in the same one, so that it needs no other object.

Manifests name objects, never keys: objects go over as they are, under their names, each piece of them verified on the
way. The record goes last, as a pin, and as the first record where there is none yet; so a task can be opened there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from attrs import field, frozen

from millpond.blob.fetch import PART
from millpond.blob.folder import BlobFolder
from millpond.blob.layout import TaskKeys
from millpond.blob.manifests import ManifestReader, Manifests, parse
from millpond.blob.reading import read_part
from millpond.blob.retention import needed_by
from millpond.blob.store import BlobStore, FileBody
from millpond.checkpoint import Checkpoint
from millpond.errors import StateCorruptError
from millpond.formats import record as record_format
from millpond.formats.digest import Digester, algorithm_of
from millpond.local import explained, make_folders
from millpond.records import NamedFolder, RecordFolder, record_name
from millpond.records.pins import PinBoard
from millpond.spi import Transfers


@frozen
class TaskPlace:
    """
    Where one task's records and data are.

    Attributes:
        store: The store.
        keys: The task's keys in it.
    """

    store: BlobStore
    keys: TaskKeys


@frozen
class DataPlace:
    """
    Where one backend keeps one task's objects.

    Attributes:
        store: The store.
        prefix: What the keys of its objects begin with, up to the last ``/``.
    """

    store: BlobStore
    prefix: str


@frozen
class Copying:
    """
    What it takes to copy.

    Attributes:
        transfers: Copies several objects at once, within its memory.
        scratch: Where one object after another lies meanwhile.
        check: Raises when the copy is no longer wanted.
    """

    transfers: Transfers
    scratch: Path
    check: Callable[[], None] = field(default=lambda: None)


@frozen
class Copied:
    """
    What was copied.

    Attributes:
        objects: How many.
        size: Their bytes.
    """

    objects: int
    size: int


@frozen
class _Object:
    """An object to copy: its name, its bytes, and what in it has a digest, as (start, size, digest)."""

    name: str
    size: int
    pieces: tuple[tuple[int, int, str], ...]


def copy_savepoint(
    checkpoint: Checkpoint, name: str, backends: Collection[str], source: TaskPlace, target: TaskPlace, copying: Copying
) -> Copied:
    """
    Copy *checkpoint* with what *backends* (keys of markers) hold of it, and keep its record there as the pin *name*.

    The task has the same name there; its job may be called otherwise. Copying the same again is fine.

    Raises:
        StateNotFoundError, StateCorruptError: Something of it is lost; nothing can be opened there.
        ConfigError: *name* pins another checkpoint there.
    """
    copied = [
        copy_objects(
            checkpoint.markers.get(backend, {}).values(),
            DataPlace(source.store, source.keys.data(backend)),
            DataPlace(target.store, target.keys.data(backend)),
            copying,
        )
        for backend in sorted(backends)
    ]
    keep_record(
        checkpoint, name, BlobFolder(target.store, target.keys.pins), BlobFolder(target.store, target.keys.records)
    )
    return Copied(sum(each.objects for each in copied), sum(each.size for each in copied))


def copy_objects(markers: Iterable[str], source: DataPlace, target: DataPlace, copying: Copying) -> Copied:
    """
    Copy every object without which *markers* cannot be restored, each piece of it verified on the way.

    Raises:
        StateNotFoundError, StateCorruptError: Something of it is lost.
    """
    read = ManifestReader(source.store, source.prefix).read_many(set(markers), copying.transfers)
    for error in read.lost.values():
        raise error
    listed = {entry.key.removeprefix(source.prefix): entry.size for entry in source.store.list(source.prefix)}
    objects = _objects(read, listed)
    make_folders(copying.scratch)

    def copy(each: _Object) -> None:
        _copy_object(each, source, target, copying)

    copying.transfers.map(copy, objects, copying.check)
    return Copied(len(objects), sum(each.size for each in objects))


def _objects(read: Manifests, listed: Mapping[str, int]) -> list[_Object]:
    """Give every object that the manifests need, and what is known of its content."""
    pieces: dict[str, set[tuple[int, int, str]]] = {
        name: set() for marker, manifest in read.found.items() for name in needed_by(marker, manifest)
    }
    for marker, manifest in read.found.items():
        place = parse(marker)
        pieces[place.object].add((place.start, place.length, place.digest))
        for file in manifest.files:
            if file.size:
                pieces[file.object].add((file.start, file.size, file.digest))
        for link in manifest.changes:
            pieces[link.object].add((link.start, link.size, link.digest))
    return [
        # A listing that lags may not show it: then at least what is needed of it goes over.
        _Object(name, listed.get(name, max(start + size for start, size, _ in held)), tuple(sorted(held)))
        for name, held in sorted(pieces.items())
    ]


def _copy_object(each: _Object, source: DataPlace, target: DataPlace, copying: Copying) -> None:
    path = copying.scratch / f"copy-{secrets.token_hex(8)}"
    try:
        with path.open("xb") as file:
            for start in range(0, each.size, PART):
                copying.check()
                length = min(PART, each.size - start)
                with copying.transfers.reserve(length):
                    data = read_part(source.store, source.prefix + each.name, start, length)
                    with explained("write", path):
                        file.write(data)
        for piece in each.pieces:
            _verify(path, piece, source.store.where(source.prefix + each.name))
        target.store.put(target.prefix + each.name, FileBody(path, each.size))
    finally:
        path.unlink(missing_ok=True)


def _verify(path: Path, piece: tuple[int, int, str], where: str) -> None:
    start, size, digest = piece
    digester = Digester(algorithm_of(digest))
    with path.open("rb") as file:
        file.seek(start, os.SEEK_SET)
        left = size
        while left and (data := file.read(min(left, PART))):
            digester.update(data)
            left -= len(data)
    if left or digester.text() != digest:
        raise StateCorruptError(f"{where} is damaged: {size} bytes from {start} on have not the digest {digest}")


def keep_record(checkpoint: Checkpoint, name: str, pins: NamedFolder, records: RecordFolder) -> None:
    """
    Keep *checkpoint* as the pin *name*, and as the first record where there is none; the same again is fine.

    Raises:
        ConfigError: *name* pins another checkpoint there.
    """
    data = record_format.encode_checkpoint(checkpoint)
    task = checkpoint.claim.task if checkpoint.claim is not None else ""
    PinBoard(task, pins).put(name, checkpoint.id, data)
    if not records.names():
        records.create(record_name(1), data)
