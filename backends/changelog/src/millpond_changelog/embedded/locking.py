"""Locks between processes and between threads, which the kernel lets go of when their holder ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from millpond.errors import TransientError
from millpond.local import explained


def lock_on(path: Path) -> FileLock:
    """Make a lock on the file *path*, not held yet; its presence means nothing."""
    return FileLock(path, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)


def take(lock: FileLock, path: Path, timeout_s: float) -> None:
    """
    Take *lock*, waiting at most *timeout_s* seconds.

    Raises:
        TransientError: Somebody else holds it for longer.
    """
    with explained("lock", path):
        try:
            lock.acquire(timeout=timeout_s, poll_interval=0.005)
        except Timeout:
            raise TransientError(
                f"somebody has held {path} for {timeout_s:g} s: is a process of the log stopped?"
            ) from None


@contextmanager
def held(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock on the file *path* for the block."""
    lock = lock_on(path)
    take(lock, path, timeout_s)
    try:
        yield
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Tell whether anybody holds the lock on the file *path*."""
    if not path.exists():
        return False
    lock = lock_on(path)
    with explained("look at", path):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
    lock.release()
    return False
