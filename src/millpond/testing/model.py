"""
A whole job against a dict for each checkpoint: whatever is written, committed, failed, ended and restored, in any
order.

Needs hypothesis. Subclass :class:`JobModel`, say which plugins, and run it as any state machine of hypothesis::

    class MineModel(JobModel):
        engine = "rocksdb"

        @classmethod
        def sections(cls, folder):
            return {
                "checkpoint": {"manager": "directory", "path": folder / "records"},
                "backends": {"main": {"type": "mine", "path": folder / "backup"}},
            }

    TestMine = MineModel.TestCase

A failure is shrunk, and printed as the lines of a script: with ``from your_tests import MineModel`` before them, they
fail again in any Python.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import attrs
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millpond.checkpoint import Checkpoint, CheckpointId, SystemStreamPartition
from millpond.config import JobConfig, load
from millpond.errors import (
    CommitError,
    CommitUnknownError,
    ConfigError,
    FencedError,
    StoreClosedError,
    TransientError,
)
from millpond.events import CommitSettled, Event
from millpond.job import Job
from millpond.lanes import run_into
from millpond.reading import JobReader
from millpond.spi import CheckpointManager
from millpond.task import Task
from millpond.testing.faults import Fault, Faults, FaultyBackend, FaultyCheckpoints
from millpond.testing.lab.leftovers import collect_garbage

SOURCE = SystemStreamPartition("model", "numbers", 0)
TASK = "Partition 0"
STORES = ("a", "a b")

_KEYS = [b"", b"\x00", b"a", b"a\x00", b"ab", b"b", b"\xff", *(b"k%d" % n for n in range(6))]
_PINS = ("kept", "a/b")
_VALUES = [b"", b"1", b"22", b"x" * 60]
_keys, _stores, _bounds = st.sampled_from(_KEYS), st.sampled_from(STORES), st.none() | st.sampled_from(_KEYS)
_faults = st.sampled_from(
    ["upload", "upload, answer lost", "snapshot", "write", "write, answer lost", "write, answer lost, unreadable"]
)
_WAIT_S = 30.0
_HANG_S = 10.0


@frozen
class World:
    """
    What a checkpoint has to give back.

    Attributes:
        offset: Of the last record processed; -1: none.
        stores: Store to its entries.
    """

    offset: int
    stores: Mapping[str, Mapping[bytes, bytes]]


class JobModel(RuleBasedStateMachine):
    """
    One task of one job, its disks, its owners, and what every checkpoint has to give back.

    Attributes:
        engine: The name of the engine of both stores.
        retain: How many checkpoints are kept.
        ephemeral: Its backends die with the process, which is accepted.
        point_in_time: Its backends give every retained and pinned checkpoint back; else the newest alone is asked for.
    """

    engine: ClassVar[str] = "memory"
    ephemeral: ClassVar[bool] = False
    retain: ClassVar[int] = 3
    point_in_time: ClassVar[bool] = True

    @classmethod
    def sections(cls, folder: Path) -> Mapping[str, Any]:
        """Give the sections ``checkpoint`` and ``backends`` of the job; *folder* survives every disk of the task."""
        raise NotImplementedError

    def __init__(self) -> None:
        """Open an empty task."""
        super().__init__()
        self._held = tempfile.TemporaryDirectory(prefix="millpond-model-")
        self._folder = Path(self._held.name)
        self._name = f"model-{uuid4().hex[:12]}"
        self._disk = 0
        self._jobs: list[Job] = []
        self._faults = Faults()
        self._records = Faults()
        self._settled: list[CommitSettled] = []
        self.worlds: dict[CheckpointId, World] = {}
        self.listed: list[CheckpointId] = []
        self.perhaps: World | None = None
        self.offset = -1
        self.stores: dict[str, dict[bytes, bytes]] = {name: {} for name in STORES}
        self.zombie: Task | None = None
        self.pins: dict[str, CheckpointId] = {}
        self.task = self._open(None)

    # ------------------------------------------------------------------------------------------------ the job

    def _config(self) -> JobConfig:
        """Give the configuration, with faults around all plugins."""
        return _with_faults(self._plain_config(), self._faults, self._records)

    def _plain_config(self) -> JobConfig:
        """Give the configuration as an operator's command would have it."""
        sections = self.sections(self._folder / "kept")
        names = list(sections["backends"])
        lists = {"backup": names, "restore": names, "ephemeral": self.ephemeral}
        store = {"engine": self.engine, "key": "bytes", "value": "bytes", **lists}
        return load(
            {
                "job": {"name": self._name, "state_dir": str(self._folder / f"disk-{self._disk}")},
                "checkpoint": {**_texts(sections["checkpoint"]), "retain": self.retain},
                "backends": {name: _texts(section) for name, section in sections["backends"].items()},
                "stores": dict.fromkeys(STORES, store),
                "commit": {"tolerated_failures": 1_000_000},
                "restore": {"attempts": 2, "max_wait": "1ms"},
            },
            {},
        )

    def _open(self, at: CheckpointId | str | None) -> Task:
        job = Job(self._config(), [self._hear])
        self._jobs.append(job)
        return job.open_task(TASK, at=at, timeout_s=_WAIT_S)

    def _hear(self, event: Event) -> None:
        """Note what became of a commit whose outcome was unknown."""
        if isinstance(event, CommitSettled):
            self._settled.append(event)

    def _close(self, timeout_s: float = _WAIT_S) -> None:
        """Close every job without a commit, as a process that ends."""
        self.zombie = None
        while self._jobs:
            with contextlib.suppress(TransientError):
                self._jobs.pop().close(timeout_s)

    def _reopen(self, at: CheckpointId | None = None, pin: str | None = None) -> None:
        """Open the task again, by *pin* if there is one, and see that it is where it has to be."""
        self.task = self._open(pin or at)
        self._settle()
        wanted = self.worlds[at] if at is not None else self._newest()
        found = self._world_of(self.task)
        if at is None and self.perhaps is not None and found == self.perhaps:
            wanted = self.perhaps
            self._published(self.task.last.id if self.task.last else CheckpointId(0, 0), wanted)
        self.perhaps = None
        assert found == wanted, f"restored {found}, not {wanted}"
        self.offset, self.stores = wanted.offset, {name: dict(wanted.stores[name]) for name in STORES}

    def _newest(self) -> World:
        return self.worlds[self.listed[0]] if self.listed else World(-1, {name: {} for name in STORES})

    def _world(self) -> World:
        return World(self.offset, {name: dict(content) for name, content in self.stores.items()})

    @staticmethod
    def _world_of(task: Task) -> World:
        return World(int(task.offsets.get(SOURCE, "-1")), {name: dict(task.store(name).scan()) for name in STORES})

    def _settle(self) -> None:
        """Take what was told of the commit that perhaps happened."""
        while self._settled:
            told = self._settled.pop(0)
            world, self.perhaps = self.perhaps, None
            if told.published and world is not None and told.id not in self.worlds:
                self._list(told.id, world)

    def _published(self, id: CheckpointId, world: World) -> None:
        self._settle()
        self._list(id, world)
        self.perhaps = None

    def _list(self, id: CheckpointId, world: World) -> None:
        """Note that *id* is the newest; what is beyond the retained ones may go from now on."""
        self.worlds[id] = world
        if id not in self.listed:
            self.listed.insert(0, id)
        del self.listed[self.retain :]

    # ------------------------------------------------------------------------------------------------- writing

    @rule(store=_stores, key=_keys, value=st.sampled_from(_VALUES))
    def put(self, store: str, key: bytes, value: bytes) -> None:
        """Put, as a part of the next record's work."""
        self.task.store(store).put(key, value)
        self.stores[store][key] = value
        self._process()

    @rule(store=_stores, at=st.integers(0, len(_KEYS)))
    def delete(self, store: str, at: int) -> None:
        """Delete one of the keys that are there, or a missing one."""
        there = sorted(self.stores[store])
        key = there[at] if at < len(there) else b"missing"
        self.task.store(store).delete(key)
        self.stores[store].pop(key, None)
        self._process()

    def _process(self) -> None:
        self.offset += 1
        self.task.processed(SOURCE, self.offset)

    @rule(store=_stores, start=_bounds, stop=_bounds, reverse=st.booleans())
    def scan(self, store: str, start: bytes | None, stop: bytes | None, reverse: bool) -> None:
        """Scan a part of a store."""
        wanted = sorted(
            (
                (key, value)
                for key, value in self.stores[store].items()
                if (start is None or key >= start) and (stop is None or key < stop)
            ),
            reverse=reverse,
        )
        found = list(self.task.store(store).scan(start, stop, reverse=reverse))
        assert found == wanted, f"scan of {store!r} gives {found}, not {wanted}"

    @invariant()
    def reads_what_was_written(self) -> None:
        """Each key reads as it was written last."""
        for name, content in self.stores.items():
            for key in _KEYS[:3]:
                assert self.task.store(name).get(key) == content.get(key), f"{key!r} in {name!r}"

    # ------------------------------------------------------------------------------------------------ committing

    @rule()
    def commit(self) -> None:
        """Commit, and wait for it."""
        checkpoint = self.task.commit_now(_WAIT_S)
        self._published(checkpoint.id, self._world())

    @rule(fault=_faults)
    def commit_that_fails(self, fault: str) -> None:
        """Let a commit go wrong somewhere: it happened, it did not, or it is said to be unknown."""
        self.put(STORES[0], b"ab", b"%d" % self.offset)
        self._arm(fault)
        world = self._world()
        try:
            checkpoint = self.task.commit_now(_WAIT_S)
        except CommitUnknownError:
            self._settle()
            self.perhaps = self.perhaps or world  # while an earlier one is open, this one was not begun
        except CommitError:
            self._settle()
        else:
            self._published(checkpoint.id, world)
        self._faults.clear()
        self._records.clear()

    def _arm(self, fault: str) -> None:
        verb = fault.partition(",")[0]
        faults = self._records if verb == "write" else self._faults
        faults.add(verb, Fault(TransientError("the model lets this fail"), after="lost" in fault))
        if "unreadable" in fault:
            self._records.add("read_last", Fault(TransientError("the model lets this fail")))
            self._records.add("read", Fault(TransientError("the model lets this fail")))
            self._records.add("ids", Fault(TransientError("the model lets this fail")))

    # -------------------------------------------------------------------------------------------- ends and begins

    @rule(empty=st.booleans())
    def crash(self, empty: bool) -> None:
        """End without a commit; begin again on the same disk or on an empty one."""
        self._close()
        self._disk += empty
        self._reopen()

    @rule(empty=st.booleans(), verb=st.sampled_from(["upload", "cleanup"]))
    def crash_within_a_commit(self, empty: bool, verb: str) -> None:
        """End while a commit hangs, begin again, and let the hanging call go on then: it is a zombie's."""
        self.put(STORES[0], b"a", b"%d" % self.offset)
        self.commit()
        self.commit()  # nothing to do but to wait for the first one's clean-up, which must not be what hangs
        self.put(STORES[1], b"a", b"%d" % self.offset)
        world, future = self._world(), self._hanging_commit(verb)
        if verb == "cleanup":  # it has been published
            self._published(future.result(_WAIT_S).id, world)
        self._close(0.05)
        self._disk += 1  # what still hangs holds the lock of its own disk, as a process that sleeps would
        self._reopen()
        self._faults.release()
        if empty:
            self.crash(empty=True)

    def _hanging_commit(self, verb: str) -> Future[Checkpoint]:
        """Begin a commit on a thread of its own, and wait until it hangs in *verb*."""
        task, future = self.task, Future[Checkpoint]()
        before = self._faults.calls[verb]
        self._faults.hang(verb)
        work = partial(task.commit_now, _WAIT_S)
        threading.Thread(target=run_into, args=(future, work), name="model-commit", daemon=True).start()
        self._faults.await_call(verb, before + 1, _HANG_S)
        return future

    @precondition(lambda self: self.listed)
    @rule(back=st.integers(0, 2), empty=st.booleans())
    def go_back(self, back: int, empty: bool) -> None:
        """Begin again at any checkpoint that is retained; the next commit builds on it."""
        self._close()
        if self.perhaps is not None:
            self._reopen()
            self._close()
        self._disk += empty
        self._reopen(self.listed[min(back, len(self.listed) - 1) if self.point_in_time else 0])

    # ----------------------------------------------------------------------------------------- what an operator does

    @precondition(lambda self: self.listed and self.perhaps is None)
    @rule(name=st.sampled_from(_PINS), back=st.integers(0, 2))
    def pin(self, name: str, back: int) -> None:
        """Keep a checkpoint that is retained under a name; a name that pins another one is refused."""
        at = self.listed[min(back, len(self.listed) - 1)]
        with JobReader(self._plain_config()) as reader:
            if self.pins.get(name, at) != at:
                try:
                    reader.pin(TASK, str(at), name)
                except ConfigError:
                    return
                raise AssertionError(f"the pin {name!r} was moved from {self.pins[name]} to {at}")
            reader.pin(TASK, str(at), name)
        self.pins[name] = at

    @precondition(lambda self: self.pins)
    @rule(at=st.integers(0, len(_PINS)))
    def unpin(self, at: int) -> None:
        """Let a pin go: what it alone kept may be removed from now on."""
        name = sorted(self.pins)[at % len(self.pins)]
        with JobReader(self._plain_config()) as reader:
            found = reader.unpin(TASK, name)
        assert found == self.pins.pop(name), f"the pin {name!r} was of {found}"

    @precondition(lambda self: self.pins and self.point_in_time)
    @rule(at=st.integers(0, len(_PINS)), empty=st.booleans())
    def go_back_to_a_pin(self, at: int, empty: bool) -> None:
        """Begin again at a pinned checkpoint, however long ago it left the retained ones."""
        name = sorted(self.pins)[at % len(self.pins)]
        self._close()
        if self.perhaps is not None:
            self._reopen()
            self._close()
        self._disk += empty
        self._reopen(self.pins[name], name)

    @precondition(lambda self: self.pins or self.listed)
    @rule()
    def look(self) -> None:
        """Read records and pins as an operator does, beside the job: every retained and every pinned one is there."""
        with JobReader(self._plain_config()) as reader:
            listed = {each.checkpoint.id for each in reader.checkpoints(TASK)}
            pins = dict(reader.manager.pins(TASK))
        assert self.pins == pins, f"pins are {pins}, not {self.pins}"
        missing = {*self.listed, *self.pins.values()} - listed
        assert self.perhaps is not None or not missing, f"{sorted(missing)} are not listed"

    @precondition(lambda self: self.listed and self.perhaps is None)
    @rule()
    def collect_garbage(self) -> None:
        """Remove what no checkpoint needs, however young, beside the open task; nothing is committed meanwhile."""
        collect_garbage(self._plain_config())

    @precondition(lambda self: self.zombie is None)
    @rule()
    def second_owner(self) -> None:
        """Let another process take the task over, on a disk of its own, while this one sleeps."""
        self._process()
        self.zombie = self.task
        self._disk += 1
        self._reopen()

    @precondition(lambda self: self.zombie is not None)
    @rule()
    def zombie_wakes(self) -> None:
        """Let the replaced owner commit: it is refused, and harms nothing."""
        assert self.zombie is not None
        try:
            checkpoint = self.zombie.commit_now(_WAIT_S)
        except (FencedError, StoreClosedError):
            self.zombie = None
        else:
            raise AssertionError(f"a replaced owner published {checkpoint.id}")

    @invariant()
    def every_claim_is_of_this_task(self) -> None:
        """The task is ready."""
        assert self.task.health.ready

    def teardown(self) -> None:
        """Restore once more, on an empty disk; then let everything go."""
        try:
            self._faults.release()
            self._close()
            self._disk += 1
            self._reopen()
            for name, id in self.pins.items() if self.point_in_time else ():
                self._close()
                self._reopen(id, name)
        finally:
            self._faults.release()
            self._close()
            self._held.cleanup()


def _texts(section: Mapping[str, object]) -> dict[str, object]:
    """Give *section* with its paths as texts."""
    return {key: str(value) if isinstance(value, Path) else value for key, value in section.items()}


def _with_faults(config: JobConfig, faults: Faults, records: Faults) -> JobConfig:
    """Give *config* with faults around its backends and its manager."""
    inner = config.checkpoint.factory

    class Faulted(FaultyCheckpoints):
        def __init__(self, settings: object, job: Any, versions: Any) -> None:
            super().__init__(inner(settings, job, versions), records)

    manager: type[CheckpointManager] = Faulted
    backends = {
        name: attrs.evolve(backend, factory=FaultyBackend(backend.factory, faults))
        for name, backend in config.backends.items()
    }
    return attrs.evolve(config, checkpoint=attrs.evolve(config.checkpoint, factory=manager), backends=backends)
