"""
Our own coordinator over a Heron checkpoint manager, and Heron's known limits of coordinator and instances (17 to 34).

The coordinator, its members and its alignment have tests of their own; here each limit of Heron's is met once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from heron_servers import HOST, ID, NAME, TOPOLOGY, serving

from millpond.coordinator.alignment import Aligned, BarrierAligner, Overflowed
from millpond.coordinator.decisions import Broadcast, Fail, Send, Write
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.machine import CoordinatorMachine
from millpond.coordinator.messages import (
    Abandoned,
    Begin,
    Completed,
    Declined,
    Joined,
    Reset,
    Restore,
    Restored,
    Saved,
    Unrestorable,
)
from millpond.coordinator.record import JobCheckpoint, JobRecord
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.shelf import Placement
from millpond.coordinator.standing import Phase
from millpond.coordinator.state import LocatedState, MemberState, NoState, Place
from millpond.errors import ConfigError, StateCorruptError, StateNotFoundError
from millpond.heron.client import CheckpointClient
from millpond.heron.folder import FolderStore
from millpond.heron.ids import next_id, number_order, text_order
from millpond.heron.shelf import HeronShelf, heron_id

K1, K2, K3 = (JobCheckpointId(1, number) for number in (1, 2, 3))
PLACES = {"a": Place("a"), "b": Place("b")}


# The shelf


def test_a_members_large_state_goes_through_heron(tmp_path: Path):
    """What a member cannot put into the record is saved, given back and cleaned through a Heron checkpoint manager."""
    with (
        serving(tmp_path, FolderStore(tmp_path / "states")) as served,
        CheckpointClient(HOST, served.port, TOPOLOGY, attempts=2) as client,
    ):
        places = {name: Placement(name, HeronShelf(client), limit=10) for name in ("counter/0", "writer 1")}
        states = {
            (name, attempt): place.put(attempt, f"{name}{attempt}".encode() * 100_000)
            for name, place in places.items()
            for attempt in (K1, K2, JobCheckpointId(1, 10))
        }
        for (name, attempt), state in states.items():
            assert isinstance(state, LocatedState)
            assert places[name].get(state) == f"{name}{attempt}".encode() * 100_000
        places["counter/0"].clean([K2], JobCheckpointId(1, 10))

        with pytest.raises(StateNotFoundError):
            places["counter/0"].get(states["counter/0", K1])
        assert places["writer 1"].get(states["writer 1", K2]).startswith(b"writer 1")
        assert places["writer 1"].get(states["writer 1", JobCheckpointId(1, 10)]).startswith(b"writer 1")


def test_a_second_start_does_not_overwrite_what_the_record_names(tmp_path: Path):
    """Two starts of a member that save the same attempt have a state each; another's place or digest is damage."""
    with serving(tmp_path) as served, CheckpointClient(HOST, served.port, TOPOLOGY, attempts=2) as client:
        shelf = HeronShelf(client)
        first, second = shelf.put("a", K1, b"first"), shelf.put("a", K1, b"second")

        assert (shelf.get(first), shelf.get(second)) == (b"first", b"second")
        for wrong in ("../etc/passwd", "x/y", second.location):
            with pytest.raises(StateCorruptError):
                shelf.get(LocatedState(wrong, first.size, first.digest))


def test_17_ids_do_not_come_from_a_clock():
    """17: attempts are an epoch and a counter; two of one second differ, and a clock that goes back changes nothing."""
    assert JobCheckpointId(1, 10) > JobCheckpointId(1, 2)
    assert heron_id(JobCheckpointId(1, 10)) > heron_id(JobCheckpointId(1, 2))
    first = next_id([], 1_795_963_938_000)
    second, third = next_id([first], 1_795_963_938_000), next_id([first], 0)
    assert first < second
    assert first < third
    assert text_order("100-10") < text_order("100-2")  # as Heron has it
    assert number_order("100-10") > number_order("100-2")
    with pytest.raises(ConfigError):
        heron_id(JobCheckpointId(1, 10**10))


