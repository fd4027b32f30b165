"""Members tied to real tasks: pins, restores, two-phase sinks, and who does not belong."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from coordinator_rigs import Rig, Slow, Worker, config

import millpond
from millpond.coordinator import events
from millpond.coordinator.ends import LocalHub
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.keepers import BytesKeeper, NothingKept, TaskKeeper, is_damage
from millpond.coordinator.member import Member
from millpond.coordinator.messages import Completed, Order, Report, Restore, Saved, Start
from millpond.coordinator.participant import Participant
from millpond.coordinator.shelf import Placement
from millpond.coordinator.standing import Phase
from millpond.coordinator.state import InlineState, NoState, Place, State, TaskState
from millpond.errors import (
    ConfigError,
    FencedError,
    StateCorruptError,
    StateNotFoundError,
    TransientError,
)


def test_all_tasks_go_back_to_one_checkpoint_together(rigs: Callable[..., Rig]) -> None:
    """When one task starts again, every task's state is that of the newest job checkpoint, however far it was."""
    rig = rigs()
    a, b = rig.join("a"), rig.join("b")
    rig.run()
    for _ in range(3):
        a.work()
    for _ in range(5):
        b.work()
    newest = rig.checkpoint()
    a.work()
    b.work()
    a = rig.restart("a")
    rig.run()
    assert (a.count, b.count) == (3, 5)
    assert a.story[:2] == [f"restored {newest}", "start"]
    assert b.story[-3:] == ["pre-restore", f"restored {newest}", "start"]


def test_before_the_first_job_checkpoint_all_begin_anew(rigs: Callable[..., Rig]) -> None:
    """Task checkpoints of an attempt that never became whole are not built on: the tasks begin empty again."""
    rig = rigs()
    a, b = rig.join("a"), rig.join("b", Refusing())
    rig.run()
    a.work()
    rig.coordinator.request()
    rig.until(lambda: any(s.startswith("abandoned") for s in a.story))
    assert a.keeper.task.last is not None  # type: ignore[attr-defined]
    a = rig.restart("a")
    rig.run()
    assert a.count == 0 and dict(a.keeper.task.offsets) == {}  # type: ignore[attr-defined]
    assert isinstance(b.keeper, Refusing)
    reason = next(e.reason for e in rig.events if isinstance(e, events.JobCheckpointAbandoned))
    assert reason == "member 'b' cannot save: the disk is full"


class Refusing(NothingKept):
    """A state that cannot be saved."""

    def save(self, attempt: JobCheckpointId) -> Future[State]:
        raise TransientError("the disk is full")


def test_a_retained_job_checkpoint_keeps_its_task_checkpoints(rigs: Callable[..., Rig]) -> None:
    """Pins keep what the record names, whatever the tasks' own retention says, and go when it names it no more."""
    rig = rigs(retain=2)
    a, b = rig.join("a"), rig.join("b")
    rig.run()
    made = []
    for _ in range(4):
        a.work()
        b.work()
        made.append(rig.checkpoint())

    def pinned() -> set[str]:
        return set(rig.job.checkpoints.pins("a"))

    wanted = {"job-base", *(f"job-{id}" for id in made[-2:])}
    rig.until(lambda: pinned() == wanted)
    assert len(rig.job.checkpoints.ids("a")) == 1  # retain = 1 of the task's own


def test_a_damaged_task_checkpoint_takes_all_to_the_next_older_job_checkpoint(rigs: Callable[..., Rig]) -> None:
    """The state of one of many is gone: all members go back one further, and what was lost is told."""
    rig = rigs()
    a, b = rig.join("a"), rig.join("b")
    rig.run()
    for _ in range(2):
        a.work()
        b.work()
        rig.checkpoint()
    older, newest = sorted(a.completed_ids)
    task = a.keeper.task  # type: ignore[attr-defined]
    a.keeper.close()
    rig.job.checkpoints.unpin("a", f"job-{newest}")
    claim = rig.job.checkpoints.claim("a")
    rig.job.checkpoints.delete(claim, rig.job.checkpoints.ids("a"))
    a = rig.restart("a")
    rig.run()
    assert (a.count, b.count) == (1, 1)
    assert a.story[0] == f"restored {older}"
    assert [e.chosen for e in rig.events if isinstance(e, events.OlderJobCheckpointChosen)] == [older]
    assert task is not None
    assert rig.checkpoint() > newest


