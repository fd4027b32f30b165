"""The coordinator's state machine, fact by fact: what Heron's tests pin, and the other rules."""

from __future__ import annotations

import time
from typing import Any

import pytest
from coordinator_machines import PAIR, TOPOLOGY, Rig, ids, recorded
from hypothesis import given
from hypothesis import strategies as st

from millpond.coordinator import events
from millpond.coordinator.decisions import Fail, Send, Write
from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.messages import (
    Abandoned,
    Alive,
    Begin,
    Completed,
    Declined,
    Joined,
    Left,
    Refused,
    Rejoin,
    Reset,
    Restore,
    Restored,
    Saved,
    Start,
    Unrestorable,
)
from millpond.coordinator.record import JobRecord
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.standing import Phase
from millpond.coordinator.state import NoState, Place
from millpond.errors import ConfigError, StateNotFoundError

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
