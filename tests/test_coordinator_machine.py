"""The coordinator's state machine and a member's protocol, fact by fact; the simulation, and what it would notice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from millpond.coordinator import events
from millpond.coordinator.alignment import BarrierAligner
from millpond.coordinator.decisions import Broadcast, Decision, Fail, Send, Tell, Write
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.machine import CoordinatorMachine
from millpond.coordinator.messages import (
    Abandoned,
    Alive,
    Begin,
    Completed,
    Declined,
    Here,
    Joined,
    Left,
    Order,
    Refused,
    Rejoin,
    Reset,
    Restore,
    Restored,
    Saved,
    Start,
    Unrestorable,
)
from millpond.coordinator.protocol import Commit, Drop, End, MemberProtocol, RestoreTo, Run, Save, Say
from millpond.coordinator.record import JobCheckpoint, JobRecord
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.simulation import Trouble, simulate
from millpond.coordinator.simulation.verdict import BrokenPromiseError
from millpond.coordinator.standing import Phase
from millpond.coordinator.state import MemberState, NoState, Place, TaskState
from millpond.errors import ConfigError, StateNotFoundError

SPOUTS = {f"spout-{n}": Place("spout", n, 10) for n in range(10)}
BOLTS = {f"bolt-{n}": Place("bolt", n, 40) for n in range(40)}
TOPOLOGY = {**SPOUTS, **BOLTS}  # 2 spouts of 5 and 4 bolts of 10, as in Heron's own tests
PAIR = {"a": Place("a"), "b": Place("b")}


class Rig:
    """A machine, and everybody's part played by the test."""

    def __init__(
        self, members: dict[str, Place] = PAIR, record: JobRecord | None = None, epoch: int = 1, **said: Any
    ) -> None:
        self.now = 100.0
        self.settings = CoordinatorSettings(
            job="job", members=members, **{"interval_s": 10.0, "timeout_s": 60.0, "silence_s": 1e6, **said}
        )
        self.machine = CoordinatorMachine(self.settings, epoch, record, self.now)
        self.record = record
        self.out: list[Decision] = []
        self.starts = dict.fromkeys(members, 1)

    def do(self, decisions: Iterable[Decision]) -> list[Decision]:
        """Note what was decided, and write what is to be written at once."""
        given = list(decisions)
        self.out += given
        return given

    def tick(self, seconds: float = 0.0) -> list[Decision]:
        self.now += seconds
        return self.do(self.machine.tick(self.now))

    def say(self, kind: type, member: str, **fields: Any) -> list[Decision]:
        incarnation = fields.pop("incarnation", f"{member}#{self.starts.get(member, 1)}")
        return self.do(self.machine.report(kind(member=member, incarnation=incarnation, **fields), self.now))

    def write(self) -> list[Decision]:
        """Let the record that was decided on become durable."""
        self.record = [d for d in self.out if isinstance(d, Write)][-1].record
        return self.do(self.machine.written(self.now))

    def join_all(self) -> None:
        for member, place in self.settings.members.items():
            self.say(Joined, member, place=place)

    @property
    def transaction(self) -> TransactionId:
        return [d.order.transaction for d in self.out if isinstance(d, Send) and isinstance(d.order, Restore)][-1]

    @property
    def attempt(self) -> JobCheckpointId:
        return self.orders(Begin)[-1].attempt

    def orders(self, kind: type, decisions: list[Decision] | None = None) -> list[Any]:
        found = self.out if decisions is None else decisions
        return [d.order for d in found if isinstance(d, Send | Broadcast) and isinstance(d.order, kind)]

    def told(self, kind: type) -> list[Any]:
        return [d.event for d in self.out if isinstance(d, Tell) and isinstance(d.event, kind)]

    def restore_all(self) -> None:
        transaction = self.transaction
        for member in self.settings.members:
            self.say(Restored, member, transaction=transaction)
        self.write()

    def run(self) -> None:
        """Come to where all members process."""
        self.join_all()
        self.restore_all()
        assert self.machine.phase is Phase.RUNNING

    def save(self, member: str, attempt: JobCheckpointId | None = None, **fields: Any) -> list[Decision]:
        fields = {"transaction": self.machine.running or TransactionId(0, 0), **fields}
        attempt = attempt or self.attempt
        return self.say(Saved, member, attempt=attempt, state=TaskState(f"{member}@{attempt}"), **fields)

    def checkpoint(self) -> JobCheckpointId:
        """Make a whole job checkpoint."""
        self.tick(self.settings.interval_s)
        for member in self.settings.members:
            self.save(member)
        self.write()
        return self.machine.record.ids[0]


