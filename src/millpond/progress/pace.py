"""How fast something goes, and how long it will take: from what was done during the last seconds."""

from __future__ import annotations

from collections import deque

from attrs import define, field

WINDOW_S = 10.0
"""Over how many seconds a rate is taken: long enough to be calm, short enough to notice a stall."""

_SHORTEST_S = 0.5
_SAMPLES = 64


@define
class Pace:
    """
    Counts bytes and records over time.

    Attributes:
        records: Done so far.
        size: Bytes done so far.
        total_size: Bytes in all; None while nobody knows it.
    """

    records: int = 0
    size: int = 0
    total_size: int | None = None
    _samples: deque[tuple[float, int, int]] = field(factory=lambda: deque(maxlen=_SAMPLES), init=False)

    def note(self, now: float, records: int, size: int, total_size: int | None) -> None:
        """Note at *now*, in seconds of a clock that never goes back, what was done since the beginning."""
        self.records, self.size, self.total_size = records, size, total_size
        if not self._samples or now - self._samples[-1][0] >= WINDOW_S / _SAMPLES:
            self._samples.append((now, records, size))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()

    def bytes_per_s(self, now: float) -> float | None:
        """Give the bytes a second; None while too little is known to tell."""
        if not self._samples or now - self._samples[0][0] < _SHORTEST_S:
            return None
        began, _, size = self._samples[0]
        return (self.size - size) / (now - began)

    def records_per_s(self, now: float) -> float | None:
        """Give the records a second; None while too little is known to tell."""
        if not self._samples or now - self._samples[0][0] < _SHORTEST_S:
            return None
        began, records, _ = self._samples[0]
        return (self.records - records) / (now - began)

    def left_s(self, now: float) -> float | None:
        """Give the seconds that are left; None while nobody can tell."""
        rate = self.bytes_per_s(now)
        if self.total_size is None or not rate or self.size > self.total_size:
            return None
        return (self.total_size - self.size) / rate
