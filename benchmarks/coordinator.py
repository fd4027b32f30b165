"""
What one checkpoint over many tasks costs beside their own, a fact, and an aligned record; in one interleaved run.

    python benchmarks/coordinator.py [--tasks 1000] [--repetitions 5] [--only checkpoint,steps,alignment]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import jobs
from attrs import define
from table import Row, at_most, show

import millpond
from millpond.coordinator import events
from millpond.coordinator.alignment import BarrierAligner
from millpond.coordinator.beat import Beater
from millpond.coordinator.decisions import Send
from millpond.coordinator.ends import LocalHub
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.keepers import TaskKeeper
from millpond.coordinator.machine import CoordinatorMachine
from millpond.coordinator.member import Member
from millpond.coordinator.messages import Alive, Joined, Restored, Saved
from millpond.coordinator.numbered import in_directory
from millpond.coordinator.participant import Participant
from millpond.coordinator.service import Coordinator
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.state import Place, TaskState
from millpond.events import Event
from millpond.lanes import Workers

DEADLINE_S = 600.0


@define
class Counter(Participant):
    """A task with a tiny state; it saves when an attempt begins."""

    keeper: TaskKeeper
    member: Member | None = None
    completed_count: int = 0

    def begin(self, attempt: JobCheckpointId) -> None:
        assert self.member is not None
        self.member.save(attempt)

    def completed(self, attempt: JobCheckpointId) -> None:
        self.completed_count += 1

    def work(self, number: int) -> None:
        task = self.keeper.task
        assert task is not None
        task.store("counts")[b"n"] = b"%d" % number
        task.processed(jobs.SOURCE, number)


@contextmanager
def topology(root: Path, tasks: int) -> Iterator[tuple[Coordinator, list[Counter], list[float]]]:
    """Run a coordinator and *tasks* members in this process; give both, and the seconds of each job checkpoint."""
    hub, took = LocalHub(), list[float]()
    names = [f"task-{number}" for number in range(tasks)]
    settings = CoordinatorSettings(
        job="bench",
        members={name: Place("task", number, tasks) for number, name in enumerate(names)},
        interval_s=1e9,
        resend_s=60.0,
        silence_s=600.0,
        retain=1,
    )

    def listen(event: Event) -> None:
        if isinstance(event, events.JobCheckpointCompleted):
            took.append(event.duration_s)

    with ExitStack() as stack:
        metadata = stack.enter_context(in_directory(root / "records", "bench"))
        coordinator = Coordinator(settings, metadata, hub.coordinator_end, listeners=[listen])
        threading.Thread(target=coordinator.run, daemon=True).start()
        stack.callback(coordinator.close)
        job = stack.enter_context(millpond.open_job(jobs.config(root, ["counts"], engine="memory")))
        beater, workers = Beater(30.0), Workers("bench", 2)
        stack.callback(lambda: workers.close(10))
        stack.callback(beater.close)
        counters = []
        for number, name in enumerate(names):
            counter = Counter(TaskKeeper(job, name))
            counter.member = stack.enter_context(
                Member(
                    name,
                    Place("task", number, tasks),
                    counter.keeper,
                    hub.member_end(name),
                    counter,
                    workers=workers,
                    beater=beater,
                )
            )
            counters.append(counter)
        poll_until(counters, lambda: all(c.member is not None and c.member.may_process for c in counters))
        yield coordinator, counters, took


def poll_until(counters: Sequence[Counter], done: Callable[[], bool]) -> None:
    """Let all members work off their orders until *done*."""
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing within {DEADLINE_S:g} s")
        for counter in counters:
            assert counter.member is not None
            counter.member.poll()
        time.sleep(0.0005)


def all_have_heard(counters: Sequence[Counter], before: int) -> bool:
    """Say whether everybody was told of one job checkpoint more than *before*."""
    return all(counter.completed_count > before for counter in counters)


def measure_checkpoints(root: Path, tasks: int, repetitions: int) -> list[Row]:
    """Compare a job checkpoint with the commits that its tasks would make by themselves, one after another."""
    ours, own, cpu = list[float](), list[float](), list[float]()
    with topology(root, tasks) as (coordinator, counters, took):
        for number in range(1, repetitions + 2):
            for counter in counters:
                counter.work(2 * number)
            before, heard = coordinator.status.busy_s, counters[0].completed_count
            coordinator.request()
            poll_until(counters, partial(all_have_heard, counters, heard))
            cpu.append((coordinator.status.busy_s - before) / tasks * 1e6)
            ours.append(took[-1])
            for counter in counters:
                counter.work(2 * number + 1)
            begun = time.perf_counter()
            for counter in counters:
                assert counter.keeper.task is not None
                counter.keeper.task.commit_now(60)
            own.append(time.perf_counter() - begun)
    return [
        Row(f"job checkpoint, {tasks:,} tasks", ours[1:], own[1:], "s", "<= 2x", at_most(2)),
        Row("coordinator's processor time a task", cpu[1:], [], "us", "<= 100 us", at_most(100)),
    ]


def machine(members: int) -> tuple[CoordinatorMachine, TransactionId, JobCheckpointId]:
    """Give a machine with an attempt in flight."""
    names = {f"m{number}": Place("m", number, members) for number in range(members)}
    settings = CoordinatorSettings(job="bench", members=names, interval_s=1.0, resend_s=1e6, silence_s=1e7)
    made, now = CoordinatorMachine(settings, 1, None, 0.0), 0.0
    orders = [
        decision.order
        for name, place in names.items()
        for decision in made.report(Joined(member=name, incarnation="x", place=place), now)
        if isinstance(decision, Send)
    ]
    transaction = orders[-1].transaction  # type: ignore[union-attr]
    for name in names:
        made.report(Restored(member=name, incarnation="x", transaction=transaction), now)
    made.written(now)
    made.tick(2.0)
    return made, transaction, JobCheckpointId(1, 1)


def measure_steps(repetitions: int) -> list[Row]:
    """Compare a fact's cost with few and with many members."""
    times: dict[int, list[float]] = {10: [], 10_000: []}
    for _ in range(repetitions):
        for members, found in times.items():
            made, transaction, attempt = machine(members)
            said = {"incarnation": "x", "transaction": transaction}
            saved = Saved(member="m0", attempt=attempt, state=TaskState("1-1"), **said)  # type: ignore[arg-type]
            alive = [
                Alive(member=f"m{number % members}", incarnation="x", running=transaction) for number in range(5_000)
            ]
            begun = time.perf_counter()
            for one in alive:
                made.report(saved, 2.0)
                made.report(one, 2.0)
            found.append((time.perf_counter() - begun) / 10_000 * 1e6)
    return [Row("a fact, 10,000 members beside 10", times[10_000], times[10], "us", "<= 2x", at_most(2))]


