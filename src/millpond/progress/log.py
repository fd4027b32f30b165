"""
Events as log lines, on the logger ``millpond``.

The library adds no handler but the ``NullHandler`` that Python's documentation asks of a library, sets no level and
configures nothing: where lines go is the application's to say.
"""

from __future__ import annotations

import logging

from millpond.clock import Clock, SystemClock
from millpond.events import Event
from millpond.progress.lines import Line, fields, line, where

QUIET_S = 10.0
"""How long an event that comes many times a second stays at DEBUG once it was told."""

_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

log = logging.getLogger("millpond")
log.addHandler(logging.NullHandler())


class LogListener:
    """
    Writes one log line for each event; any thread may call it.

    The record's extra attributes are the event's fields, see :func:`millpond.progress.lines.fields`: always ``event``
    and ``job``, and where they apply ``task``, ``store``, ``backend``, ``checkpoint``, ``size`` (bytes),
    ``duration_s``, ``error``, ``error_text`` and the others that the event has.
    """

    def __init__(self, logger: logging.Logger = log, clock: Clock | None = None) -> None:
        """Write to *logger*."""
        self._logger = logger
        self._clock = clock or SystemClock()
        self._told: dict[tuple[str, str, str, str], float] = {}

    def __call__(self, event: Event) -> None:
        """Write the line of *event*."""
        said = line(event)
        level = self._level(event, said)
        if self._logger.isEnabledFor(level):
            extra = {name: value for name, value in fields(event).items() if name not in _RESERVED}
            self._logger.log(level, "%s: %s", where(event), said.text, extra=extra, exc_info=said.trace)

    def _level(self, event: Event, said: Line) -> int:
        """Give the level of the line; what repeats is quiet for a while after it was told, and when it begins."""
        if not said.repeats:
            return said.level
        key = (type(event).__name__, event.job, event.task, getattr(event, "store", ""))
        now = self._clock.monotonic()
        if now - self._told.setdefault(key, now) < QUIET_S:
            return logging.DEBUG
        self._told[key] = now
        return said.level