# The coordinator


class Job:
    """A coordinator of two members, whose parts the test plays."""

    def __init__(self, record: JobRecord | None = None, epoch: int = 1, **more: Any) -> None:
        given = {"interval_s": 10.0, "timeout_s": 30.0, "silence_s": 1e6, **more}
        self.now = 0.0
        self.machine = CoordinatorMachine(CoordinatorSettings(job="j", members=PLACES, **given), epoch, record, 0.0)
        self.decided: list[Any] = []

    def take(self, decisions: Any) -> None:
        self.decided += decisions

    def say(self, kind: type, member: str, **fields: Any) -> None:
        self.take(self.machine.report(kind(member=member, incarnation=f"{member}#1", **fields), self.now))

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.take(self.machine.tick(self.now))

    def write(self) -> None:
        self.take(self.machine.written(self.now))

    def orders(self, kind: type) -> list[Any]:
        return [
            each.order for each in self.decided if isinstance(each, Send | Broadcast) and isinstance(each.order, kind)
        ]

    def records(self) -> list[JobRecord]:
        return [each.record for each in self.decided if isinstance(each, Write)]

    def save(self, member: str, attempt: JobCheckpointId, transaction: TransactionId | None = None) -> None:
        running = transaction or self.machine.running or TransactionId(0, 0)
        self.say(Saved, member, transaction=running, attempt=attempt, state=NoState())

    def run(self) -> Job:
        """Come to where both members process."""
        for member, place in PLACES.items():
            self.say(Joined, member, place=place)
        self.restored()
        assert self.machine.phase is Phase.RUNNING
        return self

    def restored(self) -> None:
        transaction = self.orders(Restore)[-1].transaction
        for member in PLACES:
            self.say(Restored, member, transaction=transaction)
        self.write()

    def attempt(self) -> JobCheckpointId:
        """Let the next attempt begin."""
        self.tick(10.0)
        found: JobCheckpointId = self.orders(Begin)[-1].attempt
        return found

    def complete(self) -> JobCheckpointId:
        id = self.attempt()
        for member in PLACES:
            self.save(member, id)
        self.write()
        return id


def test_18_a_checkpoint_that_cannot_be_saved_is_given_up_and_told():
    """18: one in flight at a time; a failed save, or time that is over, ends it with word to all members."""
    job = Job().run()
    first = job.attempt()
    job.say(Declined, "a", transaction=job.machine.running, attempt=first, reason="the save was NOTOK")
    assert [each.attempt for each in job.orders(Abandoned)] == [first]
    second = job.attempt()
    job.tick(10.0)
    assert job.orders(Begin)[-1].attempt == second
    job.tick(25.0)
    assert [each.attempt for each in job.orders(Abandoned)] == [first, second]
    assert job.machine.counts.skipped >= 1
    assert job.complete() > second


def test_19_a_restore_has_a_deadline_and_an_epoch():
    """19: members that do not answer a restore are ordered again, under a number that a new leadership's exceed."""
    job = Job(restore_timeout_s=20.0)
    for member, place in PLACES.items():
        job.say(Joined, member, place=place)
    first = job.orders(Restore)[-1].transaction
    job.tick(21.0)
    job.tick(1.0)
    again = job.orders(Restore)[-1].transaction
    other = Job(job.machine.record, epoch=2)
    for member, place in PLACES.items():
        other.say(Joined, member, place=place)

    assert first < again < other.orders(Restore)[-1].transaction


def test_20_records_are_written_one_after_another_and_once():
    """20: reports that come twice, late or for an older attempt change nothing, and no second record is under way."""
    job = Job().run()
    first = job.complete()
    count = len(job.records())
    for member in PLACES:
        job.save(member, first)
    assert len(job.records()) == count
    second = job.attempt()
    for member in (*PLACES, *PLACES):
        job.save(member, second)
    job.tick(10.0)
    assert len(job.records()) == count + 1
    assert job.orders(Begin)[-1].attempt == second
    job.write()
    assert list(job.machine.record.ids) == [second, first]