def ids(*numbers: int) -> tuple[JobCheckpointId, ...]:
    return tuple(JobCheckpointId(1, number) for number in numbers)


def recorded(*numbers: int, members: dict[str, Place] = PAIR) -> JobRecord:
    """Give a record with some job checkpoints of epoch 1, newest first."""
    checkpoints = tuple(
        JobCheckpoint(id, 0, {name: MemberState(place, TaskState(f"{name}@{id}")) for name, place in members.items()})
        for id in ids(*numbers)
    )
    return JobRecord("job", "1", checkpoints)


# --- what Heron's tests pin (heron: 68 to 75, and its list of what upstream does not pin)


def test_a_checkpoint_is_whole_with_the_last_of_fifty_and_not_before() -> None:
    """The record is written on the last missing task's report and on no earlier one (heron 68)."""
    rig = Rig(TOPOLOGY)
    rig.run()
    rig.tick(10)
    *most, last = TOPOLOGY
    for member in most:
        assert not any(isinstance(d, Write) for d in rig.save(member))
    assert [Write] == [type(d) for d in rig.save(last)]
    assert rig.orders(Completed) == []
    rig.write()
    assert [order.attempt for order in rig.orders(Completed)] == [rig.attempt]


def test_reports_for_an_older_attempt_complete_nothing() -> None:
    """Once a newer attempt is under way, all the missing reports for the old one do not disturb it (heron 69, 70)."""
    rig = Rig(TOPOLOGY)
    rig.run()
    rig.tick(10)
    old = rig.attempt
    *most, last = TOPOLOGY
    for member in most:
        rig.save(member)
    rig.tick(60)  # too late: abandoned
    assert [order.attempt for order in rig.orders(Abandoned)] == [old]
    rig.tick(10)
    assert rig.attempt > old
    for member in most:
        rig.save(member)
        assert rig.save(last, old) == []
    assert [Write] == [type(d) for d in rig.save(last)]
    rig.write()
    assert rig.machine.record.ids == (rig.attempt,)


def test_a_restore_asks_everybody_and_starts_nobody_before_the_last_answer() -> None:
    """Each member counts as unanswered until its answer; the start goes out after the last one (heron 71 to 75)."""
    rig = Rig(TOPOLOGY)
    assert rig.tick() and not rig.orders(Restore)
    rig.join_all()
    assert rig.machine.phase is Phase.RESTORING
    assert len(rig.orders(Restore)) == 50
    for member in TOPOLOGY:
        assert rig.orders(Start) == []
        rig.say(Restored, member, transaction=rig.transaction)
    assert rig.orders(Start) == []  # not before the record names this restore
    rig.write()
    assert [order.transaction for order in rig.orders(Start)] == [rig.transaction]
    assert rig.machine.phase is Phase.RUNNING


def test_an_unreadable_checkpoint_leads_to_the_next_older_one_for_all() -> None:
    """From 3 to 2 to 1, each under a transaction of its own, and to nothing when the operator allowed it."""
    rig = Rig(record=recorded(3, 2, 1), epoch=2, allow_empty=True)
    rig.join_all()
    for expected in (*ids(3, 2, 1), None):
        orders = rig.orders(Restore)[-2:]
        assert [order.checkpoint for order in orders] == [expected] * 2
        rig.say(Unrestorable, "a", transaction=rig.transaction, reason="gone", damaged=True)
    transactions = [order.transaction for order in rig.orders(Restore)]
    assert len(set(transactions)) == 4
    assert [e.chosen for e in rig.told(events.OlderJobCheckpointChosen)][:3] == [*ids(2, 1), None]
    # Nothing is older than nothing: it is tried again after a while, and nobody gives up (heron aborts here).
    rig.tick(2.0)
    assert rig.orders(Restore)[-1].checkpoint is None
    assert rig.machine.phase is Phase.RESTORING


def test_without_leave_nobody_begins_from_nothing() -> None:
    """When no job checkpoint can be restored and an empty start is not allowed, the coordinator stops and says so."""
    rig = Rig(record=recorded(2, 1), epoch=2)
    rig.join_all()
    for _ in range(2):
        rig.say(Unrestorable, "b", transaction=rig.transaction, reason="gone", damaged=True)
    (failure,) = [d for d in rig.out if isinstance(d, Fail)]
    assert isinstance(failure.error, StateNotFoundError)
    assert "1-2, 1-1" in str(failure.error) and "allow_empty" in str(failure.error)
    assert rig.tick(100) == []


