"""One open log for all managers of a backend: opened by the first that needs it, closed after the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from millpond.errors import StoreClosedError
from millpond.log import Log


class LogLease:
    """One user's hold on a shared log. Any thread."""

    def __init__(self, sharing: SharedLog, log: Log) -> None:
        """Hold *log*, whose holders *sharing* counts."""
        self._sharing = sharing
        self._log: Log | None = log

    @property
    def log(self) -> Log:
        """The log; StoreClosedError after ``close``."""
        log = self._log
        if log is None:
            raise StoreClosedError("this backend is closed: reopen its task")
        return log

    def close(self) -> None:
        """Let go; the last holder closes the log. Idempotent."""
        log, self._log = self._log, None
        if log is not None:
            self._sharing.returned()


class SharedLog:
    """Opens a log for the first holder, and closes it after the last."""

    def __init__(self, open_log: Callable[[], Log]) -> None:
        """Open logs by *open_log*, one at a time."""
        self._open = open_log
        self._lock = Lock()
        self._log: Log | None = None
        self._holders = 0

    def lease(self) -> LogLease:
        """Hold the log, opening it if nobody does."""
        with self._lock:
            if self._log is None:
                self._log = self._open()
            self._holders += 1
            return LogLease(self, self._log)

    @contextmanager
    def leased(self) -> Iterator[Log]:
        """Hold the log for the block."""
        lease = self.lease()
        try:
            yield lease.log
        finally:
            lease.close()

    def returned(self) -> None:
        """Count one holder less."""
        with self._lock:
            self._holders -= 1
            log = self._log if self._holders == 0 else None
            if log is not None:
                self._log = None
        if log is not None:
            log.close()
