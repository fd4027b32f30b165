"""Files that survive a power cut: whole or not at all, and errors that say what to do."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millpond.errors import ConfigError, TransientError
from millpond.points import reached

_MENDS = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space or raise it",
    errno.EFBIG: "the file grew beyond what this process may write: raise its file-size limit",
    errno.EIO: "the disk reports an input/output error: check the device",
    errno.EROFS: "the file system is read-only: mount it writable",
    errno.EMFILE: "this process has too many open files: raise its limit (ulimit -n)",
    errno.ENFILE: "the machine has too many open files",
    errno.ESTALE: "the network file system has lost this file",
    errno.ENOENT: "it is gone: something other than Millpond removes files here",
}
_CONFIG_MENDS = {
    errno.EACCES: "permission denied: let this user read and write there",
    errno.EPERM: "the operation is not permitted: let this user read and write there",
    errno.ENOTDIR: "a file is where a folder must be: remove it or choose another path",
    errno.EEXIST: "a file is where a folder must be: remove it or choose another path",
    errno.EISDIR: "a folder is where a file must be: remove it or choose another path",
    errno.ENAMETOOLONG: "the path is too long: choose a shorter one",
    errno.ELOOP: "a symbolic link leads nowhere or in a circle: correct it",
}
_NO_LINKS = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
)


def links_fail(error: OSError) -> bool:
    """Tell whether *error*, of ``os.link``, means that a copy has to be made instead."""
    return error.errno in _NO_LINKS


@contextmanager
def explained(doing: str, path: Path) -> Iterator[None]:
    """
    Turn an OSError of the block into one of ours, with *path* and the mend.

    Raises:
        ConfigError: Something about the path itself has to be corrected: permissions, a file in the way.
        TransientError: Any other error: the disk is full, read-only, or failing.
    """
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else str(path)
        mend = _CONFIG_MENDS.get(error.errno or 0)
        if mend is not None:
            raise ConfigError(f"cannot {doing} {where}: {mend}") from error
        raise TransientError(f"cannot {doing} {where}: {_MENDS.get(error.errno or 0, str(error))}") from error


def fsync_directory(path: Path) -> None:
    """Make the names in the folder *path* durable."""
    with explained("make durable", path):
        _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def fsync_file(path: Path) -> None:
    """Make the content of the file *path* durable."""
    with explained("make durable", path):
        _fsync(path, os.O_RDONLY)


def fsync_tree(path: Path) -> None:
    """Make all files and folders below *path*, and *path* itself, durable; for files that other code wrote."""
    for folder, _, names in os.walk(path, topdown=False):
        for name in names:
            fsync_file(Path(folder, name))
        fsync_directory(Path(folder))


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: Path) -> None:
    """Make the folder *path* and those above it that are missing, each durable; fine if it is there."""
    missing = []
    with explained("make the folder", path):
        while not path.is_dir():
            missing.append(path)
            if path.parent == path:
                break
            path = path.parent
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            fsync_directory(folder.parent)


def write_durably(path: Path, data: bytes) -> None:
    """Put *data* at *path*, whole or not at all, in place of what was there; durable when it returns."""
    with explained("write", path):
        temporary = _write_temporary(path, data)
        try:
            temporary.replace(path)
        except BaseException:
            _discard(temporary)
            raise
    fsync_directory(path.parent)


def create_durably(path: Path, data: bytes) -> bool:
    """
    Put *data* at *path* unless something is there; durable when it returns True. False: something is there.

    Exactly one of several processes that try at once gets True, on NFS too: a complete temporary file is linked to its
    name, which is atomic. Where a file system has no links, the name is opened exclusively instead; a process killed
    while it writes then leaves a short file, which its reader has to find by its digest.

    Raises:
        ConfigError: The path has to be corrected; nothing is there.
        TransientError: The file may be there or not.
    """
    with explained("create", path):
        temporary = _write_temporary(path, data)
        reached("local.file-written")
        try:
            created = _link_or_open(temporary, path, data)
            reached("local.file-linked")
        finally:
            _discard(temporary)
    if created:
        try:
            fsync_directory(path.parent)
        except ConfigError as error:
            raise TransientError(f"{error} (the file is there, and may not survive a power cut)") from error
    return created


def _link_or_open(temporary: Path, path: Path, data: bytes) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        # An NFS client that repeats its request is told that the name exists though it made it: the count knows.
        return temporary.stat().st_nlink == 2
    except OSError as error:
        if not links_fail(error):
            raise
        return _open_exclusively(path, data)
    return True


def _open_exclusively(path: Path, data: bytes) -> bool:
    try:
        write_new(path, data)
    except FileExistsError:
        return False
    return True


def is_temporary(name: str) -> bool:
    """Tell whether a file name is one of those that a write in this module uses before it is complete."""
    return name.startswith(".new-")


def _write_temporary(path: Path, data: bytes) -> Path:
    temporary = path.parent / f".new-{secrets.token_hex(12)}"
    write_new(temporary, data)
    return temporary


def write_new(path: Path, data: bytes) -> None:
    """
    Put *data* into the new file *path*; its content is on stable storage when this returns, its name may not be.

    A process killed meanwhile leaves a short file: only for a folder that is not complete without it.

    Raises:
        OSError: It exists, or the file system refuses; no file is left.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    except BaseException:
        _discard(path)
        raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _discard(path: Path) -> None:
    """Remove a temporary file; if that fails, it is in nobody's way and a later sweep finds it."""
    with suppress(OSError):
        path.unlink()