def test_what_may_go_away_is_tried_again_and_nothing_older_is_taken() -> None:
    """A member that cannot be restored for now is asked again, later and later, for the same job checkpoint."""
    rig = Rig(record=recorded(2, 1), epoch=2)
    rig.join_all()
    for pause in (1.0, 2.0, 4.0):
        rig.say(Unrestorable, "b", transaction=rig.transaction, reason="no answer", damaged=False)
        before = rig.transaction
        rig.tick(pause - 0.1)
        assert rig.transaction == before
        rig.tick(0.2)
        assert rig.transaction > before
    assert {order.checkpoint for order in rig.orders(Restore)} == {JobCheckpointId(1, 2)}


def test_stale_answers_of_an_earlier_restore_count_for_nothing() -> None:
    """An answer that names another transaction neither completes a restore nor makes it fail."""
    rig = Rig(record=recorded(2, 1), epoch=2)
    rig.join_all()
    stale = rig.transaction
    rig.say(Joined, "b", place=PAIR["b"], incarnation="b#2")
    rig.starts["b"] = 2
    assert rig.transaction > stale
    rig.say(Restored, "a", transaction=stale)
    rig.say(Restored, "b", transaction=stale)
    rig.say(Unrestorable, "a", transaction=stale, reason="", damaged=True)
    assert rig.machine.phase is Phase.RESTORING and rig.orders(Restore)[-1].checkpoint == JobCheckpointId(1, 2)
    rig.restore_all()
    assert rig.machine.phase is Phase.RUNNING


@pytest.mark.parametrize("phase", ["attempt", "saved", "restoring", "answered", "starting"])
def test_a_dead_task_resets_in_each_phase(phase: str) -> None:
    """Whatever the job is doing when a task starts again, all go back to the newest job checkpoint together."""
    rig = Rig()
    rig.run()
    first = rig.checkpoint()
    if phase in ("attempt", "saved"):
        rig.tick(10)
    if phase == "saved":
        rig.save("a")
    if phase in ("restoring", "answered", "starting"):
        rig.say(Reset, "b", transaction=rig.machine.running, reason="a peer is lost")
    if phase in ("answered", "starting"):
        rig.say(Restored, "a", transaction=rig.transaction)
    if phase == "starting":
        rig.say(Restored, "b", transaction=rig.transaction)
    before = rig.transaction
    rig.say(Joined, "a", place=PAIR["a"], incarnation="a#2")
    rig.starts["a"] = 2
    if phase == "starting":  # a record is on its way, and its outcome comes first
        assert rig.transaction == before
        rig.write()
        assert rig.orders(Start)[-1].transaction != before
    assert rig.transaction > before
    rig.restore_all()
    assert rig.orders(Restore)[-1].checkpoint == first
    assert rig.machine.phase is Phase.RUNNING
    assert rig.checkpoint() > first


def test_a_reset_from_before_the_last_restore_is_ignored() -> None:
    """A member that asks for a restore of what was restored meanwhile gets none."""
    rig = Rig()
    rig.run()
    old = rig.machine.running
    rig.say(Reset, "a", transaction=old, reason="lost")
    rig.restore_all()
    before = rig.transaction
    rig.say(Reset, "b", transaction=old, reason="lost")
    assert rig.transaction == before and rig.machine.phase is Phase.RUNNING


# --- the bad days of the issue


def test_a_task_that_dies_between_save_and_report() -> None:
    """What it saved belongs to nothing: the attempt is abandoned, and its late report after the restart is ignored."""
    rig = Rig()
    rig.run()
    rig.tick(10)
    lost = rig.attempt
    rig.save("b")
    rig.say(Joined, "a", place=PAIR["a"], incarnation="a#2")  # it saved, died, and is back
    assert [order.attempt for order in rig.orders(Abandoned)] == [lost]
    assert rig.save("a", lost) == rig.orders(Refused, rig.out[-1:]) or rig.orders(Refused)
    rig.starts["a"] = 2
    assert rig.save("a", lost, transaction=TransactionId(1, 1)) == []
    rig.restore_all()
    assert rig.save("a", lost) == [] and rig.save("a", lost, transaction=TransactionId(1, 1)) == []
    assert rig.machine.record.ids == ()


