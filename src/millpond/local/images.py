"""Images as folders: cloning, describing and checking them."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Protocol

from attrs import evolve, frozen

from millpond.errors import FormatError, StateCorruptError, StateNotFoundError
from millpond.formats import manifest as manifest_format
from millpond.formats.digest import algorithm_of, digest_file
from millpond.formats.envelope import MAX_SIZE
from millpond.formats.manifest import ImageManifest, ManifestFile
from millpond.local.durable import explained, links_fail

MANIFEST = manifest_format.FILE_NAME
"""The file that makes a folder an image; written last."""

_MAX_MANIFEST_BYTES = MAX_SIZE + 4096

FileIdentity = tuple[int, int]
"""A file's device and inode numbers."""


class Parallel(Protocol):
    """Does one thing to many files at once; the job's ``Transfers`` is one."""

    def map(
        self,
        work: Callable[[ManifestFile], None],
        items: Iterable[ManifestFile],
        check: Callable[[], None] | None = None,
    ) -> list[None]:
        """Do *work* on each of *items*; *check* stops the rest by raising. The first error is raised."""
        ...


@frozen
class ImageFile:
    """
    One file of an image that has no manifest yet.

    Attributes:
        name: Relative to the image, with ``/`` between parts.
        path: Where it is.
        size: In bytes.
        digest: What an earlier image says of the very same file; None: it has to be computed.
        identity: Its device and inode numbers.
    """

    name: str
    path: Path
    size: int
    digest: str | None
    identity: FileIdentity


@cache
def current_boot() -> str:
    """Give the id of this start of the machine, as in ``ImageManifest.boot``; empty where the system tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def clone_image(image: Path, target: Path, *, immutable: Collection[str], transient: Collection[str]) -> None:
    """
    Fill the new or empty folder *target* with the files of *image*, which stays as it is.

    Files whose last name part matches a pattern of *immutable* (``fnmatch``) are linked, or copied where links fail.
    Those of *transient* and the image's ``MANIFEST`` are left behind; all others are copied. Nothing is made durable: a
    live directory is not trusted after a restart.

    Raises:
        StateCorruptError: The image holds something that is neither a file nor a folder, e.g. a symbolic link.
        TransientError, ConfigError: The file system refuses.
    """
    files = [f for f in list_files(image) if not matches(f.name, transient)]
    with explained("clone an image into", target):
        target.mkdir(exist_ok=True)
        for folder in sorted({(target / f.name).parent for f in files}):
            folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            place = _link_or_copy if matches(file.name, immutable) else _copy
            place(file.path, target / file.name)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Tell whether the last part of *name* matches one of *patterns*, case and all."""
    last = name.rpartition("/")[2]
    return any(fnmatchcase(last, pattern) for pattern in patterns)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if not links_fail(error):
            raise
        _copy(source, target)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def list_files(image: Path) -> list[ImageFile]:
    """
    Give all files below *image* but its own ``MANIFEST``, sorted by name, without digests.

    Raises:
        StateNotFoundError: There is no such folder.
        StateCorruptError: Something in it is neither a file nor a folder.
    """
    found: list[ImageFile] = []
    with explained("read the image", image):
        if not image.is_dir():
            raise StateNotFoundError(f"there is no image at {image}")
        _collect_files(image, "", found)
    return sorted(found, key=lambda f: f.name)


def _collect_files(folder: Path, prefix: str, found: list[ImageFile]) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            if name == MANIFEST:
                continue
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                _collect_files(Path(entry.path), name + "/", found)
            elif stat.S_ISREG(status.st_mode):
                identity = (status.st_dev, status.st_ino)
                found.append(ImageFile(name, Path(entry.path), status.st_size, None, identity))
            else:
                raise StateCorruptError(f"{entry.path} is neither a file nor a folder: an image holds nothing else")


def known_digests(image: Path, files: Iterable[ManifestFile]) -> dict[FileIdentity, ManifestFile]:
    """
    Give *files*, which the manifest of *image* lists, by their identity on disk, for :func:`describe_image`.

    Those that are gone, or have another size on disk, are left out.
    """
    listed = {file.name: file for file in files}
    return {
        file.identity: listed[file.name]
        for file in list_files(image)
        if file.name in listed and listed[file.name].size == file.size
    }


def describe_image(directory: Path, known: Mapping[FileIdentity, ManifestFile]) -> list[ImageFile]:
    """
    Give the files of the new image *directory*; a file that *known* has, by identity and size, with its digest.

    The image that *known* came from must still be there when this returns: an inode number is only its file's for as
    long as one name is left.
    """
    return [_with_known_digest(file, known) for file in list_files(directory)]


def _with_known_digest(file: ImageFile, known: Mapping[FileIdentity, ManifestFile]) -> ImageFile:
    earlier = known.get(file.identity)
    if earlier is None or earlier.size != file.size:
        return file
    return evolve(file, digest=earlier.digest)


def read_manifest(image: Path) -> ImageManifest:
    """
    Read the manifest of *image*.

    Raises:
        StateNotFoundError: There is no complete image there.
        StateCorruptError: The manifest cannot be read.
    """
    path = image / MANIFEST
    with explained("read", path):
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                data = file.read() if size <= _MAX_MANIFEST_BYTES else None
        except (FileNotFoundError, NotADirectoryError):
            raise StateNotFoundError(f"there is no complete image at {image}") from None
    if data is None:
        raise StateCorruptError(f"{path} is larger than any manifest ({_MAX_MANIFEST_BYTES:,} bytes)")
    try:
        return manifest_format.decode(data)
    except FormatError as error:
        raise StateCorruptError(f"{path} cannot be read: {error}") from error


def verify_files(
    image: Path,
    manifest: ImageManifest,
    *,
    digests: bool,
    transfers: Parallel | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """
    Check that *image* holds the files of *manifest* and no other, with their sizes and, if asked, their *digests*.

    Digests are computed over *transfers* if given; *check* is called between files and may raise.

    Raises:
        StateCorruptError: It does not; the message names the first file that differs.
    """
    found = list_files(image)
    _compare_names_and_sizes(image, manifest, {file.name: file.size for file in found})
    if digests:
        parallel = transfers if transfers is not None else _OneByOne()
        parallel.map(lambda file: _check_digest(image, file), manifest.files, check)


class _OneByOne:
    def map(
        self,
        work: Callable[[ManifestFile], None],
        items: Iterable[ManifestFile],
        check: Callable[[], None] | None = None,
    ) -> list[None]:
        for item in items:
            if check is not None:
                check()
            work(item)
        return []


def _compare_names_and_sizes(image: Path, manifest: ImageManifest, found: Mapping[str, int]) -> None:
    listed = {file.name: file.size for file in manifest.files}
    for name in sorted(listed.keys() - found.keys()):
        raise StateCorruptError(f"{image} lacks the file {name}")
    for name in sorted(found.keys() - listed.keys()):
        raise StateCorruptError(f"{image} holds the file {name}, which its manifest does not name")
    for name, size in listed.items():
        if found[name] != size:
            raise StateCorruptError(f"{image / name} has {found[name]} bytes; its manifest says {size}")


def _check_digest(image: Path, file: ManifestFile) -> None:
    path = image / file.name
    with explained("read", path):
        actual = digest_file(path, algorithm_of(file.digest))
    if actual != file.digest:
        raise StateCorruptError(f"{path} is damaged: its digest is {actual}; its manifest says {file.digest}")
