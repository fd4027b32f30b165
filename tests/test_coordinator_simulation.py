"""The simulation of a whole job, what it would notice, and reports in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from coordinator_machines import PAIR, Rig
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from millpond.coordinator.alignment import BarrierAligner
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.machine import CoordinatorMachine
from millpond.coordinator.messages import (
    Alive,
    Completed,
    Declined,
    Joined,
    Left,
    Order,
    Reset,
    Restore,
    Restored,
    Saved,
)
from millpond.coordinator.protocol import MemberProtocol
from millpond.coordinator.simulation import Trouble, simulate
from millpond.coordinator.simulation.verdict import BrokenPromiseError
from millpond.coordinator.state import Place, TaskState


@pytest.mark.parametrize("seed", range(6))
def test_in_a_world_of_trouble_no_promise_is_broken(seed: int) -> None:
    """
    Over loss, doubling, delay, reorder and the deaths of tasks and coordinators no restore mixes two job checkpoints,
    each job checkpoint is a cut to the last record, and no restart goes back before an acknowledged one.
    """
    outcome = simulate(seed, 25_000)
    assert outcome.recorded > 10 and outcome.restarts > 10 and outcome.elections > 3


@pytest.mark.parametrize("seed", range(3))
def test_damage_leads_to_older_ones_and_to_nothing_else(seed: int) -> None:
    """With saved states that cannot be read back, a restart goes back only as far as the damage reaches."""
    assert simulate(seed, 15_000, Trouble(damage=0.03, task_life_s=15.0)).restarts > 10


def test_a_coordinator_killed_at_each_step_breaks_no_promise() -> None:
    """Wherever among its decisions the first coordinator dies, the next one goes on, and no promise is broken."""
    calm = evolve(Trouble.none(), loss=0.02)
    for step in range(1, 100):
        outcome = simulate(3, 1_800, evolve(calm, dies_at=step))
        assert outcome.elections == 3 and outcome.recorded > 3, step


def test_a_wide_and_a_deep_topology_keep_the_promises() -> None:
    """The same holds with many sources, and over five stages."""
    assert simulate(1, 15_000, layers=(5, 3)).recorded > 3
    assert simulate(1, 15_000, layers=(1, 1, 1, 1, 1)).recorded > 3


def test_in_peace_nothing_is_lost_or_sent_again() -> None:
    """Without trouble there is one election, one restore, and an attempt each interval that becomes whole."""
    outcome = simulate(1, 20_000, Trouble.none())
    assert outcome.elections == 2  # the second is the one that peace begins with
    assert outcome.restarts == 2 and outcome.attempts - outcome.recorded <= 1


def test_one_seed_is_one_story() -> None:
    """A run can be repeated from its seed alone."""
    assert simulate(5, 10_000) == simulate(5, 10_000)


def _any_attempt(machine: Any) -> None:
    """The attempt in flight takes the reports of every attempt."""

    def attempt_of(self: Any, report: Any) -> Any:
        return self._attempt

    machine.setattr(CoordinatorMachine, "_attempt_of", attempt_of)


def _no_wait_for_the_record(machine: Any) -> None:
    """A job checkpoint is announced before its record is written."""
    original = CoordinatorMachine._write

    def write(self: Any, writing: Any) -> None:
        if writing.attempt is not None:
            self._broadcast(Completed(epoch=self._epoch, attempt=writing.attempt.id, retained=()))
        original(self, writing)

    machine.setattr(CoordinatorMachine, "_write", write)


def _hold_nothing(machine: Any) -> None:
    """Records pass although their channel's barrier is here."""
    machine.setattr(BarrierAligner, "hold", lambda self, channel, record, size: self.ready.append(record))


def _any_answer(machine: Any) -> None:
    """An answer to an earlier restore is taken for one to the present."""
    original = CoordinatorMachine._restored

    def restored(self: Any, report: Any, now: float) -> None:
        if self._restoring is not None:
            report = Restored(
                member=report.member, incarnation=report.incarnation, transaction=self._restoring.transaction
            )
        original(self, report, now)

    machine.setattr("millpond.coordinator.machine._HANDLERS", {**_handlers(), Restored: restored})


def _handlers() -> dict[type, Callable[..., None]]:
    from millpond.coordinator import machine

    return dict(machine._HANDLERS)


