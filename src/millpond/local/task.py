"""
A task's folder: who owns it, and where everything in it is.

::

    <state_dir>/<job>/<task>/
        OWNER                                  the lock, held for life
        live-<random>/<store>/                 open databases; never trusted after a restart
        images/<store>/<id>-<writer>/          complete images, each with its MANIFEST
        images/<store>/<id>-<writer>.new/      one that is being made
        backends/<name>/  scratch/<name>/      the backends' own: kept; emptied at each opening
        spill/  clones/                        change files, clones of images; emptied at each opening
        quarantine/<n>/                        what was proven damaged, with a file REASON
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from millpond.errors import ConfigError, StateCorruptError
from millpond.formats import manifest as manifest_format
from millpond.formats.manifest import ImageManifest
from millpond.local.durable import explained, fsync_directory, make_folders, write_durably, write_new
from millpond.local.images import MANIFEST, Parallel, current_boot, read_manifest, verify_files
from millpond.local.names import escape_name, job_folder, unescape_name
from millpond.local.owner import OwnerLock
from millpond.points import reached

QUARANTINE_KEPT = 3
"""How many damaged things are kept for a look; older ones are removed."""

_IMAGE_NAME = re.compile(r"[0-9A-Za-z+_-]{1,200}")
_UNFINISHED = ".new"


class ReadOnlyTaskDirectory:
    """
    Looks at a task's folder without a lock, for the command; nothing is made or changed.

    A live owner may remove what was just listed: that is a StateNotFoundError. Any thread may call it.
    """

    root: Path

    def __init__(self, root: Path) -> None:
        """Take the folder *root* as it is; see :meth:`at`."""
        self.root = root

    @classmethod
    def at(cls, state_dir: Path, job: str, job_id: str, task: str) -> ReadOnlyTaskDirectory:
        """
        Look at the folder of *task*; it may be missing.

        Raises:
            ConfigError: A name cannot be a file name, or a symbolic link leads out of *state_dir*.
        """
        return ReadOnlyTaskDirectory(task_root(state_dir, job, job_id, task))

    def backend(self, name: str) -> Path:
        """Give the folder that the backend *name* keeps between runs; it may not exist yet."""
        return self._inside("backends", escape_name(name))

    def stores(self) -> list[str]:
        """Give the names of the stores that have a folder for images, sorted."""
        return sorted(name for name in map(_unescaped, _folders(self._inside("images"))) if name is not None)

    def image_names(self, store: str) -> list[str]:
        """Give the names of the complete images of *store*, sorted."""
        shelf = self._shelf(store)
        return sorted(name for name in _folders(shelf) if _IMAGE_NAME.fullmatch(name) and _is_complete(shelf / name))

    def image(self, store: str, name: str) -> Path:
        """Give the place of the image *name*, which may not exist."""
        if not _IMAGE_NAME.fullmatch(name):
            raise ConfigError(f"not the name of an image: {name[:80]!r} (expected <checkpoint id>-<writer>)")
        return self._inside("images", escape_name(store), name)

    def manifest(self, store: str, name: str) -> ImageManifest:
        """
        Read the manifest of an image.

        Raises:
            StateNotFoundError: There is no such image, or it is not complete.
            StateCorruptError: Its manifest cannot be read, or is another image's.
        """
        image = self.image(store, name)
        manifest = read_manifest(image)
        if (manifest.store, manifest.image) != (store, name):
            raise StateCorruptError(f"{image / MANIFEST} belongs to {manifest.image} of {manifest.store}")
        return manifest

    def verify(
        self, store: str, name: str, *, transfers: Parallel | None = None, check: Callable[[], None] | None = None
    ) -> ImageManifest:
        """
        Check an image, and give its manifest: names and sizes, and digests too unless it was sealed in this boot.

        Digests are computed over *transfers* if given; *check* is called between files and may raise.

        Raises:
            StateNotFoundError: There is no such image, or it is not complete.
            StateCorruptError: It is not what was sealed.
        """
        manifest = self.manifest(store, name)
        boot = current_boot()
        unproven = not boot or manifest.boot != boot
        verify_files(self.image(store, name), manifest, digests=unproven, transfers=transfers, check=check)
        return manifest

    def _shelf(self, store: str) -> Path:
        return self._inside("images", escape_name(store))

    def _inside(self, *parts: str) -> Path:
        return refuse_to_leave(self.root, self.root.joinpath(*parts))


class TaskDirectory(ReadOnlyTaskDirectory):
    """
    Owns a task's folder until :meth:`close`. Any thread may call it; calls about one store do not overlap.

    Every method may raise TransientError (disk full or failing) and ConfigError (permissions, a file in the way).
    """

    def __init__(self, root: Path, owner: OwnerLock) -> None:
        """Own *root* by *owner*; see :meth:`open`."""
        super().__init__(root)
        self._owner = owner

    @classmethod
    def open(cls, state_dir: Path, job: str, job_id: str, task: str, *, timeout_s: float = 0.0) -> TaskDirectory:
        """
        Take the folder of *task*, making what is missing, and remove what an earlier owner left unfinished.

        Waits at most *timeout_s* seconds for another owner to let go.

        Raises:
            TransientError: Another process, or this one already, owns it; the message names it.
            ConfigError: The folder cannot be made or used there; the message says why.
        """
        root = task_root(state_dir, job, job_id, task)
        make_folders(root)
        owner = OwnerLock(root, timeout_s)
        try:
            directory = cls(root, owner)
            directory._sweep()
        except BaseException:
            owner.release()
            raise
        return directory

    def _sweep(self) -> None:
        """Remove live and passing folders and images that were never sealed; only under the lock."""
        doomed = [self._inside(name) for name in _folders(self.root) if name.startswith("live-")]
        doomed += [self._inside("scratch"), self._inside("spill"), self._inside("clones")]
        for shelf in (self._inside("images", name) for name in _folders(self._inside("images"))):
            doomed += [shelf / name for name in _folders(shelf) if not _is_sealed(shelf / name)]
        for path in doomed:
            _remove_tree(path)

    def scratch(self, name: str) -> Path:
        """Give the folder of the backend *name* for passing things; emptied at open, it may not exist yet."""
        return self._inside("scratch", escape_name(name))

    def clones(self) -> Path:
        """Give the folder for clones of images that are opened for a look, no backend's; it may not exist yet."""
        return self._inside("clones")

    def new_live(self) -> Path:
        """Make and give a fresh folder for open databases."""
        live = self._inside(f"live-{secrets.token_hex(8)}")
        with explained("make the folder", live):
            live.mkdir()
        return live

    def spill(self) -> Path:
        """Give the folder for change files, which was emptied at open; it exists."""
        spill = self._inside("spill")
        with explained("make the folder", spill):
            spill.mkdir(exist_ok=True)
        return spill

    def stage(self, store: str, name: str) -> Path:
        """
        Give the place where the image *name* is to be made: it does not exist, its parent does.

        What an earlier attempt at the same image left there is removed.
        """
        image = self.image(store, name)
        make_folders(image.parent)
        staged = _staged(image)
        _remove_tree(staged)
        return staged

    def seal(self, store: str, name: str, manifest: ImageManifest) -> Path:
        """
        Make the staged image complete, by one rename; give its place.

        The content of all files is on stable storage when this returns: that of the staged ones already was, by an
        engine's ``checkpoint`` or ``fsync_tree``, and backends may link them. The names are not waited for: a local
        image is a copy of what a backend holds, and one that a power cut took, or took from, is found incomplete or
        missing and restored. Until this returns there is no image; an error may leave one or none.

        Raises:
            ConfigError: This image was sealed before, or the manifest is another image's.
        """
        image = self.image(store, name)
        staged = _staged(image)
        if (manifest.store, manifest.image) != (store, name):
            raise ConfigError(f"the manifest of {manifest.image} of {manifest.store} does not fit {image}")
        if _is_complete(image):
            raise ConfigError(f"the image {image} is complete already: an image never changes")
        with explained("seal the image", image):
            (staged / MANIFEST).unlink(missing_ok=True)
            write_new(staged / MANIFEST, manifest_format.encode(manifest))
            reached("local.manifest-written")
            staged.rename(image)
        return image

    def drop_images(self, store: str, keep: Collection[str]) -> None:
        """Remove the complete images of *store* that are not in *keep*; idempotent."""
        for name in self.image_names(store):
            if name not in keep:
                self._drop(self.image(store, name))

    def _drop(self, image: Path) -> None:
        # Without its manifest it is no image any more, whatever becomes of the rest.
        with explained("remove", image):
            (image / MANIFEST).unlink(missing_ok=True)
        reached("local.image-unmade")
        _remove_tree(image)

    def quarantine(self, path: Path, reason: str) -> Path:
        """
        Move the damaged *path*, of this task's folder, aside with a file ``REASON``; give its new place.

        The newest ``QUARANTINE_KEPT`` are kept.
        """
        refuse_to_leave(self.root, path.parent)
        if not path.is_relative_to(self.root) or path == self.root:
            raise ConfigError(f"{path} is not inside the task's folder {self.root}")
        cells = self._inside("quarantine")
        make_folders(cells)
        numbers = sorted(int(name) for name in _folders(cells) if name.isdecimal())
        with explained("move to quarantine", path):
            cell = _free_cell(cells, numbers[-1] + 1 if numbers else 1)
            path.rename(cell / path.name)
        reached("local.quarantined")
        fsync_directory(cells)
        for number in numbers[: max(0, len(numbers) + 1 - QUARANTINE_KEPT)]:
            _remove_tree(cells / str(number))
        write_durably(cell / "REASON", f"{path}\n{reason}\n".encode(errors="backslashreplace"))
        return cell / path.name

    def close(self) -> None:
        """Let go of the folder; idempotent. Its databases must be closed before."""
        self._owner.release()


