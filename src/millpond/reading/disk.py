"""Trying what a job needs of the disk that holds its local state."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from millpond.clock import Clock
from millpond.errors import ConfigError, TransientError
from millpond.local import links_fail, write_durably
from millpond.local.owner import OwnerLock
from millpond.progress.words import size_text
from millpond.reading.attempts import Attempts, NoticedError, Tried

LEAST_FREE = 64 << 20
LITTLE_FREE = 1 << 30
_CHILD_S = 60.0


def try_disk(state_dir: Path, clock: Clock) -> list[Tried]:
    """Try *state_dir*, or while it does not exist the nearest folder above it; nothing stays there."""
    attempts = Attempts("state_dir", clock)
    place = next(each for each in (state_dir, *state_dir.parents) if each.is_dir())
    where = str(place) if place == state_dir else f"{place}, in which a job makes {state_dir}"
    with attempts.holding("make a folder", _probe_folder(place), where) as folder:
        if folder is not None:
            attempts.attempt("write and sync a file", lambda: write_durably(folder / "probe", b"probe"))
            attempts.attempt("link a file", lambda: _link(folder))
            attempts.attempt("lock out another process", lambda: _lock(folder))
    attempts.attempt("free space", lambda: free_space(place))
    return attempts.tried


@contextmanager
def _probe_folder(place: Path) -> Iterator[Path]:
    try:
        made = TemporaryDirectory(prefix=".millpond-probe-", dir=place)
    except OSError as error:
        raise ConfigError(
            f"nothing can be made in {place} ({error.strerror}): let the job's user write there, or name another "
            f"job.state_dir"
        ) from error
    with made as folder:
        yield Path(folder)


def _link(folder: Path) -> None:
    try:
        os.link(folder / "probe", folder / "linked")
    except OSError as error:
        if not links_fail(error):
            raise
        raise NoticedError("this file system has no hard links: files of images are copied instead") from None


_SECOND_OWNER = """
import sys
from pathlib import Path
from millpond.errors import TransientError
from millpond.local.owner import OwnerLock
try:
    OwnerLock(Path(sys.argv[1]), 0.0)
except TransientError:
    sys.exit(3)
"""


def _lock(folder: Path) -> None:
    """Take the lock, and see that another process cannot."""
    lock = OwnerLock(folder, 0.0)
    try:
        command = [sys.executable, "-c", _SECOND_OWNER, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHILD_S, check=False)  # noqa: S603 - ourselves
    finally:
        lock.release()
    if done.returncode == 0:
        raise ConfigError(
            f"two processes held one lock below {folder.parent}: its file system has no locks; name a job.state_dir on "
            f"a local disk"
        )
    if done.returncode != 3:
        raise TransientError(f"a child process could not try the lock: {done.stderr.strip()[-300:]}")


def free_space(place: Path) -> str:
    """Tell how much room there is; NoticedError if it is little, ConfigError if it is next to none."""
    disk = shutil.disk_usage(place)
    told = f"{size_text(disk.free)} of {size_text(disk.total)}"
    if disk.free < LEAST_FREE:
        raise ConfigError(f"{told}: make room, or name another job.state_dir")
    if disk.free < LITTLE_FREE:
        raise NoticedError(f"{told}: stores need room for their live files and their images")
    return told
