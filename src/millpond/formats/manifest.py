"""
The manifest of an image: which files it has, and what each of them holds.

A header line (see :mod:`millpond.formats.envelope`) with the magic ``millpond-manifest``, then a JSON object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec
from attrs import field, frozen

from millpond.checkpoint import CheckpointId
from millpond.errors import FormatError
from millpond.formats.digest import check_digest
from millpond.formats.envelope import seal, unseal

FILE_NAME = "MANIFEST"
"""The manifest's own name in its image; no file of the image may have it."""

_MAGIC = "millpond-manifest"
_VERSION = 1
_LONGEST_NAME = 4096
_FORBIDDEN_PARTS = frozenset({"", ".", ".."})


def check_name(name: str) -> str:
    """
    Give *name* back if it stays inside the image: relative, ``/`` between its parts.

    Raises:
        FormatError: It is absolute, has an empty part, ``.``, ``..``, a backslash or NUL, is the manifest's own name,
            is no valid Unicode or is longer than 4,096 characters.
    """
    bad = (
        len(name) > _LONGEST_NAME
        or "\\" in name
        or "\0" in name
        or name == FILE_NAME
        or not _FORBIDDEN_PARTS.isdisjoint(name.split("/"))
        or not _is_unicode(name)
    )
    if bad:
        raise FormatError(f"not a name for a file of an image: {name[:200]!r} (it must be relative and stay inside)")
    return name


def _is_unicode(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@frozen
class ManifestFile:
    """
    One file of an image; refuses names that leave it.

    Attributes:
        name: Relative to the image, with ``/`` between parts.
        size: In bytes.
        digest: ``"blake3:<hex>"`` or ``"sha256:<hex>"`` of its content.
    """

    name: str = field(converter=check_name)
    size: int = field()
    digest: str = field(converter=check_digest)

    @size.validator
    def _check_size(self, _attribute: object, size: int) -> None:
        if not 0 <= size < 1 << 63:
            raise FormatError(f"the size of {self.name!r} cannot be {size}")


def _file_and_folder(names: Iterable[str]) -> str | None:
    """Find a name that is also a folder of another name."""
    known = frozenset(names)
    for name in known:
        folder = name
        while "/" in folder:
            folder = folder.rpartition("/")[0]
            if folder in known:
                return folder
    return None


def _frozen_strings(mapping: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(mapping))


def _frozen_files(files: Iterable[ManifestFile]) -> tuple[ManifestFile, ...]:
    return tuple(files)


@frozen
class ImageManifest:
    """
    What a complete image is; refuses a file named twice, or inside another file.

    Attributes:
        store: The store's name, as the operator wrote it.
        engine: The name of the engine whose files these are.
        id: The commit that made the image.
        writer: Of the claim under which it was made: 128 random bits in lower-case hex.
        files: All files but the manifest.
        boot: The machine's boot in which the files were written; its page cache is trusted for no longer.
        properties: What else the store needs to be read right, e.g. its time to live and serdes.
    """

    store: str
    engine: str
    id: CheckpointId
    writer: str
    files: tuple[ManifestFile, ...] = field(converter=_frozen_files)
    boot: str = ""
    properties: Mapping[str, str] = field(converter=_frozen_strings, factory=dict)

    @files.validator
    def _check_files(self, _attribute: object, files: tuple[ManifestFile, ...]) -> None:
        names = {file.name for file in files}
        if len(names) != len(files):
            raise FormatError(f"the manifest of store {self.store!r} names a file twice")
        if folder := _file_and_folder(names):
            raise FormatError(f"the manifest of store {self.store!r} names {folder!r} as a file and as a folder")

    @property
    def image(self) -> str:
        """The image's name: ``"<id>-<writer>"``."""
        return f"{self.id}-{self.writer}"

    @property
    def size(self) -> int:
        """Bytes in all files together."""
        return sum(file.size for file in self.files)


class _File(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    name: str
    size: int
    digest: str


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    store: str
    engine: str
    id: str
    writer: str
    boot: str
    properties: dict[str, str]
    files: list[_File]


_DECODER = msgspec.json.Decoder(_Content)


def encode(manifest: ImageManifest) -> bytes:
    """
    Give the manifest's bytes; the same manifest gives the same bytes.

    Raises:
        FormatError: It is over 64 MiB, or a text in it is no valid Unicode.
    """
    content = _Content(
        manifest.store,
        manifest.engine,
        str(manifest.id),
        manifest.writer,
        manifest.boot,
        dict(manifest.properties),
        [_File(file.name, file.size, file.digest) for file in manifest.files],
    )
    try:
        body = msgspec.json.encode(content) + b"\n"
    except UnicodeEncodeError as error:
        raise FormatError(f"the manifest of store {manifest.store!r} holds text that is no valid Unicode") from error
    return seal(_MAGIC, _VERSION, "image", body)


def decode(data: bytes) -> ImageManifest:
    """
    Read a manifest's bytes, strictly.

    Raises:
        StateCorruptError: They are cut or changed.
        FormatError: They are no manifest, of a newer version, or name what no image may have.
    """
    sealed = unseal(_MAGIC, _VERSION, data)
    if sealed.kind != "image":
        raise FormatError(f"a manifest of an unknown kind: {sealed.kind!r}")
    try:
        content = _DECODER.decode(sealed.body)
        files = [ManifestFile(file.name, file.size, file.digest) for file in content.files]
        commit = CheckpointId.parse(content.id)
    except FormatError:
        raise
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FormatError(f"the manifest's content is not of version {_VERSION}: {error}") from error
    return ImageManifest(
        content.store, content.engine, commit, content.writer, tuple(files), content.boot, content.properties
    )