def _free_cell(cells: Path, number: int) -> Path:
    """Make and give the first folder from *number* on that is not there: another store may be damaged, too."""
    while True:
        try:
            (cells / str(number)).mkdir()
        except FileExistsError:
            number += 1
        else:
            return cells / str(number)


def _staged(image: Path) -> Path:
    return image.with_name(image.name + _UNFINISHED)


def task_root(state_dir: Path, job: str, job_id: str, task: str) -> Path:
    """
    Give the folder of *task* below *state_dir*; it may be missing.

    Raises:
        ConfigError: A name cannot be a file name, or a symbolic link leads out of *state_dir*.
    """
    state_dir = Path(state_dir).absolute()
    return refuse_to_leave(state_dir, state_dir / job_folder(job, job_id) / escape_name(task))


def refuse_to_leave(root: Path, path: Path) -> Path:
    """Give *path* if it is in *root* once all symbolic links are followed; raise ConfigError if not."""
    with explained("follow", path):
        inside = _is_free_of_links(str(root), str(path)) or _resolves_inside(root, path)
    if not inside:
        raise ConfigError(f"{path} leads out of {root} by a symbolic link: remove the link")
    return path


def _is_free_of_links(root: str, path: str) -> bool:
    """Whether *path* is *root* with names that are no links: the usual case, for a third of what following costs."""
    if not path.startswith(root + os.sep):
        return path == root
    names = path[len(root) + 1 :].split(os.sep)  # noqa: PTH206 - pathlib would cost as much as following
    for name in names:
        root = f"{root}{os.sep}{name}"
        if name == os.pardir or os.path.islink(root):  # noqa: PTH114
            return False
    return True


def _resolves_inside(root: Path, path: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root.resolve())
    except RuntimeError:  # pathlib's word for a circle of links, up to Python 3.12
        return False


def _folders(path: Path) -> list[str]:
    """Give the names of the folders in *path*; none if it is missing. Links are no folders."""
    with explained("list", path):
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []


def _is_complete(image: Path) -> bool:
    with explained("read", image):
        return (image / MANIFEST).is_file()


def _is_sealed(image: Path) -> bool:
    return _IMAGE_NAME.fullmatch(image.name) is not None and _is_complete(image)


def _unescaped(folder: str) -> str | None:
    try:
        return unescape_name(folder)
    except ValueError:
        return None


def _remove_tree(path: Path) -> None:
    with explained("remove", path):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