def _any_start(machine: Any) -> None:
    """A member obeys what was meant for an earlier start of it."""
    original = MemberProtocol.order

    def order(self: Any, order: Any) -> Any:
        return original(self, replace(order, incarnation=self.incarnation) if isinstance(order, Restore) else order)

    machine.setattr(MemberProtocol, "order", order)


def _fewer_members(machine: Any) -> None:
    """A job checkpoint is whole although one member is missing."""
    original = CoordinatorMachine._saved

    def saved(self: Any, report: Any, now: float) -> None:
        original(self, report, now)
        if self._attempt is not None and len(self._attempt.waiting) == 1:
            self._complete(self._attempt)

    machine.setattr("millpond.coordinator.machine._HANDLERS", {**_handlers(), Saved: saved})


@pytest.mark.parametrize(
    ("mutant", "trouble"),
    [
        (_any_attempt, Trouble(doubling=0.3, stall=0.2, task_life_s=100.0, coordinator_life_s=100.0)),
        (_no_wait_for_the_record, Trouble(loss=0.1, delay_s=0.1, coordinator_life_s=4.0)),
        (_hold_nothing, Trouble()),
        (_any_answer, Trouble()),
        (_fewer_members, Trouble()),
        (_any_start, Trouble(doubling=0.5, stall=0.1, delay_s=0.1, task_life_s=20.0, coordinator_life_s=1e3)),
    ],
    ids=lambda said: said.__name__.strip("_") if callable(said) else "",
)
def test_the_simulation_notices_a_broken_rule(
    mutant: Callable[[Any], None], trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a rule taken out, some seed of a few finds a broken promise."""
    mutant(monkeypatch)
    with pytest.raises((BrokenPromiseError, KeyError)):
        for seed in range(40):
            simulate(seed, 10_000, trouble)


def act(rig: Rig, kind: str, who: str, start: int, transaction: TransactionId, attempt: JobCheckpointId) -> None:
    """Let one thing happen."""
    said: dict[str, Any] = {"incarnation": f"{who}#{start}"}
    match kind:
        case "join":
            rig.say(Joined, who, place=rig.settings.members.get(who, Place("d")), **said)
        case "alive":
            rig.say(Alive, who, running=transaction, **said)
        case "saved":
            rig.save(who, attempt, transaction=transaction, **said)
        case "declined":
            rig.say(Declined, who, transaction=transaction, attempt=attempt, reason="", **said)
        case "restored":
            rig.say(Restored, who, transaction=transaction, **said)
        case "reset":
            rig.say(Reset, who, transaction=transaction, reason="", **said)
        case "left":
            rig.say(Left, who, **said)
        case "tick":
            rig.tick(6.0)
        case "write":
            rig.do(rig.machine.written(rig.now))


KINDS = ["join", "alive", "saved", "declined", "restored", "reset", "left", "tick", "write"]
HAPPENINGS = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from("abcd"),
    st.integers(1, 2),
    st.builds(TransactionId, st.just(1), st.integers(1, 4)),
    st.builds(JobCheckpointId, st.just(1), st.integers(1, 4)),
)


@settings(max_examples=60, deadline=None)
@given(st.booleans(), st.lists(HAPPENINGS, max_size=40))
def test_whatever_reports_come_only_whole_attempts_are_written(runs: bool, happenings: list[Any]) -> None:
    """Over any order of any reports a record holds all members of one attempt, and grows only."""
    rig = Rig({**PAIR, "c": Place("c")}, silence_s=30.0, resend_s=5.0)
    if runs:
        rig.run()
        rig.tick(10)
    newest = None
    for happening in happenings:
        act(rig, *happening)
        record = rig.machine.record
        if record.newest is not None:
            assert set(record.newest.members) == {"a", "b", "c"}
            assert newest is None or record.newest.id >= newest
            newest = record.newest.id
            assert {part.state for part in record.newest.members.values()} == {
                TaskState(f"{name}@{newest}") for name in record.newest.members
            }


def test_every_order_can_be_taken() -> None:
    """A member knows each order that there is."""
    for order in Order.__args__:
        assert order.__name__ in {"Here", "Restore", "Start", "Begin", "Abandoned", "Completed", "Rejoin", "Refused"}