def test_a_save_after_its_checkpoint_was_abandoned_changes_nothing() -> None:
    """A report for an attempt that one member declined is ignored, and the next attempt is not disturbed."""
    rig = Rig()
    rig.run()
    rig.tick(10)
    abandoned = rig.attempt
    rig.save("a")
    rig.say(Declined, "b", transaction=rig.machine.running, attempt=abandoned, reason="the disk is full")
    assert rig.save("b", abandoned) == []
    assert rig.checkpoint() > abandoned
    assert rig.machine.counts.abandoned == 1
    assert rig.told(events.JobCheckpointAbandoned)[0].reason == "member 'b' cannot save: the disk is full"


def test_no_attempt_shares_its_number_with_another() -> None:
    """Numbers grow within a leadership, and a later leadership begins beyond all of them, whatever the clocks say."""
    rig = Rig()
    rig.run()
    seen = [rig.checkpoint() for _ in range(3)]
    later = Rig(record=rig.machine.record, epoch=2)
    later.run()
    seen.append(later.checkpoint())
    assert seen == sorted(set(seen))
    with pytest.raises(ConfigError, match="emptied or replaced"):
        Rig(record=later.machine.record, epoch=2)


def test_a_repeated_report_counts_once() -> None:
    """Two reports of one member are not the reports of two."""
    rig = Rig()
    rig.run()
    rig.tick(10)
    rig.save("a")
    assert rig.save("a") == [] and rig.save("a") == []
    assert rig.machine.counts.ignored == 2
    assert [Write] == [type(d) for d in rig.save("b")]
    assert rig.save("b") == []


def test_one_missing_state_of_many_makes_no_smaller_checkpoint() -> None:
    """With one of fifty missing there is no job checkpoint, and after the time-out the event names the missing one."""
    rig = Rig(TOPOLOGY)
    rig.run()
    rig.tick(10)
    for member in list(TOPOLOGY)[1:]:
        rig.save(member)
    rig.tick(60)
    assert not [d for d in rig.out if isinstance(d, Write)][1:]
    assert "spout-0" in rig.told(events.JobCheckpointAbandoned)[0].reason


def test_a_restore_of_a_record_that_lacks_a_member_is_refused() -> None:
    """A member that the job checkpoint does not know is a ConfigError that names it, never an empty start."""
    rig = Rig({**PAIR, "c": Place("c")}, recorded(1), epoch=2)
    rig.join_all()
    (failure,) = [d for d in rig.out if isinstance(d, Fail)]
    assert isinstance(failure.error, ConfigError) and "no state for c" in str(failure.error)
    assert rig.orders(Restore) == []


@pytest.mark.parametrize(
    ("now", "named"),
    [
        ({"a": Place("a", 0, 1, (0, 64)), "b": Place("b")}, "key groups 0 to 63"),
        ({"a": Place("a", 0, 2), "a2": Place("a", 1, 2), "b": Place("b")}, "a was a 0 of 1 and is a 0 of 2 now"),
        ({"a": Place("a")}, "state for b"),
    ],
)
def test_another_parallelism_or_other_keys_are_refused_at_the_restore(now: dict[str, Place], named: str) -> None:
    """Rescaling up, down, or another split of the keys: a ConfigError that names the difference."""
    rig = Rig(now, recorded(1), epoch=2)
    rig.join_all()
    (failure,) = [d for d in rig.out if isinstance(d, Fail)]
    assert isinstance(failure.error, ConfigError) and named in str(failure.error)


def test_a_failure_while_the_record_is_written_waits_for_its_outcome() -> None:
    """A restore that is due while a record is on its way goes to that one: it may have been acknowledged."""
    rig = Rig()
    rig.run()
    rig.tick(10)
    rig.save("a")
    rig.save("b")
    rig.say(Joined, "a", place=PAIR["a"], incarnation="a#2")
    rig.starts["a"] = 2
    rig.tick(30)
    assert len(rig.orders(Restore)) == 2  # those of the beginning
    rig.write()
    assert rig.orders(Restore)[-1].checkpoint == rig.attempt


def test_only_one_record_is_on_its_way_at_a_time() -> None:
    """While a record is written no attempt begins, so no two build on the same one and none is lost."""
    rig = Rig()
    rig.run()
    rig.tick(10)
    rig.save("a")
    rig.save("b")
    first = rig.attempt
    rig.tick(10)
    rig.do(rig.machine.request("", rig.now))
    assert rig.attempt == first
    rig.write()
    assert rig.attempt > first
    rig.save("a")
    rig.save("b")
    rig.write()
    assert rig.machine.record.ids == (rig.attempt, first)


