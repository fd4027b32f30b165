"""The whole coordinator: its record's place in trouble, two at once, and members by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from coordinator_rigs import Rig, Worker, by_hand, go_back

from millpond.blob.memory import MemoryBlobStore
from millpond.coordinator import events, wire
from millpond.coordinator.alignment import Aligned, Overflowed
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.keepers import NothingKept
from millpond.coordinator.messages import Declined, Joined, Report, Restore, Restored, Saved, Start
from millpond.coordinator.numbered import in_blob_store, in_directory
from millpond.coordinator.reign import Written
from millpond.coordinator.service import Coordinator
from millpond.coordinator.standing import Phase
from millpond.coordinator.state import InlineState, State
from millpond.errors import (
    ConfigError,
    TransientError,
)


def test_a_place_that_loses_answers_only_delays(tmp_path: Path) -> None:
    """Lost answers to the record's write, whether it happened or not, are settled by looking, and told meanwhile."""
    store = MemoryBlobStore()
    lost = [0]

    def lose(verb: str, key: str) -> None:
        if verb == "put" and "/records/" in key:
            lost[0] += 1
            if lost[0] in (2, 3, 5):
                raise TransientError("no answer")

    store.after = lose
    rig = Rig.__new__(Rig)
    Rig.__init__(rig, tmp_path)
    rig.coordinator.close()
    rig.metadata.close()
    rig.metadata = in_blob_store(store, "job", lease_s=30.0)
    rig.coordinator = rig.lead()
    try:
        rig.join("a"), rig.join("b")
        rig.run()
        made = [rig.checkpoint() for _ in range(3)]
        assert made == sorted(set(made))
        assert any(isinstance(e, events.JobRecordUncertain) for e in rig.events)
    finally:
        rig.close()


def test_a_coordinator_without_its_place_leads_no_more(tmp_path: Path) -> None:
    """While the record's place is away nothing is announced; when the lease is over the leader stops, and says why."""
    store = MemoryBlobStore()
    rig = Rig(tmp_path)
    rig.coordinator.close()
    rig.metadata.close()
    rig.metadata = in_blob_store(store, "job", lease_s=3.0)
    rig.coordinator = rig.lead()
    try:
        rig.join("a"), rig.join("b")
        rig.run()

        def away(verb: str, key: str) -> None:
            raise TransientError("the place is away")

        store.before = away
        rig.coordinator.request()
        rig.until(lambda: any(isinstance(e, events.CoordinatorFenced) for e in rig.events))
        assert not any(isinstance(e, events.JobCheckpointCompleted) for e in rig.events)
        store.before = lambda verb, key: None
        rig.until(lambda: rig.coordinator.status.leads and rig.coordinator.status.phase is Phase.RUNNING)
        rig.run()
        rig.checkpoint()
    finally:
        rig.close()


def test_word_of_an_earlier_leaderships_write_counts_for_nothing(rigs: Callable[..., Rig]) -> None:
    """A writer's late answer from before the coordinator was elected again does not make another record written."""
    rig = rigs()
    rig.join("a"), rig.join("b")
    rig.run()
    rig.checkpoint()
    late = Written(rig.coordinator._reign, "17")  # type: ignore[arg-type]
    rig.coordinator.close()
    with pytest.raises(TransientError, match="does not lead"):
        rig.coordinator.request()
    rig.coordinator = rig.lead()
    rig.until(lambda: rig.coordinator.status.phase is Phase.RUNNING)
    rig.run()
    reign = rig.coordinator._reign
    assert reign is not None
    version = reign._version
    rig.coordinator._facts.put(late)
    rig.checkpoint()
    assert reign._version not in (version, "17")


