"""Counters of a served checkpoint manager, kept by a listener, and their text in the OpenMetrics form."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from millpond.events import Event
from millpond.heron import events
from millpond.local import write_durably

_HELP = {
    "connections": "Connections that were accepted.",
    "connections_closed": "Connections that ended.",
    "connections_dropped": "Connections that the server ended, by a hostile packet, a timeout or a successor.",
    "connections_refused": "Connections that were not let in.",
    "registrations": "Registrations that were accepted.",
    "registrations_refused": "Registrations that were answered with NOTOK.",
    "saves": "States that were saved.",
    "saved_bytes": "Bytes of states that were saved.",
    "save_seconds": "Seconds that saves took, from the last byte to durable.",
    "fetches": "States that were fetched.",
    "fetched_bytes": "Bytes of states that were fetched.",
    "fetch_seconds": "Seconds that fetches took, until verified.",
    "cleans": "Clean requests that were carried out.",
    "cleaned_checkpoints": "Checkpoints that were removed by cleans.",
    "clean_seconds": "Seconds that cleans took.",
    "retention_failures": "Times that checkpoints beyond the number to keep could not be removed.",
    "failures": "Requests that were answered with NOTOK.",
}


class Metrics:
    """A listener that counts; any thread may call it and read."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self._counts: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Count *event*."""
        found = _counted(event)
        if found:
            with self._lock:
                for name, value in found.items():
                    self._counts[name] += value

    def snapshot(self) -> dict[str, float]:
        """Give all counters; those of which nothing is known are 0."""
        with self._lock:
            return {name: self._counts.get(name, 0) for name in _HELP}

    def text(self, gauges: Mapping[str, float] | None = None) -> str:
        """Give the counters, and *gauges* with what holds right now, as OpenMetrics text."""
        lines = []
        for name, value in self.snapshot().items():
            metric = f"millpond_heron_{name}"
            lines += [f"# TYPE {metric} counter", f"# HELP {metric} {_HELP[name]}", f"{metric}_total {value:g}"]
        for name, value in (gauges or {}).items():
            lines += [f"# TYPE millpond_heron_{name} gauge", f"millpond_heron_{name} {value:g}"]
        return "\n".join([*lines, "# EOF", ""])

    def write(self, path: Path, gauges: Mapping[str, float]) -> None:
        """Put the text at *path*, whole; TransientError or ConfigError where that fails."""
        write_durably(path, self.text(gauges).encode())


def _counted(event: Event) -> dict[str, float]:
    """Give what *event* adds to the counters."""
    rule = _RULES.get(type(event))
    return {} if rule is None else rule(event)


def _saved(event: events.StateSaved) -> dict[str, float]:
    return {"saves": 1, "saved_bytes": event.size, "save_seconds": event.duration_s}


def _fetched(event: events.StateFetched) -> dict[str, float]:
    return {"fetches": 1, "fetched_bytes": event.size, "fetch_seconds": event.duration_s}


def _ended(event: events.Disconnected) -> dict[str, float]:
    return {"connections_closed": 1, "connections_dropped": 1 if event.reason else 0}


def _cleaned(event: events.CheckpointsCleaned) -> dict[str, float]:
    count = len(event.checkpoints)
    return {"cleans": 1, "cleaned_checkpoints": count, "clean_seconds": event.duration_s}


_RULES: dict[type[Event], Callable[..., dict[str, float]]] = {
    events.Connected: lambda _: {"connections": 1},
    events.Disconnected: _ended,
    events.ConnectionRefused: lambda _: {"connections_refused": 1},
    events.Registered: lambda _: {"registrations": 1},
    events.RegistrationRefused: lambda _: {"registrations_refused": 1},
    events.StateSaved: _saved,
    events.StateFetched: _fetched,
    events.CheckpointsCleaned: _cleaned,
    events.RetentionFailed: lambda _: {"retention_failures": 1},
    events.RequestFailed: lambda _: {"failures": 1},
}
