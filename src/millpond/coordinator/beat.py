"""Signs of life: one thread that says for any number of members that they live."""

from __future__ import annotations

import threading
import time
from typing import Protocol

BEAT_S = 0.5
"""How often a member says that it lives, in seconds."""


class Living(Protocol):
    """Whoever can say that it lives."""

    def beat(self) -> None:
        """Say so; any thread, does not wait."""
        ...


class Beater:
    """One thread that says for any number of members that they live."""

    def __init__(self, every_s: float = BEAT_S) -> None:
        """Begin with no members."""
        self._every_s = every_s
        self._members: dict[Living, None] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, member: Living) -> None:
        """Speak for *member* from now on."""
        with self._lock:
            self._members[member] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="millpond-member-beat", daemon=True)
                self._thread.start()

    def remove(self, member: Living) -> None:
        """Speak for *member* no more."""
        with self._lock:
            self._members.pop(member, None)

    def close(self) -> None:
        """End the thread; idempotent."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._ended.is_set():
            begun = time.monotonic()
            with self._lock:
                members = list(self._members)
            for member in members:
                member.beat()
            self._ended.wait(max(0.0, self._every_s - (time.monotonic() - begun)))