def test_a_coordinator_that_is_replaced_goes_on_where_the_record_is(rigs: Callable[..., Rig]) -> None:
    """A standby reads the record; members join it when they are asked, and all are restored to what it names."""
    rig = rigs()
    a, b = rig.join("a"), rig.join("b")
    rig.run()
    a.work()
    newest = rig.checkpoint()
    assert rig.coordinator.status.newest_age_s is not None
    rig.coordinator.close()
    rig.coordinator = rig.lead()
    rig.until(lambda: rig.coordinator.status.epoch > newest.epoch and rig.coordinator.status.phase is Phase.RUNNING)
    rig.run()
    assert rig.coordinator.status.newest_age_s is None  # an earlier leadership completed it
    assert a.story[-2] == f"restored {newest}" and a.count == 1 and b.count == 0
    assert rig.checkpoint() > newest


def test_a_savepoint_stays(rigs: Callable[..., Rig]) -> None:
    """A named job checkpoint outlives retention, its pins with it, and its name cannot be given twice."""
    rig = rigs(retain=1)
    a, _ = rig.join("a"), rig.join("b")
    rig.run()
    saved = rig.checkpoint("before the move")
    for _ in range(3):
        a.work()
        rig.checkpoint()
    with pytest.raises(ConfigError, match="savepoint 'before the move' already"):
        rig.coordinator.request("before the move")
    assert f"job-{saved}" in rig.job.checkpoints.pins("a")


def test_hooks_run_in_their_order(rigs: Callable[..., Rig]) -> None:
    """The pre-save hook before the state is frozen, the notice after the record is written (heron 93 to 95)."""
    rig = rigs("a")
    a = rig.join("a")
    rig.run()
    first = rig.checkpoint()
    assert a.story == ["restored None", "start", f"pre-save {first}", f"completed {first}"]
    a.member.reset("a peer is lost")  # type: ignore[union-attr]
    rig.until(lambda: "pre-restore" in a.story)
    rig.run()
    assert a.story[4:] == ["pre-restore", f"restored {first}", "start"]


def test_a_two_phase_member_waits_for_the_outcome(rigs: Callable[..., Rig]) -> None:
    """Between its save and the notice it does not process; a plain member is not held back (heron 96 to 98)."""
    rig = rigs("a", "b", "c", timeout_s=1e5)
    a, b = rig.join("a", two_phase=True), rig.join("b")
    c = rig.join("c", Slow())
    rig.run()
    rig.coordinator.request()
    rig.until(lambda: any(s.startswith("pre-save") for s in a.story) and any(s.startswith("pre-save") for s in b.story))
    assert not a.member.may_process and b.member.may_process  # type: ignore[union-attr]
    assert isinstance(c.keeper, Slow)
    c.keeper.saving.set_result(NoState())
    rig.until(lambda: a.completed_ids != [])
    assert a.member.may_process  # type: ignore[union-attr]


def test_an_abandoned_attempt_frees_a_two_phase_member(rigs: Callable[..., Rig]) -> None:
    """When the job checkpoint does not become whole in time, the one that waits for it goes on."""
    rig = rigs("a", "c", timeout_s=0.5)
    a, _ = rig.join("a", two_phase=True), rig.join("c", Slow())
    rig.run()
    rig.coordinator.request()
    rig.until(lambda: any(s.startswith("pre-save") for s in a.story))
    rig.until(lambda: any(s.startswith("abandoned") for s in a.story))
    assert a.member.may_process  # type: ignore[union-attr]


