"""
How long a leader may act without hearing of its session; a value, and no clock.

A server answers a ``sync`` only after the leader of the ensemble has seen that the session lives. The session's
time-out runs from the last sign of life that this leader was told of, and a follower tells it every half tick; a tick
is at most half of a time-out. So a sign of life that was sent at 0, with one before it at -1/6 of the time-out, keeps
the session until 1 - 1/6 - 1/4 of it. A lease of a half ends before that, with a margin for clocks that differ.
"""

from __future__ import annotations

import time

BEATS_PER_TIMEOUT = 6
_LEASE = 0.5


def lease_end(sent: float, timeout_s: float) -> float:
    """Give the end of a lease that an answer to a request, sent at *sent*, renews in a session of *timeout_s*."""
    return sent + timeout_s * _LEASE


def beat_interval_s(timeout_s: float) -> float:
    """Give how often a lease has to be renewed, so that two lost answers do no harm."""
    return timeout_s / BEATS_PER_TIMEOUT


def now_s() -> float:
    """Give seconds that go on while the machine sleeps, where the system has such a clock: a session does not wait."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
