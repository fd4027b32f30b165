"""
Where the images of one store lie, whole or not at all.

::

    <root>/<store>/<id>-<writer>/            a complete image, with its MANIFEST
    <root>/<store>/.staging-<id>-<writer>/   one that is being made
    <root>/<store>/.removed-<id>-<writer>/   one that is being removed

An image appears by one rename and goes by one. What has another name is not ours and is left alone.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import frozen

from millpond.checkpoint import CheckpointId
from millpond.local import (
    escape_name,
    explained,
    fsync_directory,
    job_folder,
    make_folders,
    refuse_to_leave,
    unescape_name,
)
from millpond.points import reached
from millpond.spi import JobContext

STAGING = ".staging-"
REMOVED = ".removed-"

_NAME = re.compile(r"(-?[0-9]{1,19}-[0-9]{1,19})-([0-9a-zA-Z]{1,128})", re.ASCII)


@frozen
class ImageName:
    """
    Names an image: the commit that made it, and the claim under which it did.

    Attributes:
        id: The commit's id.
        writer: The claim's writer.
    """

    id: CheckpointId
    writer: str

    def __str__(self) -> str:
        return f"{self.id}-{self.writer}"

    @classmethod
    def parse(cls, text: str) -> ImageName | None:
        """Read *text*; None if it is no image's name, and so nothing that could lead out of the shelf."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        try:
            name = cls(CheckpointId.parse(match[1]), match[2])
        except ValueError:
            return None
        return name if str(name) == text else None


class Shelf:
    """The images of one store, in the folder *path*. Any thread may call it; calls about one image do not overlap."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, root: Path, store: str) -> Shelf:
        """Give the shelf of *store* below *root*; it may not exist yet."""
        return cls(root / escape_name(store))

    def images(self) -> list[ImageName]:
        """Give the complete images, oldest first."""
        return self._named("")

    def staged(self) -> list[ImageName]:
        """Give the images that are, or were, being made."""
        return self._named(STAGING)

    def image(self, name: ImageName) -> Path:
        """Give the place of an image, which may not exist."""
        return self.path / str(name)

    def staging(self, name: ImageName) -> Path:
        """Give the place where an image is made, which may not exist."""
        return self.path / f"{STAGING}{name}"

    def stage(self, name: ImageName) -> Path:
        """Make an empty folder for a new image; what an earlier attempt left in it is removed."""
        make_folders(self.path)
        staging = self.staging(name)
        remove_tree(staging)
        with explained("make the folder", staging):
            staging.mkdir()
        return staging

    def publish(self, name: ImageName) -> None:
        """Make a staged image complete: durable folders, one rename, and that durable. Its files already are."""
        staging = self.staging(name)
        for folder, _, _ in os.walk(staging, topdown=False):
            fsync_directory(Path(folder))
        self.remove(name)  # of an attempt that failed right after its rename: nothing names it yet
        with explained("publish the image", self.image(name)):
            staging.rename(self.image(name))
        reached("rocksdb-local.image-published")
        fsync_directory(self.path)

    def remove(self, name: ImageName) -> None:
        """Remove a complete image; idempotent. It is gone at once, whatever becomes of its files."""
        doomed = self.path / f"{REMOVED}{name}"
        remove_tree(doomed)
        with explained("remove the image", self.image(name)):
            try:
                self.image(name).rename(doomed)
            except FileNotFoundError:
                return
        reached("rocksdb-local.image-unmade")
        remove_tree(doomed)

    def remove_staging(self, name: ImageName) -> None:
        """Remove what the making of an image left; idempotent."""
        remove_tree(self.staging(name))

    def doomed(self) -> list[Path]:
        """Give what is left of images whose removal was cut short."""
        return [self.path / f"{REMOVED}{name}" for name in self._named(REMOVED)]

    def _named(self, prefix: str) -> list[ImageName]:
        names = (entry.removeprefix(prefix) for entry in folders_in(self.path) if entry.startswith(prefix))
        return sorted(filter(None, map(ImageName.parse, names)), key=lambda name: (name.id, name.writer))


def task_folder(path: Path, job: JobContext, task: str, backend: str) -> Path:
    """Give the folder of a task's images below *path*; the backend's name keeps two sections with one path apart."""
    root = path / job_folder(job.job, job.job_id) / escape_name(task) / escape_name(backend)
    return refuse_to_leave(path, root)


def stores_in(root: Path) -> list[str]:
    """Give the names of the stores that have a shelf below *root*."""
    return unescaped_folders(root)


def unescaped_folders(path: Path) -> list[str]:
    """Give the names behind the escaped folder names in *path*; folders of other names are left out."""
    return list(_unescaped(folders_in(path)))


def _unescaped(names: list[str]) -> Iterator[str]:
    for name in names:
        try:
            yield unescape_name(name)
        except ValueError:  # not ours
            continue


def folders_in(path: Path) -> list[str]:
    """Give the names of the folders in *path*, sorted; none if it is missing. Symbolic links are no folders."""
    with explained("list", path):
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []


def remove_tree(path: Path) -> None:
    """Remove a folder and all in it; fine if it, or a part of it, is gone already."""
    with explained("remove", path):
        shutil.rmtree(path, onerror=_unless_gone)


def _unless_gone(_function: Callable[..., object], _path: str, error: tuple[type, BaseException, object]) -> None:
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


def newest_change(path: Path) -> float:
    """Give when *path* or anything in it was last changed, in seconds since 1970; 0 if it is gone."""
    times = [0.0]
    for folder, _, names in os.walk(path):
        for place in [folder, *(os.path.join(folder, name) for name in names)]:  # noqa: PTH118 - os.walk speaks text
            try:
                times.append(os.lstat(place).st_mtime)
            except FileNotFoundError:
                continue
    return max(times)
