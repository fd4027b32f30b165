"""The coordinator's state machine on bad days: deaths, late and repeated messages, missing states, clocks."""

from __future__ import annotations

import pytest
from coordinator_machines import PAIR, TOPOLOGY, Rig, recorded, restore

from millpond.coordinator import events
from millpond.coordinator.decisions import Fail, Write
from millpond.coordinator.ids import TransactionId
from millpond.coordinator.messages import (
    Abandoned,
    Declined,
    Joined,
    Refused,
    Reset,
    Restore,
    Unrestorable,
)
from millpond.coordinator.protocol import MemberProtocol, RestoreTo
from millpond.coordinator.state import Place
from millpond.errors import ConfigError


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
    rig.tick(10)
    assert rig.attempt > abandoned
    assert rig.save("a") == rig.save("b", abandoned) == []  # the next attempt has begun, and lacks a state of b's still
    (write,) = [decision for decision in rig.save("b") if isinstance(decision, Write)]
    saved = {name: member.state.checkpoint for name, member in write.record.checkpoints[0].members.items()}
    assert saved == {name: f"{name}@{rig.attempt}" for name in ("a", "b")}
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
