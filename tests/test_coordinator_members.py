"""Members tied to real tasks: pins, restores, two-phase sinks, state by location, and coordinators that come and go."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

import millpond
from millpond import SystemStreamPartition
from millpond.blob.memory import MemoryBlobStore
from millpond.coordinator import events, wire
from millpond.coordinator.alignment import Aligned, Overflowed
from millpond.coordinator.beat import Beater
from millpond.coordinator.ends import LocalHub
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.keepers import BytesKeeper, Keeper, NothingKept, TaskKeeper, is_damage
from millpond.coordinator.member import Member
from millpond.coordinator.messages import Completed, Declined, Joined, Order, Report, Restore, Restored, Saved, Start
from millpond.coordinator.numbered import NumberedMetadata, in_blob_store, in_directory
from millpond.coordinator.participant import Participant
from millpond.coordinator.reign import Written
from millpond.coordinator.service import Coordinator
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.shelf import BlobShelf, Placement
from millpond.coordinator.standing import Phase
from millpond.coordinator.state import InlineState, LocatedState, NoState, Place, State, TaskState
from millpond.errors import (
    ConfigError,
    FencedError,
    StateCorruptError,
    StateNotFoundError,
    TransientError,
)
from millpond.progress.lines import line

SOURCE = SystemStreamPartition("test", "input", 0)
DEADLINE_S = 100.0


def config(root: Path, name: str = "job") -> dict[str, Any]:
    return {
        "job": {"name": name, "state_dir": str(root / "state")},
        "checkpoint": {"manager": "directory", "path": str(root / "records"), "retain": 1},
        "backends": {"disk": {"type": "rocksdb-local"}},
        "stores": {
            "counts": {"engine": "memory", "key": "str", "value": "json", "backup": ["disk"], "restore": ["disk"]}
        },
    }


class Worker(Participant):
    """A task without channels: it counts, and saves when an attempt begins."""

    def __init__(self, name: str, keeper: Keeper) -> None:
        self.name = name
        self.keeper = keeper
        self.member: Member | None = None
        self.story: list[str] = []
        self.completed_ids: list[JobCheckpointId] = []
        self.fails: BaseException | None = None

    def pre_restore(self) -> None:
        self.story.append("pre-restore")

    def restored(self, checkpoint: JobCheckpointId | None, transaction: TransactionId) -> None:
        self.story.append(f"restored {checkpoint}")

    def start(self, transaction: TransactionId) -> None:
        self.story.append("start")

    def begin(self, attempt: JobCheckpointId) -> None:
        assert self.member is not None
        self.member.save(attempt)

    def pre_save(self, attempt: JobCheckpointId) -> None:
        self.story.append(f"pre-save {attempt}")

    def completed(self, attempt: JobCheckpointId) -> None:
        self.story.append(f"completed {attempt}")
        self.completed_ids.append(attempt)

    def abandoned(self, attempt: JobCheckpointId, reason: str) -> None:
        self.story.append(f"abandoned {attempt}")

    def work(self) -> None:
        """Process one record."""
        task = self.keeper.task  # type: ignore[attr-defined]
        counts = task.store("counts")
        number = counts.get("n", 0) + 1
        counts["n"] = number
        task.processed(SOURCE, number)

    @property
    def count(self) -> int:
        task = self.keeper.task  # type: ignore[attr-defined]
        return task.store("counts").get("n", 0)


class Rig:
    """A coordinator in a thread, members that the test steps, and all of it in one process."""

    def __init__(self, root: Path, names: tuple[str, ...] = ("a", "b"), **said: Any) -> None:
        self.root = root
        self.hub = LocalHub()
        self.settings = CoordinatorSettings(
            job="job",
            members={name: Place(name) for name in names},
            **{"interval_s": 1e6, "resend_s": 0.2, "silence_s": 30.0, "retain": 2, **said},
        )
        self.events: list[Any] = []
        self.failures: list[BaseException] = []
        self.metadata: NumberedMetadata = in_directory(root / "records", "job")
        self.coordinator = self.lead()
        self.job = millpond.open_job(config(root))
        self.workers: dict[str, Worker] = {}
        self.stack = ExitStack()

    def lead(self) -> Coordinator:
        """Start a coordinator."""
        coordinator = Coordinator(
            self.settings, self.metadata, self.hub.coordinator_end, candidate="test", listeners=[self.events.append]
        )

        def run() -> None:
            try:
                coordinator.run()
            except BaseException as error:
                self.failures.append(error)

        threading.Thread(target=run, daemon=True).start()
        return coordinator

    def join(self, name: str, keeper: Keeper | None = None, **said: Any) -> Worker:
        """Start a member, with a task for its state unless the test says otherwise."""
        worker = Worker(name, keeper or TaskKeeper(self.job, name))
        end = self.hub.member_end(name)
        member = Member(name, Place(name), worker.keeper, end, worker, beater=Beater(0.1), **said)
        worker.member = self.stack.enter_context(member)
        self.workers[name] = worker
        return worker

    def until(self, what: Callable[[], bool]) -> None:
        """Let the members work off their orders until *what* is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not what():
            assert time.monotonic() < deadline, (self.events, [w.story for w in self.workers.values()], self.failures)
            for worker in self.workers.values():
                assert worker.member is not None
                worker.member.poll(0.01)

    def run(self) -> None:
        """Wait until everybody may process."""
        self.until(lambda: all(w.member is not None and w.member.may_process for w in self.workers.values()))

    def checkpoint(self, name: str = "") -> JobCheckpointId:
        """Make a job checkpoint of which everybody hears."""
        before = self.coordinator.status.newest
        self.coordinator.request(name)
        self.until(lambda: self.coordinator.status.newest != before)
        newest = self.coordinator.status.newest
        assert newest is not None
        self.until(lambda: all(newest in w.completed_ids for w in self.workers.values()))
        return newest

    def restart(self, name: str) -> Worker:
        """Let a member end without a word of its state, as by a kill, and start again."""
        old = self.workers.pop(name)
        old.keeper.close()
        return self.join(name)

    def close(self) -> None:
        self.stack.close()
        self.coordinator.close()
        self.metadata.close()
        self.job.close()