def test_a_clock_that_goes_back_reorders_nothing() -> None:
    """Ids come from no clock: with the wall clock going back each job checkpoint is the newest when it is made."""
    clock = iter(range(10**6, 0, -1000))
    rig = Rig(retain=10)
    rig.machine._millis = lambda: next(clock)
    rig.run()
    made = [rig.checkpoint() for _ in range(3)]
    assert list(rig.machine.record.ids) == sorted(made, reverse=True)


def test_a_coordinator_that_starts_in_the_middle_of_a_restore_takes_it_over() -> None:
    """A member that is still restoring for a coordinator that died obeys the next one, and not the old one."""
    protocol = MemberProtocol("a", "a#1", PAIR["a"])
    protocol.order(restore(5))
    assert [RestoreTo] == [type(step) for step in protocol.order(restore(1, epoch=2))]
    assert protocol.restored(TransactionId(1, 5)) == ()
    assert protocol.order(restore(6)) == ()
    assert protocol.restored(TransactionId(2, 1)) != ()


def test_an_empty_start_that_fails_does_not_bring_the_old_state_back() -> None:
    """When all is damaged and the job began anew, the damaged ones are not gone back to, nor kept in the record."""
    rig = Rig(record=recorded(1), epoch=2, allow_empty=True)
    rig.join_all()
    rig.say(Unrestorable, "a", transaction=rig.transaction, reason="gone", damaged=True)
    rig.restore_all()
    rig.say(Reset, "a", transaction=rig.machine.running, reason="a peer is lost")
    assert rig.orders(Restore)[-1].checkpoint is None
    rig.restore_all()
    assert rig.machine.record.ids != () and rig.checkpoint() == rig.machine.record.ids[0]
    assert len(rig.machine.record.ids) == 1


# --- the other rules


def test_an_attempt_that_is_due_while_another_is_in_flight_is_skipped() -> None:
    """One at a time: what is due meanwhile is an event, and the one in flight goes on."""
    rig = Rig()
    rig.run()
    rig.tick(10)
    rig.save("a")
    rig.tick(10)
    rig.tick(10)
    assert len(rig.orders(Begin)) - len([o for o in rig.orders(Begin) if o.attempt == rig.attempt]) == 0
    assert [e.missing for e in rig.told(events.JobCheckpointSkipped)] == [1, 1]
    rig.save("b")
    rig.write()
    assert rig.machine.counts.completed == 1


def test_a_pause_keeps_slow_attempts_from_starving_the_job() -> None:
    """After a long attempt the next one waits for the pause, though its interval is over."""
    rig = Rig(pause_s=8.0)
    rig.run()
    rig.tick(10)
    attempt = rig.attempt
    rig.now += 9
    rig.save("a")
    rig.save("b")
    rig.write()
    rig.tick(7)
    assert rig.attempt == attempt
    rig.tick(1)
    assert rig.attempt > attempt


def test_retention_keeps_the_newest_and_every_savepoint() -> None:
    """So many unnamed job checkpoints as the operator says, and each savepoint until it is forgotten."""
    rig = Rig(retain=2)
    rig.run()
    rig.do(rig.machine.request("before the move", rig.now))
    rig.save("a")
    rig.save("b")
    rig.write()
    savepoint = rig.machine.record.ids[0]
    for _ in range(4):
        rig.checkpoint()
    assert len(rig.machine.record.ids) == 3 and rig.machine.record.ids[-1] == savepoint
    assert rig.orders(Completed)[-1].retained == rig.machine.record.ids
    assert rig.machine.request("before the move", rig.now) == ()
    rig.machine.forget("before the move", rig.now)
    rig.checkpoint()
    assert savepoint not in rig.machine.record.ids


def test_a_savepoint_that_was_given_up_is_tried_again() -> None:
    """Whoever asked for a savepoint gets one, after a pause, though a member declined the first attempt at it."""
    rig = Rig(resend_s=2.0)
    rig.run()
    rig.do(rig.machine.request("before the move", rig.now))
    first = rig.attempt
    rig.say(Declined, "b", transaction=rig.machine.running, attempt=first, reason="the disk is full")
    rig.tick(1.9)
    assert rig.attempt == first  # not at once: what failed would fail again and again
    rig.tick(0.2)
    rig.save("a")
    rig.save("b")
    rig.write()
    assert [c.name for c in rig.machine.record.checkpoints] == ["before the move"]


def test_whom_the_job_waits_for_is_told_again_and_again() -> None:
    """While members are missing the operator hears which, first after a while and then from time to time."""
    rig = Rig(silence_s=10.0)
    rig.say(Joined, "a", place=PAIR["a"])
    rig.tick(5)
    assert rig.told(events.MembersMissing) == []
    for _ in range(10):
        rig.say(Alive, "a")
        rig.tick(5)
    assert [e.members for e in rig.told(events.MembersMissing)] == [("b",), ("b",)]


