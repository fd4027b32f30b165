"""Time, as something that a test can turn."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings; both may be called from any thread."""

    def millis(self) -> int:
        """Give the wall clock in milliseconds since 1970. It may go back."""
        ...

    def monotonic(self) -> float:
        """Give seconds from an arbitrary start. It never goes back."""
        ...


class SystemClock:
    """The machine's own clock."""

    def millis(self) -> int:
        """Give the wall clock in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Give seconds from an arbitrary start."""
        return time.monotonic()
