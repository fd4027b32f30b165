"""The right of one owner to append: one producer."""

from __future__ import annotations

from threading import Lock

from attrs import define, field

from millpond.errors import ConfigError
from millpond.log import Append, LogWriter
from millpond_changelog.kafka.appending import KafkaAppend
from millpond_changelog.kafka.seat import Seat


@define(eq=False)
class KafkaWriter(LogWriter):
    """A producer, and the append that it has open. Any thread, one append at a time."""

    _seat: Seat
    _open: KafkaAppend | None = field(default=None, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def append(self) -> Append:
        """Begin an append; first see to the last one, if its end is not known."""
        self._seat.refuse_if_over()
        with self._lock:
            last = self._open
        if last is not None:
            if last.state in ("open", "flushed"):
                raise ConfigError(f"an append of {self._seat.owner!r} is open: end it before the next begins")
            last.settle()
            self._seat.refuse_if_over()
        made = KafkaAppend(self._seat, self._end)
        with self._lock:
            self._open = made
        return made

    def close(self) -> None:
        """Give up what is open, and let go of the producer and its threads."""
        with self._lock:
            last, self._open = self._open, None
        if last is not None:
            last.abort()
        self._seat.leave()

    def _end(self, append: KafkaAppend) -> None:
        with self._lock:
            if self._open is append:
                self._open = None
