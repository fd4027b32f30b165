"""Dying at a named step, as the power cut would have it."""

from __future__ import annotations

import os
import signal

from millpond.errors import ConfigError
from millpond.points import POINTS, arm


def kill_at(point: str, passes: int = 0) -> None:
    """
    Kill this process with ``SIGKILL`` when it reaches *point* after having passed it *passes* times.

    For a child process of a test: nothing is flushed, no handler runs.

    Raises:
        ConfigError: There is no such point.
    """
    if point not in POINTS:
        raise ConfigError(f"there is no point {point!r}; there are {', '.join(POINTS)}")
    left = [passes]

    def hook(reached: str) -> None:
        if reached == point:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    arm(hook)
