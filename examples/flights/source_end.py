"""Where a job's source ends for now: a job that is to be killed waits there, and cannot outrun who kills it."""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn

from attrs import define, field

ABANDONED = 3
"""The exit code of a job whose watcher is gone."""


@define
class SourceEnd:
    """
    Ends the source after a number of rows.

    Attributes:
        until: So many rows of all tasks together there are; None: as many as there are, and then the job ends.
    """

    until: int | None
    _more: threading.Event = field(factory=threading.Event)

    def __attrs_post_init__(self) -> None:
        if self.until is not None:
            threading.Thread(target=_end_with_watcher, name="watcher", daemon=True).start()

    def wait_at(self, rows: int) -> None:
        """Return if the source has more than *rows*; else never: the process is killed, or ends with its watcher."""
        if self.until is not None and rows >= self.until:
            self._more.wait()


def _end_with_watcher() -> NoReturn:
    """End the process when its standard input ends: its other end is the watcher's, who writes nothing."""
    while os.read(sys.stdin.fileno(), 1):  # a buffered read would hold a lock that an interpreter that ends waits for
        pass
    os._exit(ABANDONED)