class FileSink(Participant):
    """A two-phase sink: lines become visible in files that are renamed when their job checkpoint is whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []

    def pre_save(self, attempt: JobCheckpointId) -> None:
        (self.folder / f"{attempt}.prepared").write_text("".join(self.lines))
        self.lines = []

    def completed(self, attempt: JobCheckpointId) -> None:
        for path in self.folder.glob("*.prepared"):
            if JobCheckpointId.parse(path.stem) <= attempt:
                path.rename(path.with_suffix(".out"))

    def restored(self, checkpoint: JobCheckpointId | None, transaction: TransactionId) -> None:
        if checkpoint is not None:
            self.completed(checkpoint)
        for path in self.folder.glob("*.prepared"):
            path.unlink()
        self.lines = []

    @property
    def output(self) -> list[str]:
        paths = sorted(self.folder.glob("*.out"), key=lambda path: JobCheckpointId.parse(path.stem))
        return [line for path in paths for line in path.read_text().splitlines()]


def test_outputs_of_a_two_phase_sink_come_exactly_once(tmp_path: Path) -> None:
    """Prepared at the save, out on global completion, aborted at a restore behind them: each line once, in order."""
    hub, got = LocalHub(), list[Report]()
    end = hub.coordinator_end()
    end.open(got.append)
    (tmp_path / "out").mkdir()
    sink, state = FileSink(tmp_path / "out"), [0]
    keeper = BytesKeeper(
        Placement("sink"), lambda: b"%d" % state[0], lambda data: state.__setitem__(0, int(data or b"0"))
    )

    def emit(member: Member, until: int) -> None:
        assert member.may_process
        for number in range(state[0] + 1, until + 1):
            sink.lines.append(f"{number}\n")
            state[0] = number

    def told(number: int, saved: State | None, id: JobCheckpointId | None, member: Member) -> None:

        transaction = TransactionId(1, number)
        orders: list[Order] = [
            Restore(
                epoch=1,
                incarnation=member.incarnation,
                transaction=transaction,
                checkpoint=id,
                state=saved,
                retained=(),
            ),
            Start(epoch=1, transaction=transaction),
        ]
        for order in orders:
            end.send("sink", order)
            member.poll()

    with Member("sink", Place("sink"), keeper, hub.member_end("sink"), sink) as member:
        told(1, None, None, member)
        emit(member, 3)
        assert member.save(JobCheckpointId(1, 1))
        first = [r for r in got if isinstance(r, Saved)][-1]
        emit(member, 5)
        assert member.save(JobCheckpointId(1, 2))  # never completed
        assert sink.output == []
        told(2, first.state, first.attempt, member)  # the notice was lost: the restore commits what it names
        assert sink.output == ["1", "2", "3"]
        emit(member, 6)
        member.save(JobCheckpointId(1, 3))
        end.send("sink", Completed(epoch=1, attempt=JobCheckpointId(1, 3), retained=()))
        end.send("sink", Completed(epoch=1, attempt=JobCheckpointId(1, 3), retained=()))
        member.poll()
    assert sink.output == ["1", "2", "3", "4", "5", "6"]


def test_a_member_that_was_replaced_ends(rigs: Callable[..., Rig]) -> None:
    """An earlier start of a member is told by FencedError, at its next poll or at its next save."""
    rig = rigs("a")
    rig.join("a")
    rig.run()
    old = rig.workers.pop("a")
    again = rig.join("a", NothingKept())
    rig.run()
    assert old.member is not None and again.member is not None
    rig.hub.members["a"] = old.member._order  # a network that brings it the answers
    with pytest.raises(FencedError, match="later start"):
        for _ in range(200):
            old.member.beat()
            old.member.poll(0.05)


def test_one_that_does_not_belong_is_told_what_to_correct(rigs: Callable[..., Rig]) -> None:
    """A name that the topology lacks is a ConfigError at the stranger's next poll."""
    rig = rigs("a")
    worker = Worker("stranger", NothingKept())
    end = rig.hub.member_end("stranger")
    with (
        Member("stranger", Place("x"), worker.keeper, end, worker) as stranger,
        pytest.raises(ConfigError, match="no member 'stranger'"),
    ):
        for _ in range(200):
            stranger.beat()
            stranger._end.send(stranger._protocol.join())
            stranger.poll(0.05)


def test_a_task_with_a_past_of_its_own_is_not_taken_silently(tmp_path: Path) -> None:
    """A task that has checkpoints and no job checkpoint is refused, or adopted if the host says so."""
    with millpond.open_job(config(tmp_path)) as job:
        with job.open_task("a") as task:
            task.store("counts")["n"] = 7
        keeper = TaskKeeper(job, "a")
        with pytest.raises(ConfigError, match="adopt"):
            keeper.restore(None, None)
        assert keeper.task is None
        adopting = TaskKeeper(job, "a", adopt=True)
        for _ in range(2):
            adopting.restore(None, None)
            assert adopting.task is not None
            assert adopting.task.store("counts")["n"] == 7
            adopting.task.store("counts")["n"] = 8
            adopting.task.commit_now()
        adopting.close()


def test_a_base_that_was_made_without_its_pin_is_found(tmp_path: Path) -> None:
    """A kill between the first, empty commit and its pin leaves a task that begins empty all the same."""
    with millpond.open_job(config(tmp_path)) as job:
        with job.open_task("a") as task:
            task.commit_now()
        keeper = TaskKeeper(job, "a")
        keeper.restore(None, None)
        assert list(job.checkpoints.pins("a")) == ["job-base"]
        keeper.close()


def test_states_of_another_kind_are_damage_and_not_an_empty_start(tmp_path: Path) -> None:
    """A member that kept bytes and is a task now, or names no checkpoint, cannot be restored from that."""
    with millpond.open_job(config(tmp_path)) as job:
        keeper = TaskKeeper(job, "a")
        for state, kind in (
            (InlineState(b"x"), StateNotFoundError),
            (TaskState("nonsense"), StateCorruptError),
            (TaskState("1-1"), StateNotFoundError),
        ):
            with pytest.raises(kind) as raised:
                keeper.restore(JobCheckpointId(1, 1), state)
            assert is_damage(raised.value)
        with pytest.raises(ConfigError):
            NothingKept().restore(JobCheckpointId(1, 1), InlineState(b"x"))
        assert not is_damage(ConfigError("x")) and not is_damage(TransientError("x"))