def test_a_restore_of_an_older_checkpoint_ends_the_newer_history() -> None:
    """What was skipped as damaged is not gone back to once there is a job checkpoint on the other history."""
    rig = Rig(record=recorded(3, 2, 1), epoch=2, retain=5)
    rig.join_all()
    rig.say(Unrestorable, "a", transaction=rig.transaction, reason="gone", damaged=True)
    rig.restore_all()
    new = rig.checkpoint()
    assert rig.machine.record.ids == (new, *ids(2, 1))
    assert rig.machine.record.checkpoints[0].based_on == JobCheckpointId(1, 2)


def test_whoever_does_not_belong_is_refused_with_the_mend() -> None:
    """A member that the topology does not name, or that says another place, is told so; the job is not disturbed."""
    rig = Rig()
    rig.run()
    rig.say(Joined, "stranger", place=Place("x"))
    rig.say(Joined, "a", place=Place("a", 0, 1, (0, 9)), incarnation="other")
    refused = rig.orders(Refused)
    assert "no member 'stranger'" in refused[0].reason and "the topology says a 0 of 1" in refused[1].reason
    assert rig.machine.phase is Phase.RUNNING
    rig.say(Saved, "stranger", transaction=rig.machine.running, attempt=JobCheckpointId(1, 1), state=NoState())
    assert rig.machine.counts.ignored == 1


def test_an_earlier_start_that_speaks_up_again_is_told_that_it_was_replaced() -> None:
    """A zombie, or its message that was long on its way, does not push out the start that replaced it."""
    rig = Rig()
    rig.run()
    rig.say(Joined, "a", place=PAIR["a"], incarnation="a#2")
    rig.starts["a"] = 2
    rig.restore_all()
    for kind, fields in ((Joined, {"place": PAIR["a"]}), (Alive, {}), (Restored, {"transaction": rig.transaction})):
        (order,) = rig.orders(Refused, rig.say(kind, "a", incarnation="a#1", **fields))
        assert order.replaced and order.incarnation == "a#1"
    assert rig.machine.phase is Phase.RUNNING


def test_a_silent_member_is_lost_and_asked_to_join_again() -> None:
    """A member that says nothing for too long stops attempts; when it is heard again it joins, and all are restored."""
    rig = Rig(silence_s=5.0, resend_s=1.0)
    rig.run()
    rig.now += 3
    rig.say(Alive, "a", running=rig.machine.running)
    rig.tick(3)
    assert [e.task for e in rig.told(events.MemberLost)] == ["b"]
    assert rig.machine.phase is Phase.GATHERING
    assert rig.orders(Rejoin, rig.say(Alive, "b", running=None))
    rig.say(Joined, "b", place=PAIR["b"])
    assert rig.machine.phase is Phase.RESTORING


def test_one_that_leaves_is_missed_at_once() -> None:
    """A member that says that it ends is lost without a time-out, and its later reports are not taken."""
    rig = Rig()
    rig.run()
    rig.say(Left, "b", reason="the host stops")
    assert rig.machine.phase is Phase.GATHERING
    assert rig.say(Alive, "b") != [] and rig.orders(Refused)


def test_what_was_lost_is_sent_again() -> None:
    """Orders that nobody answered are repeated to those that did not: restore, start, begin, completed, abandoned."""
    rig = Rig()
    rig.join_all()
    rig.say(Restored, "a", transaction=rig.transaction)
    assert [d.member for d in rig.tick(3) if isinstance(d, Send) and isinstance(d.order, Restore)] == ["b"]
    rig.say(Restored, "b", transaction=rig.transaction)
    rig.write()
    assert rig.orders(Start, rig.say(Alive, "a", running=None))
    rig.tick(10)
    rig.save("a")
    assert [d.member for d in rig.tick(3) if isinstance(d, Send) and isinstance(d.order, Begin)] == ["b"]
    rig.save("b")
    running = rig.machine.running
    assert rig.orders(Abandoned, rig.say(Alive, "a", running=running, waiting=rig.attempt)) == []  # still under way
    rig.write()
    assert rig.orders(Completed, rig.say(Alive, "a", running=running, completed=None))
    assert rig.say(Alive, "a", running=running, completed=rig.attempt) == []
    waiting = JobCheckpointId(1, 99)
    assert rig.orders(Abandoned, rig.say(Alive, "a", running=running, completed=rig.attempt, waiting=waiting))