@pytest.fixture
def rigs(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(*names: str, **said: Any) -> Rig:
        made.append(Rig(tmp_path, names or ("a", "b"), **said))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


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


def go_back(
    member: Member, transaction: TransactionId, id: JobCheckpointId | None = None, state: State | None = None
) -> Restore:
    """Give the order that takes *member* to *id*."""
    return Restore(
        epoch=1,
        incarnation=member.incarnation,
        transaction=transaction,
        checkpoint=id,
        state=state,
        retained=(),
    )


class Slow(NothingKept):
    """A state whose save ends when the test says so."""

    def __init__(self) -> None:
        self.saving: Future[State] = Future()

    def save(self, attempt: JobCheckpointId) -> Future[State]:
        return self.saving


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


# --- inline, or by location


def test_small_state_is_inline_and_large_state_by_location(tmp_path: Path) -> None:
    """Up to the limit bytes go into the record, beyond it onto the shelf; without a shelf: an error."""
    store = MemoryBlobStore()
    placement = Placement("sink / 1", BlobShelf(store, "job/shelf/"), 100)
    attempt = JobCheckpointId(1, 1)
    small, large = placement.put(attempt, b"x" * 100), placement.put(attempt, b"x" * 101)
    assert isinstance(small, InlineState) and isinstance(large, LocatedState)
    assert placement.get(small) == b"x" * 100 and placement.get(large) == b"x" * 101
    with pytest.raises(ConfigError, match="give it a shelf"):
        Placement("sink", None, 100).put(attempt, b"x" * 101)
    for state in (NoState(), TaskState("1-1")):
        with pytest.raises(StateNotFoundError):
            placement.get(state)
    with pytest.raises(StateNotFoundError, match="no shelf"):
        Placement("sink").get(large)


@pytest.mark.parametrize("harm", ["flipped", "cut", "longer", "gone", "size", "elsewhere", "huge"])
def test_state_by_location_is_verified_and_never_read_elsewhere(harm: str) -> None:
    """Damaged or missing state is an error for the fallback, and a location outside the shelf is never read."""
    store = MemoryBlobStore()
    shelf = BlobShelf(store, "shelf/")
    state = shelf.put("a", JobCheckpointId(1, 1), b"abc")
    key = "shelf/" + state.location
    store.objects["secret"] = store.objects["shelf/secret"] = (b"abc", 0)
    match harm:
        case "flipped":
            store.objects[key] = (b"abd", 0)
        case "cut":
            store.objects[key] = (b"ab", 0)
        case "longer":
            store.objects[key] = (b"abcd", 0)
        case "gone":
            del store.objects[key]
        case "size":
            state = LocatedState(state.location, 2, state.digest)
        case "elsewhere":
            for location in ("../secret", "secret", "a/../../secret", "a/secret", "/etc/passwd", "a/1-1-x/y"):
                with pytest.raises(StateCorruptError, match="not a place"):
                    shelf.get(LocatedState(location, 3, state.digest))
            return
        case "huge":
            state = LocatedState(state.location, 1 << 60, state.digest)
    with pytest.raises((StateCorruptError, StateNotFoundError)) as raised:
        shelf.get(state)
    assert is_damage(raised.value)


def test_what_no_job_checkpoint_names_goes_from_the_shelf(rigs: Callable[..., Rig]) -> None:
    """State by location of superseded and abandoned attempts is removed; what is retained stays."""
    rig = rigs("a", retain=2)
    store, state = MemoryBlobStore(), [b""]
    shelf = BlobShelf(store)
    keeper = BytesKeeper(Placement("a", shelf, 0), lambda: state[0], lambda data: state.__setitem__(0, data or b""))
    rig.join("a", keeper)
    rig.run()
    for number in range(5):
        state[0] = b"state %d" % number
        rig.checkpoint()
    rig.until(lambda: len(store.objects) == 2)
    assert {data for data, _ in store.objects.values()} == {b"state 3", b"state 4"}


# --- the record's place in trouble, and the whole service


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


@contextmanager
def by_hand(name: str, keeper: Keeper, participant: Participant) -> Iterator[tuple[Any, list[Report], Member]]:
    """A member whose coordinator is the test."""
    hub, got = LocalHub(), list[Report]()
    end = hub.coordinator_end()
    end.open(got.append)
    with Member(name, Place(name), keeper, hub.member_end(name), participant) as member:
        yield end, got, member


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
        end.send("a", Start(epoch=1, transaction=transaction))
        member.poll()
        assert member.take(Aligned(JobCheckpointId(1, 1), 0.1, 0, 0))
        assert not member.take(Aligned(JobCheckpointId(1, 1), 0.1, 0, 0))
        assert not member.take(Overflowed(JobCheckpointId(1, 2), 2_000, 1_000))
        assert [r.attempt for r in got if isinstance(r, Saved)] == [JobCheckpointId(1, 1)]
        (declined,) = [r for r in got if isinstance(r, Declined)]
        assert "2,000 bytes" in declined.reason and "limit of 1,000" in declined.reason


# --- what an operator sees


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


# --- the example


KILLS = os.environ.get("MILLPOND_WORDCOUNT_KILLS", "4")
"""How often a process of the word count is killed; 200 at night."""


@pytest.mark.timeout(660 + 20 * int(KILLS))
def test_words_are_counted_exactly_though_processes_are_killed() -> None:
    """The three-stage word count of ``examples/wordcount``, killed here and there: exact, and never back."""
    run = Path(__file__).parents[1] / "examples" / "wordcount" / "run.py"
    done = subprocess.run(
        [sys.executable, str(run), "--kills", KILLS, "--seed", "3", "--interval", "0.2"],
        capture_output=True,
        text=True,
        timeout=600 + 20 * int(KILLS),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "counted exactly" in done.stdout and "none went back" in done.stdout