def test_state_that_no_message_can_carry_is_declined() -> None:
    """Inline state beyond a message's limit gives the attempt up with the mend, and does not wait for its time-out."""
    worker = Worker("a", Heavy())
    with by_hand("a", worker.keeper, worker) as (end, got, member):
        transaction = TransactionId(1, 1)
        send, refused = member._end.send, list[Report]()

        def through_json(report: Report) -> None:
            wire.to_json(report)
            refused.append(report)
            send(report)

        member._end.send = through_json  # type: ignore[method-assign]
        end.send("a", go_back(member, transaction))
        member.poll()
        end.send("a", Start(epoch=1, transaction=transaction))
        member.poll()
        assert member.save(JobCheckpointId(1, 1))
        (declined,) = [r for r in got if isinstance(r, Declined)]
        assert "by location" in declined.reason


class Heavy(NothingKept):
    """A state that is too large for a message, inline all the same."""

    def save(self, attempt: JobCheckpointId) -> Future[State]:
        future: Future[State] = Future()
        future.set_result(InlineState(bytes(wire.MAX_FRAME)))
        return future


def test_two_coordinators_at_once_are_one_that_counts(tmp_path: Path) -> None:
    """A second candidate stands by; when the first is gone it leads, and never both."""
    rig = Rig(tmp_path)
    second_place = in_directory(tmp_path / "records", "job")
    second = Coordinator(rig.settings, second_place, rig.hub.coordinator_end, candidate="second")
    running = threading.Thread(target=second.run)
    try:
        rig.join("a"), rig.join("b")
        rig.run()
        running.start()
        first = rig.checkpoint()
        assert not second.status.leads and second.status.epoch == 0
        rig.coordinator.close()
        rig.coordinator = second
        rig.until(lambda: second.status.leads and second.status.phase is Phase.RUNNING)
        rig.run()
        assert rig.checkpoint() > first
    finally:
        rig.close()
        running.join(30)
        second_place.close()


def test_a_job_that_cannot_go_on_ends_the_coordinator_with_the_reason(tmp_path: Path) -> None:
    """Another topology than the record's ends ``run`` with a ConfigError that names the difference."""
    rig = Rig(tmp_path)
    try:
        rig.join("a"), rig.join("b")
        rig.run()
        rig.checkpoint()
    finally:
        rig.close()
    other = Rig(tmp_path, ("a",))
    try:
        other.join("a")
        other.until(lambda: other.failures != [])
        assert isinstance(other.failures[0], ConfigError) and "state for b" in str(other.failures[0])
    finally:
        other.close()


def test_a_restore_that_was_superseded_is_skipped(tmp_path: Path) -> None:
    """Of two restores that wait for the host only the later one is done, and answered."""
    worker = Worker("a", NothingKept())
    with by_hand("a", worker.keeper, worker) as (end, got, member):
        for number in (1, 2):
            transaction = TransactionId(1, number)
            end.send(
                "a",
                Restore(
                    epoch=1,
                    incarnation=member.incarnation,
                    transaction=transaction,
                    checkpoint=None,
                    state=None,
                    retained=(),
                ),
            )
        member.poll()
        assert worker.story == ["restored None"]
        assert [r.transaction for r in got if isinstance(r, Restored)] == [TransactionId(1, 2)]
        assert isinstance(got[0], Joined) and not member.may_process


def test_marks_of_the_aligner_are_saves_and_refusals() -> None:
    """An aligned mark saves and is told with its time; an overflow declines with its bound."""
    worker = Worker("a", NothingKept())
    with by_hand("a", worker.keeper, worker) as (end, got, member):
        transaction = TransactionId(1, 1)
        assert not member.take(Aligned(JobCheckpointId(1, 1), 0.1, 0, 0))  # nothing runs yet
        end.send("a", go_back(member, transaction))
        member.poll()
        end.send("a", Start(epoch=1, transaction=transaction))
        member.poll()
        assert member.take(Aligned(JobCheckpointId(1, 1), 0.1, 0, 0))
        assert not member.take(Aligned(JobCheckpointId(1, 1), 0.1, 0, 0))
        assert not member.take(Overflowed(JobCheckpointId(1, 2), 2_000, 1_000))
        assert [r.attempt for r in got if isinstance(r, Saved)] == [JobCheckpointId(1, 1)]
        (declined,) = [r for r in got if isinstance(r, Declined)]
        assert "2,000 bytes" in declined.reason and "limit of 1,000" in declined.reason
