"""What an operator sees of a coordinator's events."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from millpond.coordinator import events
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.errors import (
    TransientError,
)
from millpond.progress.lines import line

SHOWN = {
    "job": "flights",
    "task": "count-0",
    "candidate": "host:1",
    "epoch": 7,
    "newest": JobCheckpointId(7, 12),
    "error": TransientError("no answer"),
    "incarnation": "ab",
    "replaced": True,
    "reason": "it was silent for 10.2 s",
    "transaction": TransactionId(7, 1),
    "checkpoint": JobCheckpointId(7, 12),
    "damaged": JobCheckpointId(7, 12),
    "chosen": None,
    "duration_s": 1.25,
    "attempt": JobCheckpointId(7, 12),
    "members": 1000,
    "in_flight": JobCheckpointId(7, 12),
    "age_s": 12.5,
    "missing": 3,
    "id": JobCheckpointId(7, 12),
    "retained": (JobCheckpointId(7, 12),),
    "held_size": 123_456,
    "spilled_size": 0,
}


@pytest.mark.parametrize(
    "kind", [kind for kind in vars(events).values() if isinstance(kind, type) and kind.__module__ == events.__name__]
)
def test_each_event_has_a_line_in_plain_words(kind: type[Any]) -> None:
    """The log says each event in a sentence of its own, with the numbers that somebody needs, and no class names."""
    shown = SHOWN | ({"members": ("split-0", "split-1")} if kind is events.MembersMissing else {})
    event = kind(**{field.name: shown[field.name] for field in attrs.fields(kind)})
    said = line(event).text
    assert kind.__name__ not in said and "incarnation" not in said and len(said) > 7
    if "duration_s" in attrs.fields_dict(kind):
        assert "1.2 s" in said
    if "reason" in attrs.fields_dict(kind):
        assert "10.2 s" in said
