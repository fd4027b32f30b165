"""The lock on a task's folder, which lives and dies with its process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from filelock import FileLock, Timeout

from millpond.errors import TransientError
from millpond.local.durable import explained


class OwnerLock:
    """
    An exclusive lock on the file ``OWNER``; the kernel lets go of it when the process ends, however it ends.

    The presence of the file means nothing; its text only says in messages who holds it. A forked child holds nothing
    and releases nothing.
    """

    def __init__(self, folder: Path, timeout_s: float) -> None:
        """
        Take the lock on *folder*, waiting at most *timeout_s* seconds.

        Raises:
            TransientError: Another process, or another task object of this one, holds it.
            ConfigError: The lock file cannot be made there.
        """
        path = folder / "OWNER"
        self._pid = os.getpid()
        self._lock = FileLock(path, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)
        with explained("lock", path):
            try:
                self._lock.acquire(timeout=max(timeout_s, 0.0))
            except Timeout:
                raise TransientError(_held_by(folder, path)) from None
            except RuntimeError:  # filelock's word for a lock that this very process holds
                raise TransientError(_held_by(folder, path)) from None
        try:
            with explained("write", path):
                path.write_text(f"{self._pid} {socket.gethostname()}\n")
        except BaseException:
            self._lock.release()
            raise

    def release(self) -> None:
        """Let go; idempotent. Does nothing in a forked child: the lock is its parent's."""
        if os.getpid() == self._pid:
            self._lock.release()


def _held_by(folder: Path, path: Path) -> str:
    try:
        pid, _, host = path.read_text(errors="replace")[:300].strip().partition(" ")
    except OSError:
        pid, host = "", ""
    if pid == str(os.getpid()) and host == socket.gethostname():
        return f"{folder} is already open in this process (pid {pid}): close the task before it is opened again"
    owner = f"process {pid} on {host}" if pid else "another process"
    return f"{folder} is in use by {owner}: stop it, or give this process a state_dir of its own"
