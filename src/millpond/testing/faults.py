"""
Fault wrappers for any backend and any checkpoint manager.

A :class:`Faults` says what happens at which call of which verb: fail before the effect, fail after it (a lost answer),
give something else, or wait for an event. The wrapped plugin is a real one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from attrs import define, field, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Markers
from millpond.errors import TransientError
from millpond.spi import (
    SPI_VERSION,
    CheckpointManager,
    JobContext,
    RestoreTarget,
    Snapshot,
    StateBackendAdmin,
    StateBackendFactory,
    StoreSpec,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)

T = TypeVar("T")


@frozen
class Fault:
    """
    What goes wrong at one call.

    Attributes:
        error: Raised, unless it is None.
        after: The call has its effect first: its answer is lost.
        gate: Waited for before anything else, at most a minute.
        instead: Given in place of the answer.
    """

    error: BaseException | None = None
    after: bool = False
    gate: threading.Event | None = None
    instead: Callable[[Any], Any] | None = None

    def run(self, call: Callable[[], T]) -> T:
        """Do *call* as this fault has it."""
        if self.gate is not None and not self.gate.wait(60):
            raise TransientError("the gate of a fault stayed shut for a minute")
        if self.error is not None and not self.after:
            raise self.error
        answer = call()
        if self.error is not None:
            raise self.error
        return answer if self.instead is None else self.instead(answer)


@define
class Faults:
    """
    The faults that wait for their call, by verb, and what was called.

    Attributes:
        calls: How often each verb was called.
        arguments: For each verb, the argument that identifies each call.
    """

    calls: Counter[str] = field(factory=Counter)
    arguments: dict[str, list[Any]] = field(factory=dict)
    _waiting: dict[str, list[Fault | None]] = field(factory=dict)
    _gates: list[threading.Event] = field(factory=list)
    _lock: threading.RLock = field(factory=threading.RLock)
    _called: threading.Condition = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._called = threading.Condition(self._lock)

    def add(self, verb: str, *faults: Fault | None) -> None:
        """Let the next calls of *verb* go wrong as *faults* have it, one each; None: goes well."""
        with self._lock:
            self._waiting.setdefault(verb, []).extend(faults)

    def clear(self) -> None:
        """Forget the faults that still wait for their call."""
        with self._lock:
            self._waiting.clear()

    def hang(self, verb: str) -> threading.Event:
        """Let the next call of *verb* wait; give what lets it go on."""
        gate = threading.Event()
        self.add(verb, Fault(gate=gate))
        self._gates.append(gate)
        return gate

    def release(self) -> None:
        """Forget the faults, and let all calls that wait at :meth:`hang` go on."""
        self.clear()
        for gate in self._gates:
            gate.set()

    def await_call(self, verb: str, count: int = 1, timeout_s: float = 30.0) -> None:
        """
        Wait until *verb* was called *count* times in all, at most *timeout_s* seconds.

        Raises:
            TransientError: It was not.
        """
        with self._called:
            if not self._called.wait_for(lambda: self.calls[verb] >= count, timeout_s):
                raise TransientError(f"{verb} was called {self.calls[verb]} times in {timeout_s:g} s, not {count}")

    def around(self, verb: str, call: Callable[[], T], argument: Any = None) -> T:
        """Do *call*, the next of *verb*."""
        with self._called:
            self.calls[verb] += 1
            self._called.notify_all()
            self.arguments.setdefault(verb, []).append(argument)
            waiting = self._waiting.get(verb)
            fault = waiting.pop(0) if waiting else None
        return call() if fault is None else fault.run(call)


class FaultyBackup(TaskBackupManager):
    """A backup manager whose calls may go wrong."""

    def __init__(self, inner: TaskBackupManager, faults: Faults) -> None:
        """Wrap *inner*."""
        self._inner, self._faults = inner, faults

    def init(self, last: Checkpoint | None) -> Collection[str]:
        """See the SPI."""
        return self._faults.around("init", lambda: self._inner.init(last), last)

    def snapshot(self, id: CheckpointId) -> Markers:
        """See the SPI."""
        return self._faults.around("snapshot", lambda: self._inner.snapshot(id), id)

    def upload(self, snapshot: Snapshot, markers: Markers) -> Markers:
        """See the SPI."""
        return self._faults.around("upload", lambda: self._inner.upload(snapshot, markers), snapshot)

    def abandon(self, id: CheckpointId) -> None:
        """See the SPI."""
        self._faults.around("abandon", lambda: self._inner.abandon(id), id)

    def cleanup(self, retained: Sequence[Checkpoint]) -> None:
        """See the SPI."""
        self._faults.around("cleanup", lambda: self._inner.cleanup(retained), [c.id for c in retained])

    def close(self) -> None:
        """See the SPI."""
        self._faults.around("close", self._inner.close)


class FaultyRestore(TaskRestoreManager):
    """A restore manager whose calls may go wrong."""

    def __init__(self, inner: TaskRestoreManager, faults: Faults) -> None:
        """Wrap *inner*."""
        self._inner, self._faults = inner, faults

    def init(self, checkpoint: Checkpoint) -> None:
        """See the SPI; the verb is ``restore_init``, since a backup manager has an ``init`` of its own."""
        self._faults.around("restore_init", lambda: self._inner.init(checkpoint), checkpoint.id)

    def v1_markers(self, checkpoint: Checkpoint) -> Markers:
        """See the SPI."""
        return self._faults.around("v1_markers", lambda: self._inner.v1_markers(checkpoint), checkpoint.id)

    def restore(self, target: RestoreTarget) -> None:
        """See the SPI."""
        self._faults.around("restore", lambda: self._inner.restore(target), target.store)

    def close(self) -> None:
        """See the SPI."""
        self._inner.close()


class FaultyBackend(StateBackendFactory):
    """A backend whose managers' calls may go wrong; it has the wrapped one's name, key and capabilities."""

    spi_version: ClassVar[tuple[int, int]] = SPI_VERSION
    config_class: ClassVar[type] = dict

    def __init__(self, inner: StateBackendFactory, faults: Faults) -> None:
        """Wrap *inner*."""
        super().__init__(inner.name, inner.config)
        self._inner, self._faults = inner, faults
        self.capabilities = inner.capabilities

    def backup_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskBackupManager:
        """See the SPI."""
        made = self._faults.around("backup_manager", lambda: self._inner.backup_manager(task, stores), task.task)
        return FaultyBackup(made, self._faults)

    def restore_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskRestoreManager:
        """See the SPI."""
        made = self._faults.around("restore_manager", lambda: self._inner.restore_manager(task, stores), task.task)
        return FaultyRestore(made, self._faults)

    def admin(self, job: JobContext, stores: Sequence[StoreSpec]) -> StateBackendAdmin:
        """See the SPI."""
        return self._inner.admin(job, stores)


class FaultyCheckpoints(CheckpointManager):
    """A checkpoint manager whose calls may go wrong."""

    spi_version: ClassVar[tuple[int, int]] = SPI_VERSION
    config_class: ClassVar[type] = dict

    def __init__(self, inner: CheckpointManager, faults: Faults) -> None:
        """Wrap *inner*."""
        super().__init__(inner.config, inner.job, inner.versions)
        self._inner, self._faults = inner, faults
        self.capabilities = inner.capabilities

    def create_resources(self) -> None:
        """See the SPI."""
        self._faults.around("create_resources", self._inner.create_resources)

    def validate_resources(self) -> None:
        """See the SPI."""
        self._faults.around("validate_resources", self._inner.validate_resources)

    def tasks(self) -> Sequence[str]:
        """See the SPI."""
        return self._inner.tasks()

    def claim(self, task: str) -> Claim:
        """See the SPI."""
        return self._faults.around("claim", lambda: self._inner.claim(task), task)

    def read_last(self, task: str) -> Checkpoint | None:
        """See the SPI."""
        return self._faults.around("read_last", lambda: self._inner.read_last(task), task)

    def read(self, task: str, id: CheckpointId) -> Checkpoint:
        """See the SPI."""
        return self._faults.around("read", lambda: self._inner.read(task, id), id)

    def ids(self, task: str) -> Sequence[CheckpointId]:
        """See the SPI."""
        return self._faults.around("ids", lambda: self._inner.ids(task), task)

    def write(self, claim: Claim, checkpoint: Checkpoint, *, after: CheckpointId | None) -> None:
        """See the SPI."""
        self._faults.around("write", lambda: self._inner.write(claim, checkpoint, after=after), checkpoint)

    def delete(self, claim: Claim, ids: Collection[CheckpointId]) -> None:
        """See the SPI."""
        self._faults.around("delete", lambda: self._inner.delete(claim, ids), ids)

    def pin(self, task: str, id: CheckpointId, name: str) -> None:
        """See the SPI."""
        self._faults.around("pin", lambda: self._inner.pin(task, id, name), name)

    def unpin(self, task: str, name: str) -> None:
        """See the SPI."""
        self._inner.unpin(task, name)

    def pins(self, task: str) -> Mapping[str, CheckpointId]:
        """See the SPI."""
        return self._faults.around("pins", lambda: self._inner.pins(task), task)

    def close(self) -> None:
        """See the SPI."""
        self._faults.around("close", self._inner.close)