def test_21_reports_from_before_a_restore_complete_nothing():
    """21: a save that belongs to the time before a restore does not count after it."""
    job = Job().run()
    before, attempt = job.machine.running, job.attempt()
    job.save("a", attempt)
    job.say(Reset, "b", transaction=before, reason="a peer was lost")
    job.restored()
    job.save("b", attempt, before)

    assert job.machine.record.newest is None
    assert job.complete() > attempt


def test_22_a_job_of_another_id_does_not_get_the_old_state():
    """22: the record is keyed by the job's id: one that was submitted anew is refused another's record."""
    record = JobRecord("j", "first", ())
    with pytest.raises(ConfigError, match="record is of job"):
        CoordinatorMachine(CoordinatorSettings(job="j", job_id="second", members=PLACES), 1, record, 0.0)


def test_23_what_the_record_names_is_not_cleaned(tmp_path: Path):
    """23: members clean up to the oldest that the record retains, and the record is written before they are told."""
    job = Job(retain=1).run()
    first = job.complete()
    second = job.complete()
    kinds = [type(getattr(each, "order", each)) for each in job.decided]

    assert job.orders(Completed)[-1].retained == (second,)
    assert first not in job.machine.record.ids
    last_write = max(number for number, kind in enumerate(kinds) if kind is Write)
    assert last_write < max(number for number, kind in enumerate(kinds) if kind is Completed)
    with serving(tmp_path, topologies={NAME: ID}) as served, CheckpointClient(HOST, served.port, TOPOLOGY) as client:
        shelf = HeronShelf(client)
        kept = shelf.put("a", second, b"kept")
        shelf.put("a", first, b"gone")
        shelf.clean("a", job.orders(Completed)[-1].retained, JobCheckpointId(1, 99))
        assert shelf.get(kept) == b"kept"


def test_24_a_failed_restore_to_nothing_is_tried_again_and_ends_nobody():
    """24: a restore to the empty state that fails for now is ordered again after a wait that grows."""
    job = Job(retry_s=1.0)
    for member, place in PLACES.items():
        job.say(Joined, member, place=place)
    for tried in (1, 2):
        transaction = job.orders(Restore)[-1].transaction
        job.say(Unrestorable, "a", transaction=transaction, reason="not yet", damaged=False)
        assert job.orders(Restore)[-1].transaction == transaction
        job.tick(0.5 * tried)
        assert job.orders(Restore)[-1].transaction == transaction
        job.tick(1.0 * tried)
        assert job.orders(Restore)[-1].transaction > transaction
    assert not [each for each in job.decided if isinstance(each, Fail)]


def scaled(parallelism: int) -> JobRecord:
    states = {name: MemberState(Place(name, 0, parallelism), NoState()) for name in PLACES}
    return JobRecord("j", "1", (JobCheckpoint(K1, 0, states),))


def test_25_the_topology_of_a_checkpoint_is_compared():
    """16, 25: a checkpoint of another topology is an error in words, and never a restart from nothing."""
    job = Job(scaled(2), epoch=2)
    for member, place in PLACES.items():
        job.say(Joined, member, place=place)

    assert [each for each in job.decided if isinstance(each, Fail)]
    assert job.machine.phase is Phase.STUCK


def test_26_a_member_that_reports_again_causes_no_restore():
    """26: only a member that starts anew or is lost does; one that says again that it is here changes nothing."""
    job = Job().run()
    count = len(job.orders(Restore))
    for member, place in PLACES.items():
        job.say(Joined, member, place=place)

    assert len(job.orders(Restore)) == count
    assert job.machine.phase is Phase.RUNNING


