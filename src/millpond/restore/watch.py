"""When a restore must stop: it is late, another store failed, or the job is being closed."""

from __future__ import annotations

import threading

from millpond.errors import StoreClosedError, TransientError
from millpond.restore.parts import RestoreTask


class StoppedError(TransientError):
    """The restore was interrupted, most often because another store failed."""


class Watch:
    """Watches over the restore of one task; any thread."""

    def __init__(self, task: RestoreTask, timeout_s: float | None) -> None:
        """Let it take *timeout_s* seconds; None: no limit of its own."""
        self._task = task
        self._deadline = None if timeout_s is None else task.job.clock.monotonic() + timeout_s
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Interrupt the stores that are still being restored."""
        self._stopped.set()

    def go(self) -> None:
        """Begin anew, within the same time."""
        self._stopped.clear()

    def check(self) -> None:
        """
        Raise once the restore must stop.

        Raises:
            StoreClosedError: The job is being closed.
            StoppedError: Another store failed.
            TransientError: The time is over.
        """
        if self._task.closing.done():
            raise self.interrupted()
        if self._stopped.is_set():
            raise StoppedError(f"the restore of task {self._task.task!r} was interrupted")
        if self.left_s() == 0.0:
            raise self.late()

    def left_s(self) -> float | None:
        """Give the seconds that are left; None: no limit."""
        return None if self._deadline is None else max(0.0, self._deadline - self._task.job.clock.monotonic())

    def must_hurry(self) -> bool:
        """Whether nobody should wait for what is still at work."""
        return self.left_s() == 0.0 or self._task.closing.done()

    def interrupted(self) -> StoreClosedError:
        """Give the error of a restore over which the job is closed, or that the host gave up."""
        return StoreClosedError(
            f"job {self._task.job.job!r} was closed, or the opening given up, while task {self._task.task!r} was being "
            "restored"
        )

    def late(self) -> TransientError:
        """Give the error of a restore that took too long."""
        return TransientError(f"the restore of task {self._task.task!r} did not end in time: allow more (timeout_s)")
