"""A job made by hand for the tests of the engines: any backends, faults around all of them, a clock that is turned."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

import millpond
from millpond import plugins
from millpond.checkpoint import CheckpointId
from millpond.config.model import BackendConfig, CheckpointConfig, CommitConfig, JobConfig, RestoreConfig, StoreConfig
from millpond.events import Event, StoreRestored
from millpond.job import Job
from millpond.points import arm
from millpond.spi import CheckpointManager, StateBackendFactory
from millpond.task import Task
from millpond.testing.faults import Faults, FaultyBackend, FaultyCheckpoints

SOURCE = millpond.SystemStreamPartition("test", "numbers", 0)
TASK = "Partition 0"


@define
class TurnedClock:
    """The machine's clock, plus what a test has turned it by."""

    wall_s: float = 0.0
    ahead_s: float = 0.0

    def turn(self, seconds: float) -> None:
        """Let *seconds* pass at once."""
        self.wall_s += seconds
        self.ahead_s += seconds

    def millis(self) -> int:
        return int((time.time() + self.wall_s) * 1000)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


@frozen
class Section:
    """A backend's section: its plugin's name, and whether it is required."""

    type: str = "memory"
    required: bool = True


@define
class Rig:
    """
    A job's configuration, the faults in it, and what happened.

    Attributes:
        root: Where everything lies.
        clock: The job's.
        faults: The faults of each backend.
        records: The faults of the checkpoint manager.
        events: What the listener was told.
    """

    root: Path
    clock: TurnedClock = field(factory=TurnedClock)
    faults: dict[str, Faults] = field(factory=dict)
    records: Faults = field(factory=Faults)
    events: list[Event] = field(factory=list)
    listeners: list[Callable[[Event], None]] = field(factory=list)
    name: str = field(factory=lambda: f"job-{uuid.uuid4().hex[:12]}")
    sections: dict[str, Section] = field(factory=lambda: {"main": Section()})
    stores: tuple[str, ...] = ("a", "b")
    engine: str = "memory"
    value: str = "json"
    retain: int = 1
    commit: dict[str, Any] = field(factory=dict)
    restore: dict[str, Any] = field(factory=dict)
    job: dict[str, Any] = field(factory=dict)
    changes: dict[str, dict[str, Any]] = field(factory=dict)
    state: str = "state"
    factories: dict[str, StateBackendFactory] = field(factory=dict)
    manager: str = "directory"
    _opened: list[Job] = field(factory=list)

    def fault(self, backend: str = "main") -> Faults:
        """Give the faults of *backend*."""
        return self.faults.setdefault(backend, Faults())

    def config(self) -> JobConfig:
        """Give the configuration as it is now."""
        return JobConfig(
            name=self.name,
            state_dir=self.root / self.state,
            checkpoint=CheckpointConfig(
                manager=self.manager, factory=self._manager(), settings=self._settings(), retain=self.retain
            ),
            backends={name: self._backend(name, section) for name, section in self.sections.items()},
            stores={name: self._store(name) for name in self.stores},
            commit=CommitConfig(**{"interval": None, **self.commit}),
            restore=RestoreConfig(**{"attempts": 2, "max_wait": timedelta(milliseconds=1), **self.restore}),
            **self.job,
        )

    def _settings(self) -> object:
        kind = plugins.checkpoints_class(self.manager).config_class
        return kind(path=self.root / "records") if self.manager == "directory" else kind()

    def _manager(self) -> type[CheckpointManager]:
        inner, faults = plugins.checkpoints_class(self.manager), self.records

        class Faulted(FaultyCheckpoints):
            def __init__(self, config: object, job: Any, versions: Any) -> None:
                super().__init__(inner(config, job, versions), faults)

        return Faulted

    def _backend(self, name: str, section: Section) -> BackendConfig:
        if name not in self.factories:
            kind = plugins.backend_class(section.type)
            settings = {"path": self.root / f"backup {name}"} if section.type == "rocksdb-local" else {}
            self.factories[name] = FaultyBackend(kind(name, kind.config_class(**settings)), self.fault(name))
        return BackendConfig(name=name, type=section.type, factory=self.factories[name], required=section.required)

    def _store(self, name: str) -> StoreConfig:
        engine = plugins.engine_class(self.changes.get(name, {}).get("engine", self.engine))
        names = tuple(self.sections)
        wanted: dict[str, Any] = {
            "name": name,
            "engine": self.engine,
            "engine_class": engine,
            "key": "str",
            "value": self.value,
            "backup": names,
            "restore": names,
            "settings": engine.config_class(),
        }
        return StoreConfig(**{**wanted, **self.changes.get(name, {})})

    def open_job(self) -> Job:
        """Open a job that is closed at the end of the test."""
        job = Job(self.config(), [self.events.append, *self.listeners])
        self._opened.append(job)
        return job

    def open(self, **arguments: Any) -> Task:
        """Open the task in a new job."""
        return self.open_job().open_task(TASK, **arguments)

    def close(self) -> None:
        """Close all jobs, the last one first."""
        while self._opened:
            with contextlib.suppress(millpond.TransientError):
                self._opened.pop().close(5)

    def crash(self) -> None:
        """End all jobs without a commit."""
        self.close()

    def restored(self, **arguments: Any) -> tuple[int, dict[str, dict[str, Any]]]:
        """Close everything, and give the offset and the stores as a new opening finds them."""
        self.close()
        task = self.open(**arguments)
        state = offset_of(task), {name: dict(task.store(name).scan()) for name in self.stores}
        self.close()
        return state

    def restored_when_free(self) -> tuple[int, dict[str, dict[str, Any]]]:
        """Like :meth:`restored`, as soon as what hung has let the task's folder go."""
        for _ in range(300):
            try:
                return self.restored()
            except millpond.TransientError:
                threading.Event().wait(0.05)
        raise AssertionError("the folder was not let go")

    def told(self, *kinds: type[Event]) -> list[Any]:
        """Give the events of *kinds*, in order."""
        return [event for event in self.events if isinstance(event, kinds)]