def measure_alignment(repetitions: int, records: int = 500_000) -> list[Row]:
    """Compare a record through an open channel with one through a bare deque."""
    ours, bare = list[float](), list[float]()
    record = b"x" * 100
    for _ in range(repetitions):
        aligner = BarrierAligner(["a", "b"], 1 << 20)
        put, take = aligner.channel("a").put, aligner.take
        begun = time.perf_counter()
        for _ in range(records):
            put(record, 100)
            take()
        ours.append((time.perf_counter() - begun) / records * 1e6)
        queue: deque[bytes] = deque()
        append, popleft = queue.append, queue.popleft
        begun = time.perf_counter()
        for _ in range(records):
            append(record)
            popleft()
        bare.append((time.perf_counter() - begun) / records * 1e6)
    over = [one - other for one, other in zip(ours, bare, strict=True)]
    return [
        Row("a record through an open channel", ours, bare, "us", "", at_most(0)),
        Row("the same, over a bare deque", over, [], "us", "<= 1 us", at_most(1)),
    ]


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--tasks", type=int, default=1000)
    words.add_argument("--repetitions", type=int, default=5)
    words.add_argument("--only", default="checkpoint,steps,alignment")
    words.add_argument("--directory", type=Path, default=None, help="where the databases are made; on a real disk")
    given = words.parse_args()
    only = given.only.split(",")
    rows: list[Row] = []
    if "checkpoint" in only:
        with tempfile.TemporaryDirectory(dir=given.directory) as folder:
            rows += measure_checkpoints(Path(folder), given.tasks, given.repetitions)
    if "steps" in only:
        rows += measure_steps(given.repetitions)
    if "alignment" in only:
        rows += measure_alignment(given.repetitions)
    show(rows)
    if statistics.median(rows[0].ours) <= 0:
        raise SystemExit("nothing was measured")


if __name__ == "__main__":
    main()
