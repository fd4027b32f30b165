"""A member's side of the protocol, message by message."""

from __future__ import annotations

from coordinator_machines import PAIR, Rig, begin, member, restore

from millpond.coordinator.decisions import Send
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.messages import (
    Abandoned,
    Completed,
    Here,
    Refused,
    Rejoin,
    Restore,
    Start,
)
from millpond.coordinator.protocol import Commit, Drop, End, MemberProtocol, RestoreTo, Run, Save, Say
from millpond.coordinator.state import NoState


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