def test_a_restore_that_nobody_answers_is_ordered_anew() -> None:
    """After the restore's time-out all are told again, under a new transaction."""
    rig = Rig(restore_timeout_s=30.0)
    rig.join_all()
    before = rig.transaction
    rig.tick(31)
    assert rig.transaction > before


def test_a_record_of_another_job_is_refused() -> None:
    """Two jobs that share a place by mistake do not take each other's state."""
    with pytest.raises(ConfigError, match="give each job a place of its own"):
        Rig(record=JobRecord("other"))


def test_a_message_costs_the_same_for_ten_and_for_ten_thousand_members() -> None:
    """Reports, beats and doubles take the machine no longer when it has a thousand times the members."""

    def seconds(count: int) -> float:
        rig = Rig({f"m{n}": Place("m", n, count) for n in range(count)}, resend_s=1e4, silence_s=1e5)
        rig.run()
        rig.tick(10)
        machine, running, attempt = rig.machine, rig.machine.running, rig.attempt
        saved = Saved(member="m0", incarnation="m0#1", transaction=running, attempt=attempt, state=NoState())
        alive = Alive(member="m1", incarnation="m1#1", running=running)
        best = 1e9
        for _ in range(7):
            begun = time.perf_counter()
            for _ in range(500):
                machine.report(saved, rig.now)
                machine.report(alive, rig.now)
                machine.tick(rig.now)
            best = min(best, time.perf_counter() - begun)
        return best

    assert seconds(10_000) < 5 * seconds(10) + 0.01


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"interval_s": 0}, "interval_s"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"pause_s": -1}, "pause_s"),
        ({"retain": 0}, "at least 1"),
        ({"silence_s": 1.0, "resend_s": 0.1}, "members that live"),
        ({"resend_s": 10, "silence_s": 10}, "asked again"),
        ({"members": {}}, "at least one member"),
        ({"members": {"": Place("a")}}, "names"),
        ({"members": {"a": Place("a"), "b": Place("a")}}, "same place"),
        ({"members": {"a": Place("a", 0, 2)}}, "parallelism 1"),
        ({"members": {"a": Place("a", 1, 1)}}, "index from 0"),
        ({"members": {"a": Place("a", 0, 2, (0, 8)), "b": Place("a", 1, 2, (9, 16))}}, "gap or overlap"),
        ({"members": {"a": Place("a", 0, 2, (0, 8)), "b": Place("a", 1, 2)}}, "or none"),
        ({"members": {"a": Place("a", 0, 1, (8, 0))}}, "end before they begin"),
        ({"job": ""}, "name"),
    ],
)
def test_every_wrong_setting_is_refused_with_its_name(said: dict[str, Any], named: str) -> None:
    """A setting that cannot work is a ConfigError before anything begins."""
    with pytest.raises(ConfigError, match=named):
        CoordinatorSettings(**{"job": "job", "members": PAIR, **said})


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "01-1", "1-1-1", "1-²", "9" * 30 + "-1", " 1-1"])
def test_an_id_is_read_only_from_its_own_text(text: str) -> None:
    """Whatever ``str`` does not give is no id."""
    with pytest.raises(ValueError, match="not a job checkpoint id"):
        JobCheckpointId.parse(text)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_an_id_survives_its_text(epoch: int, number: int) -> None:
    """What ``str`` gives is read back, and ids are ordered as numbers."""
    id = JobCheckpointId(epoch, number)
    assert JobCheckpointId.parse(str(id)) == id
    assert JobCheckpointId(9, 1) < JobCheckpointId(10, 0)


# --- a member's side


def member() -> MemberProtocol:
    protocol = MemberProtocol("a", "a#1", PAIR["a"])
    protocol.order(restore(1))
    protocol.restored(TransactionId(1, 1))
    protocol.order(Start(epoch=1, transaction=TransactionId(1, 1)))
    assert protocol.running == TransactionId(1, 1)
    return protocol


def restore(number: int, epoch: int = 1, checkpoint: JobCheckpointId | None = None) -> Restore:
    return Restore(
        epoch=epoch,
        incarnation="a#1",
        transaction=TransactionId(epoch, number),
        checkpoint=checkpoint,
        state=None,
        retained=(),
    )


def begin(number: int, transaction: int = 1) -> Begin:
    return Begin(epoch=1, transaction=TransactionId(1, transaction), attempt=JobCheckpointId(1, number))


