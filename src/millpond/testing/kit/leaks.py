"""Threads and descriptors: which there are, and which came and stayed."""

from __future__ import annotations

import gc
import sys
import threading
import time
from pathlib import Path

from attrs import frozen

_DESCRIPTORS = Path("/proc/self/fd")
_PATIENCE_S = 2.0


@frozen
class Held:
    """
    What a process holds at a moment.

    Attributes:
        threads: Its threads.
        descriptors: What each open descriptor leads to; empty where the system does not tell.
    """

    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[str, str]]

    @classmethod
    def now(cls) -> Held:
        """Look."""
        return cls(frozenset(threading.enumerate()), frozenset(_descriptors()))

    def leaks(self) -> str:
        """Say what is held now and was not then; empty: nothing. Waits a little for what is about to end."""
        end = time.monotonic() + _PATIENCE_S
        while (found := self._new()) and time.monotonic() < end:
            gc.collect()
            for thread in Held.now().threads - self.threads:
                thread.join(0.05)
        return found

    def _new(self) -> str:
        now = Held.now()
        threads = sorted(thread.name for thread in now.threads - self.threads if thread.is_alive())
        descriptors = sorted(path for _, path in now.descriptors - self.descriptors)
        texts = [f"thread {name}" for name in threads] + [f"descriptor of {path}" for path in descriptors]
        return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


def _descriptors() -> list[tuple[str, str]]:
    if not sys.platform.startswith("linux"):
        return []
    found = []
    for entry in _DESCRIPTORS.iterdir():
        try:
            path = str(entry.readlink())
        except OSError:  # the descriptor of this very listing
            continue
        if not path.startswith("/proc/"):
            found.append((entry.name, path))
    return found
