"""A coordinator and members in one process, stepped by the test, with real tasks behind them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond import SystemStreamPartition
from millpond.coordinator.beat import Beater
from millpond.coordinator.ends import LocalHub
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.keepers import Keeper, NothingKept, TaskKeeper
from millpond.coordinator.member import Member
from millpond.coordinator.messages import Report, Restore
from millpond.coordinator.numbered import NumberedMetadata, in_directory
from millpond.coordinator.participant import Participant
from millpond.coordinator.service import Coordinator
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.state import Place, State

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


@contextmanager
def by_hand(name: str, keeper: Keeper, participant: Participant) -> Iterator[tuple[Any, list[Report], Member]]:
    """A member whose coordinator is the test."""
    hub, got = LocalHub(), list[Report]()
    end = hub.coordinator_end()
    end.open(got.append)
    with Member(name, Place(name), keeper, hub.member_end(name), participant) as member:
        yield end, got, member