def offset_of(task: Task) -> int:
    """Give the offset that the task has processed last; -1: none."""
    return int(task.offsets.get(SOURCE, -1))


def idle(task: Task) -> Task:
    """Wait until no commit is in flight: one is until its clean-up has ended."""
    task._engine._await_idle(time.monotonic() + 30)
    return task


def write(task: Task, number: int, *stores: str) -> None:
    """Do what the record *number* says: to *stores*, or to all."""
    for name in stores or tuple(task._stores):
        task.store(name)["last"] = number
        task.store(name)[f"k{number:03d}"] = number
    task.processed(SOURCE, number)


def expected(until: int, *stores: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Give offset and *stores* (default a and b) after the records from 0 to *until*."""
    content: dict[str, Any] = {f"k{number:03d}": number for number in range(until + 1)}
    if until >= 0:
        content["last"] = until
    return until, {name: dict(content) for name in stores or ("a", "b")}


def state_of(task: Task) -> Mapping[str, dict[str, Any]]:
    """Give all entries of all stores."""
    return {name: dict(store.scan()) for name, store in task._stores.items()}


@contextlib.contextmanager
def at_points(hook: Any) -> Iterator[None]:
    """Call *hook* at each named step of the block."""
    arm(hook)
    try:
        yield
    finally:
        arm(None)


def committed(rig: Rig, until: int, *stores: str) -> list[CheckpointId]:
    """Open the task, commit each record up to *until*, and close everything; give the new ids."""
    task = rig.open()
    ids = []
    for number in range(offset_of(task) + 1, until + 1):
        write(task, number, *stores)
        ids.append(idle(task).commit_now(30).id)
    idle(task)
    rig.close()
    rig.events.clear()
    return ids


def images(root: Path) -> list[Path]:
    """Give the folders of all images below *root*."""
    return sorted(path.parent for path in root.rglob("MANIFEST") if not path.parent.name.startswith("live-"))


def flip(path: Path) -> None:
    """Flip a byte in the middle of *path*, leaving its size and its other links alone."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.unlink()
    path.write_bytes(data)


def damage(root: Path, store: str = "*") -> None:
    """Flip a byte in every data file of every image of *store* below *root*."""
    found = [path for path in root.rglob(f"{store}/*/data.changes") if "live-" not in str(path)]
    assert found
    for path in found:
        flip(path)


def sources(rig: Rig) -> dict[str, str]:
    """Give where each store came from."""
    return {event.store: event.source for event in rig.told(StoreRestored)}
