"""A store's images: made from its engine, described by a manifest, opened without being touched."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve, field, frozen

from millpond.checkpoint import CheckpointId
from millpond.formats.digest import digest_bytes, digest_file
from millpond.formats.manifest import ImageManifest, ManifestFile
from millpond.local import (
    MANIFEST,
    FileIdentity,
    ImageFile,
    TaskDirectory,
    clone_image,
    current_boot,
    describe_image,
    known_digests,
)
from millpond.spi import FileEntry, StoreEngine, StoreSpec, Transfers

Inodes = Mapping[FileIdentity, ManifestFile]

_SMALL = 64 << 10
"""Bytes up to which a file is digested right here: handing it to another thread would take longer."""


@frozen
class Image:
    """
    One store's data as of one commit, in a directory that never changes.

    Attributes:
        store: The store's name.
        name: ``"<checkpoint id>-<writer>"``.
        path: Where it is, staged or sealed.
        files: Its files without the manifest.
        new: Those of them that earlier images did not hold.
    """

    store: str
    name: str
    path: Path
    files: tuple[ManifestFile, ...] = ()
    new: tuple[ManifestFile, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of all its files."""
        return sum(file.size for file in self.files)

    @property
    def new_size(self) -> int:
        """The bytes of the files that earlier images did not hold."""
        return sum(file.size for file in self.new)

    def inodes(self) -> Inodes:
        """Give what its manifest says of its files by device and inode, for the images that follow."""
        return known_digests(self.path, self.files)


@frozen
class Made:
    """
    Who made an image, and for which commit.

    Attributes:
        id: The checkpoint's id.
        writer: The claim's writer.
    """

    id: CheckpointId
    writer: str

    @property
    def image(self) -> str:
        """The name of an image that was made so."""
        return f"{self.id}-{self.writer}"


@frozen(kw_only=True)
class Sealing:
    """
    What it takes to seal an image.

    Attributes:
        directory: The task's directories.
        transfers: The pool that hashes files.
        algorithm: ``"blake3"`` or ``"sha256"``.
        check: Raises when the work is no longer wanted.
    """

    directory: TaskDirectory
    transfers: Transfers
    algorithm: str = "blake3"
    check: Callable[[], None] = field(default=lambda: None)

    def seal(self, image: Image, spec: StoreSpec, known: Inodes, properties: Mapping[str, str], made: Made) -> Image:
        """
        Give the staged *image* its digests and its manifest, and put it in its place.

        A file that an earlier image holds under the same inode, by *known*, keeps its digest: it cannot have changed.
        """
        found = describe_image(image.path, known)
        digests = self._digests([file for file in found if file.digest is None])
        files = tuple(ManifestFile(file.name, file.size, file.digest or digests[file.name]) for file in found)
        new = tuple(file for file in files if file.name in digests)
        manifest = ImageManifest(
            spec.name, spec.engine, made.id, made.writer, files, boot=current_boot(), properties=properties
        )
        path = self.directory.seal(spec.name, image.name, manifest)
        return evolve(image, path=path, files=files, new=new)

    def _digests(self, files: Sequence[ImageFile]) -> dict[str, str]:
        """Give the digest of each of *files* by its name."""
        large = [file for file in files if file.size > _SMALL]
        found = self.transfers.map(lambda file: digest_file(file.path, self.algorithm), large, self.check)
        digests = {file.name: digest for file, digest in zip(large, found, strict=True)}
        for file in files:
            if file.name not in digests:
                digests[file.name] = digest_bytes(file.path.read_bytes(), self.algorithm)
        return digests


def entries(image: Image, algorithm: str) -> list[FileEntry]:
    """Give the files of a sealed *image*, its MANIFEST among them, as a backend reads them."""
    manifest = image.path / MANIFEST
    listed = [
        FileEntry(name=file.name, path=image.path / file.name, size=file.size, digest=file.digest)
        for file in image.files
    ]
    data = manifest.read_bytes()
    digest = digest_bytes(data, algorithm)
    return [*listed, FileEntry(name=MANIFEST, path=manifest, size=len(data), digest=digest)]


def discard(image: Image) -> None:
    """Remove an image that no checkpoint names, staged or sealed; what cannot be removed goes at the next opening."""
    (image.path / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(image.path, ignore_errors=True)


@contextmanager
def opened(image: Path, engine: type[StoreEngine], spec: StoreSpec, scratch: Path) -> Iterator[StoreEngine]:
    """Open the *image* for reading, through a private clone below *scratch*: an image itself is never opened."""
    clone = scratch / f"open-{secrets.token_hex(8)}"
    scratch.mkdir(parents=True, exist_ok=True)
    clone_image(image, clone, immutable=engine.immutable, transient=engine.transient)
    try:
        database = engine.open(clone, spec, read_only=True)
        try:
            yield database
        finally:
            database.close()
    finally:
        shutil.rmtree(clone, ignore_errors=True)