def test_30_a_member_that_waits_hears_that_its_attempt_is_over():
    """30: whoever waits for an attempt is told that it was given up; another's completion says its own id."""
    job = Job().run()
    first = job.attempt()
    job.save("a", first)
    job.tick(31.0)
    assert job.orders(Abandoned)[-1].attempt == first
    second = job.complete()
    assert job.orders(Completed)[-1].attempt == second != first


# Alignment, one test for each fault that was reproduced on Heron's gateway


def shown(aligner: BarrierAligner) -> list[Any]:
    return [each.attempt if isinstance(each, Aligned) else each for each in aligner.drain()]


def test_32_overlapping_checkpoints_lose_and_reorder_no_tuple():
    """32: a tuple between two markers of one upstream is before the second snapshot, and order within it stays."""
    gate = BarrierAligner(["a", "b"], 1 << 20)
    a, b = gate.channel("a"), gate.channel("b")
    a.barrier(K1)
    a.put("t1", 1)
    a.barrier(K2)
    a.put("t2", 1)
    b.barrier(K2)

    assert shown(gate) == ["t1", K2, "t2"]


def test_32_after_an_overflow_the_next_checkpoint_is_right():
    """32: a late marker of an attempt that overflowed holds nobody, and the next snapshot has all tuples before it."""
    gate = BarrierAligner(["a", "b"], 10)
    a, b = gate.channel("a"), gate.channel("b")
    a.barrier(K1)
    a.put("t1", 20)
    given = list(gate.drain())
    assert isinstance(given[0], Overflowed)
    assert given[1:] == ["t1"]
    b.barrier(K1)
    b.put("t2", 1)
    a.barrier(K2)
    b.barrier(K2)
    assert shown(gate) == ["t2", K2]


def test_32_a_stale_marker_starts_nothing():
    """32: markers of a checkpoint that is over neither block an upstream nor make a snapshot."""
    gate = BarrierAligner(["a", "b"], 1 << 20)
    for name in ("a", "b"):
        gate.channel(name).barrier(K2)
    assert shown(gate) == [K2]
    for name in ("a", "b"):
        gate.channel(name).barrier(K1)
        gate.channel(name).barrier(K2)
        gate.channel(name).put(f"after {name}", 1)
    assert shown(gate) == ["after a", "after b"]


def test_32_what_is_held_is_counted_down_again_and_can_be_cleared():
    """32: after each alignment nothing counts as held, and clearing with several channels is safe."""
    gate = BarrierAligner(["a", "b", "c"], 1000)
    for number in range(1, 20):
        attempt = JobCheckpointId(1, number)
        for name in ("a", "b", "c"):
            gate.channel(name).barrier(attempt)
            gate.channel(name).put(name, 300)
        list(gate.drain())
        assert gate.held_size == 0
    assert gate.counts.overflowed == 0
    gate.channel("a").barrier(K3)
    gate.close()
    assert gate.held_size == 0


def test_33_a_member_that_loses_a_marker_can_ask_for_a_restore():
    """33: whoever cannot pass records or markers on says so, and all members are restored."""
    job = Job().run()
    job.say(Reset, "a", transaction=job.machine.running, reason="a marker for b could not be sent")

    assert len(job.orders(Restore)) == 4
    job.restored()
    assert job.machine.phase is Phase.RUNNING


def test_31_and_34_a_state_is_bytes_until_its_member_wants_it(tmp_path: Path):
    """31, 34: word of a completed checkpoint has its own order, and a state is given as bytes that nobody parsed."""
    job = Job().run()
    job.complete()
    assert {type(order) for order in job.orders(Completed)} == {Completed}
    with serving(tmp_path) as served, CheckpointClient(HOST, served.port, TOPOLOGY) as client:
        shelf = HeronShelf(client)
        anything = bytes(range(256)) * 100
        assert shelf.get(shelf.put("a", K1, anything)) == anything
