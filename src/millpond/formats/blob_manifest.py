"""
The backup manifest of one store: every object that a restore of it needs, and what to read from each.

A header line (see :mod:`millpond.formats.envelope`) with the magic ``millpond-backup`` and the kind ``store``, then a
JSON object. A base is the files of an image; on top of it come change files, in order. ``docs/formats.md`` lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec
from attrs import field, frozen

from millpond.checkpoint import CheckpointId
from millpond.errors import FormatError
from millpond.formats.blob_marker import check_object
from millpond.formats.digest import check_digest
from millpond.formats.envelope import seal, unseal
from millpond.formats.manifest import ImageManifest, ManifestFile

_MAGIC = "millpond-backup"
_VERSION = 1
_NOWHERE = -1
_LARGEST = 1 << 53
_ENCODINGS = frozenset({"", "zlib"})


def _check_size(size: int) -> int:
    if not 0 <= size < _LARGEST:
        raise FormatError(f"a size or a place cannot be {size}")
    return size


@frozen
class StoredFile:
    """
    One file of the base, and where its bytes are.

    Attributes:
        name: Relative to the image, with ``/`` between parts.
        size: In bytes.
        digest: ``"blake3:<hex>"`` or ``"sha256:<hex>"`` of its content.
        object: The object that holds it; empty for a file without a byte.
        start: Its first byte there.
    """

    name: str
    size: int = field(converter=_check_size)
    digest: str = field(converter=check_digest)
    object: str
    start: int = field(converter=_check_size)


@frozen
class StoredChanges:
    """
    One link of the chain: a change file, and where its bytes are.

    Attributes:
        object: The object that holds it.
        start: Its first byte there.
        size: Bytes there.
        digest: Of those bytes.
        raw_size: Bytes of the change file itself.
        encoding: How the bytes are packed: ``""`` as they are, ``"zlib"`` as one zlib stream.
    """

    object: str = field(converter=check_object)
    start: int = field(converter=_check_size)
    size: int = field(converter=_check_size)
    digest: str = field(converter=check_digest)
    raw_size: int = field(converter=_check_size)
    encoding: str = "zlib"

    def __attrs_post_init__(self) -> None:
        if self.encoding not in _ENCODINGS:
            raise FormatError(f"changes are packed in an unknown way: {self.encoding[:40]!r}: use a newer Millpond")


def _frozen_strings(mapping: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(mapping))


def _frozen_sizes(mapping: Mapping[str, int]) -> Mapping[str, int]:
    return MappingProxyType({check_object(name): _check_size(size) for name, size in mapping.items()})


def _frozen_files(files: Iterable[StoredFile]) -> tuple[StoredFile, ...]:
    return tuple(files)


def _frozen_changes(changes: Iterable[StoredChanges]) -> tuple[StoredChanges, ...]:
    return tuple(changes)


@frozen
class BackupManifest:
    """
    What a restore of one store needs; refuses what no image may have, and what reaches beyond its object.

    Attributes:
        store: The store's name, as the operator wrote it.
        engine: The name of the engine whose files these are.
        id: The commit that made the base.
        writer: Of the claim under which it was made.
        objects: Every object that files and changes lie in, and the bytes that it holds at least.
        files: The base.
        changes: What came after it, oldest first.
        properties: What else the store needs to be read right, as in the image's manifest.
    """

    store: str
    engine: str
    id: CheckpointId
    writer: str
    objects: Mapping[str, int] = field(converter=_frozen_sizes)
    files: tuple[StoredFile, ...] = field(converter=_frozen_files)
    changes: tuple[StoredChanges, ...] = field(converter=_frozen_changes, factory=tuple)
    properties: Mapping[str, str] = field(converter=_frozen_strings, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.image()
        for file in self.files:
            if file.size or file.object:
                self._check_place(file.name, file.object, file.start, file.size)
        for number, link in enumerate(self.changes):
            self._check_place(f"changes {number}", link.object, link.start, link.size)

    def _check_place(self, what: str, name: str, start: int, size: int) -> None:
        held = self.objects.get(name)
        if held is None:
            raise FormatError(
                f"store {self.store!r}: {what!r} lies in {name[:200]!r}, which the manifest does not name"
            )
        if start + size > held:
            raise FormatError(
                f"store {self.store!r}: {what!r} ends at byte {start + size} of {name}, which holds {held}"
            )

    def image(self) -> ImageManifest:
        """Give the manifest of the base as an image; it may have been made in any boot."""
        files = [ManifestFile(file.name, file.size, file.digest) for file in self.files]
        return ImageManifest(self.store, self.engine, self.id, self.writer, tuple(files), properties=self.properties)

    @property
    def base_size(self) -> int:
        """Bytes in all files of the base."""
        return sum(file.size for file in self.files)

    @property
    def chain_size(self) -> int:
        """Bytes of all changes as they lie in objects."""
        return sum(link.size for link in self.changes)

    @property
    def chain_raw_size(self) -> int:
        """Bytes of all change files themselves."""
        return sum(link.raw_size for link in self.changes)


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    store: str
    engine: str
    id: str
    writer: str
    properties: dict[str, str]
    objects: list[tuple[str, int]]
    files: list[tuple[str, int, str, int, int]]
    changes: list[tuple[int, int, int, str, int, str]]


_DECODER = msgspec.json.Decoder(_Content)


def encode(manifest: BackupManifest) -> bytes:
    """
    Give the manifest's bytes; the same manifest gives the same bytes.

    Raises:
        FormatError: It is over 64 MiB, or a text in it is no valid Unicode.
    """
    place = {name: number for number, name in enumerate(manifest.objects)}
    content = _Content(
        manifest.store,
        manifest.engine,
        str(manifest.id),
        manifest.writer,
        dict(manifest.properties),
        list(manifest.objects.items()),
        [
            (file.name, file.size, file.digest, place[file.object] if file.object else _NOWHERE, file.start)
            for file in manifest.files
        ],
        [
            (place[link.object], link.start, link.size, link.digest, link.raw_size, link.encoding)
            for link in manifest.changes
        ],
    )
    try:
        body = msgspec.json.encode(content) + b"\n"
    except UnicodeEncodeError as error:
        raise FormatError(f"the backup of store {manifest.store!r} holds text that is no valid Unicode") from error
    return seal(_MAGIC, _VERSION, "store", body)


def decode(data: bytes) -> BackupManifest:
    """
    Read a manifest's bytes, strictly.

    Raises:
        StateCorruptError: They are cut or changed.
        FormatError: They are no backup manifest, of a newer version, or name what none may.
    """
    sealed = unseal(_MAGIC, _VERSION, data)
    if sealed.kind != "store":
        raise FormatError(f"a backup manifest of an unknown kind: {sealed.kind!r}")
    try:
        content = _DECODER.decode(sealed.body)
        return _manifest(content, CheckpointId.parse(content.id))
    except FormatError:
        raise
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FormatError(f"the backup manifest's content is not of version {_VERSION}: {error}") from error


def _manifest(content: _Content, commit: CheckpointId) -> BackupManifest:
    names = [name for name, _ in content.objects]
    if len(set(names)) != len(names):
        raise FormatError(f"the backup manifest of store {content.store!r} names an object twice")
    files = [
        StoredFile(name, size, digest, _object(names, number, empty=size == 0), start)
        for name, size, digest, number, start in content.files
    ]
    changes = [
        StoredChanges(_object(names, number, empty=False), start, size, digest, raw_size, encoding)
        for number, start, size, digest, raw_size, encoding in content.changes
    ]
    return BackupManifest(
        content.store,
        content.engine,
        commit,
        content.writer,
        dict(content.objects),
        files,
        changes,
        content.properties,
    )


def _object(names: Sequence[str], number: int, *, empty: bool) -> str:
    if number == _NOWHERE and empty:
        return ""
    if not 0 <= number < len(names):
        raise FormatError(f"the backup manifest names its object {number}, and has {len(names)}")
    return names[number]