def test_a_begin_that_comes_again_is_answered_in_the_same_words() -> None:
    """A member saves once for an attempt, and repeats its answer as often as it is asked."""
    protocol = member()
    assert protocol.order(begin(1)) == (Save(JobCheckpointId(1, 1)),)
    assert protocol.order(begin(1)) == ()  # it is not done yet
    assert protocol.begin_saving(JobCheckpointId(1, 1))
    assert not protocol.begin_saving(JobCheckpointId(1, 1))
    said = protocol.saved(JobCheckpointId(1, 1), NoState())
    assert len(said) == 1
    assert protocol.order(begin(1)) == said
    assert protocol.saved(JobCheckpointId(1, 1), NoState()) == ()


def test_nothing_begins_that_is_over() -> None:
    """An attempt that was abandoned, completed, or is older than the newest does not begin again."""
    protocol = member()
    dropped = protocol.order(Abandoned(epoch=1, attempt=JobCheckpointId(1, 3), reason="late"))
    assert dropped == (Drop(JobCheckpointId(1, 3), "late"),)
    for number in (1, 2, 3):
        assert protocol.order(begin(number)) == ()
        assert not protocol.begin_saving(JobCheckpointId(1, number))
    assert protocol.order(begin(4))
    told = protocol.order(Completed(epoch=1, attempt=JobCheckpointId(1, 5), retained=()))
    assert told == (Commit(JobCheckpointId(1, 5), ()),)
    assert protocol.order(Completed(epoch=1, attempt=JobCheckpointId(1, 5), retained=())) == ()
    assert not protocol.begin_saving(JobCheckpointId(1, 5))


def test_what_is_meant_for_an_earlier_start_is_not_obeyed() -> None:
    """Orders that were long on their way make no later start of a member take part in what runs already."""
    later = MemberProtocol("a", "a#2", PAIR["a"])
    assert later.order(restore(1)) == ()
    assert later.order(Start(epoch=1, transaction=TransactionId(1, 1))) == ()
    assert later.order(begin(1)) == ()
    assert later.running is None
    rig = Rig()
    rig.join_all()
    meant = {d.member: d.order.incarnation for d in rig.out if isinstance(d, Send) and isinstance(d.order, Restore)}
    assert meant == {"a": "a#1", "b": "b#1"}


def test_a_save_that_ends_after_a_restore_is_not_reported() -> None:
    """What was frozen before a restore belongs to no attempt after it."""
    protocol = member()
    protocol.begin_saving(JobCheckpointId(1, 1))
    assert [RestoreTo] == [type(step) for step in protocol.order(restore(2))]
    assert protocol.saved(JobCheckpointId(1, 1), NoState()) == ()
    assert protocol.declined(JobCheckpointId(1, 1), "no") == ()
    assert not protocol.begin_saving(JobCheckpointId(1, 2))


def test_an_older_coordinator_is_not_obeyed() -> None:
    """Once a member has heard of a later leadership it does nothing that an earlier one says."""
    protocol = member()
    protocol.order(Here(epoch=2))
    for order in (restore(9), begin(9), Completed(epoch=1, attempt=JobCheckpointId(1, 9), retained=())):
        assert protocol.order(order) == ()
    assert protocol.ignored == 3


def test_starts_and_restores_out_of_order_do_no_harm() -> None:
    """A start before its restore, a start of an older one, and an older restore after a newer one change nothing."""
    protocol = MemberProtocol("a", "a#1", PAIR["a"])
    assert protocol.order(Start(epoch=1, transaction=TransactionId(1, 2))) == ()
    protocol.order(restore(2))
    assert protocol.order(restore(1)) == ()
    assert protocol.order(Start(epoch=1, transaction=TransactionId(1, 2))) == ()  # it is not restored yet
    said = protocol.restored(TransactionId(1, 2))
    assert protocol.order(restore(2)) == said
    assert protocol.order(Start(epoch=1, transaction=TransactionId(1, 1))) == ()
    start = Start(epoch=1, transaction=TransactionId(1, 2))
    assert protocol.order(start) == (Run(TransactionId(1, 2)),) and protocol.order(start) == ()


def test_a_refusal_of_another_start_is_not_taken() -> None:
    """A member ends only when it itself is meant; asked to join again, it does."""
    protocol = member()
    assert protocol.order(Refused(epoch=9, incarnation="a#0", reason="old")) == ()
    assert protocol.order(Refused(epoch=9, incarnation="a#1", reason="go", replaced=True)) == (End("go", True),)
    assert protocol.order(Rejoin(epoch=9)) == (Say(protocol.join()),)


# --- everything at once


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
