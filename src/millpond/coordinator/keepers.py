"""
What a member's state is, and how it is saved and brought back: a Millpond task, bytes of the host's own, or nothing.

A task's part of a job checkpoint is one of its own checkpoints, kept by a pin ``job-<attempt>`` until the coordinator
says that no retained job checkpoint names it. The pin ``job-base`` keeps the state before the first one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.shelf import Placement
from millpond.coordinator.state import NoState, State, TaskState
from millpond.errors import ConfigError, FormatError, StateCorruptError, StateNotFoundError, StoreClosedError
from millpond.job import Job
from millpond.lanes import run_into
from millpond.spi import Checkpointable
from millpond.task import Task

BASE_PIN = "job-base"
PIN_PREFIX = "job-"


class Keeper(ABC):
    """Saves and restores one member. The processing thread calls, but for what ``save`` leaves to others."""

    @abstractmethod
    def save(self, attempt: JobCheckpointId) -> Future[State]:
        """
        Freeze the state as it is now, and make it durable; the Future gives where it is. Does not wait for long.

        Raises:
            MillpondError: Nothing can be saved for this attempt.
        """

    @abstractmethod
    def restore(self, checkpoint: JobCheckpointId | None, state: State | None) -> None:
        """
        Bring *state* back; None: the state before the first job checkpoint.

        Raises:
            StateNotFoundError, StateCorruptError, FormatError: It is gone or damaged; an older one may be there.
            FencedError: Somebody else is this member now.
            MillpondError: Anything else; trying again may help.
        """

    def keep(self, retained: Collection[JobCheckpointId], newest: JobCheckpointId) -> None:
        """Let go of what was saved for attempts before *newest* that are not *retained*; on a worker."""
        return None

    def close(self) -> None:
        """Let go of what is open; idempotent. Nothing is saved."""
        return None


class NothingKept(Keeper):
    """A member without state, which counts all the same."""

    def save(self, attempt: JobCheckpointId) -> Future[State]:
        """Save nothing."""
        return _done(NoState())

    def restore(self, checkpoint: JobCheckpointId | None, state: State | None) -> None:
        """Restore nothing."""
        if state is not None and not isinstance(state, NoState):
            raise ConfigError("this member had state when the job checkpoint was made, and keeps none now")


class BytesKeeper(Keeper):
    """A member whose host gives its state as bytes: inline in the record, or on a shelf."""

    def __init__(self, placement: Placement, freeze: Callable[[], bytes], thaw: Callable[[bytes | None], None]) -> None:
        """*freeze* gives the state; *thaw* takes it back, None for the state before the first job checkpoint."""
        self._placement = placement
        self._freeze = freeze
        self._thaw = thaw

    def save(self, attempt: JobCheckpointId) -> Future[State]:
        """Freeze now; what does not fit into the record is put onto the shelf before this returns."""
        return _done(self._placement.put(attempt, self._freeze()))

    def restore(self, checkpoint: JobCheckpointId | None, state: State | None) -> None:
        """Fetch, verify, and give it to the host."""
        self._thaw(None if state is None else self._placement.get(state))

    def keep(self, retained: Collection[JobCheckpointId], newest: JobCheckpointId) -> None:
        """Clean this member's part of the shelf."""
        self._placement.clean(retained, newest)


class TaskKeeper(Keeper):
    """
    A member whose state is a Millpond task, which nobody else commits.

    Attributes:
        task: The open task; None before the first restore.
    """

    def __init__(
        self,
        job: Job,
        name: str,
        *,
        adopt: bool = False,
        databases: Mapping[str, Checkpointable] | None = None,
        settle_s: float = 5.0,
        open_timeout_s: float | None = None,
    ) -> None:
        """
        Prepare; the first restore opens the task.

        Args:
            job: The open job.
            name: The task's name.
            adopt: A task that has checkpoints from a time without a coordinator begins from its last one.
            databases: As for ``Job.open_task``.
            settle_s: How long a save waits for the commit of an earlier attempt to end.
            open_timeout_s: How long opening the task may take.
        """
        self.task: Task | None = None
        self._job = job
        self._name = name
        self._adopt = adopt
        self._databases = databases
        self._settle_s = settle_s
        self._open_timeout_s = open_timeout_s

    def save(self, attempt: JobCheckpointId) -> Future[State]:
        """Commit, and pin the checkpoint before anybody hears of it."""
        task = self.task
        if task is None:
            raise StoreClosedError(f"task {self._name!r} is not open: it was not restored yet")
        task.settle(self._settle_s)  # else the commit would be an earlier attempt's, without what came since
        saved: Future[State] = Future()
        task.commit().add_done_callback(lambda commit: self._committed(commit, attempt, saved))
        return saved

    def _committed(self, commit: Future[Checkpoint], attempt: JobCheckpointId, saved: Future[State]) -> None:
        run_into(saved, lambda: self._pinned(commit.result(), attempt))

    def _pinned(self, checkpoint: Checkpoint, attempt: JobCheckpointId) -> State:
        self._job.checkpoints.pin(self._name, checkpoint.id, f"{PIN_PREFIX}{attempt}")
        return TaskState(str(checkpoint.id))

    def restore(self, checkpoint: JobCheckpointId | None, state: State | None) -> None:
        """Close the task, and open it where *state* says."""
        self.close()
        if state is None:
            self.task = self._open_at_base()
            return
        if not isinstance(state, TaskState):
            raise StateNotFoundError(
                f"job checkpoint {checkpoint} has no checkpoint of a task for {self._name!r}: was it another kind of "
                f"member?"
            )
        try:
            id = CheckpointId.parse(state.checkpoint)
        except ValueError as error:
            raise StateCorruptError(f"job checkpoint {checkpoint} names {state.checkpoint!r}: {error}") from error
        self.task = self._open(id)

    def _open(self, at: CheckpointId | str | None) -> Task:
        return self._job.open_task(self._name, at=at, timeout_s=self._open_timeout_s, databases=self._databases or {})

    def _open_at_base(self) -> Task:
        """Open the task as it was before the first job checkpoint, and see to it that this can be done again."""
        if BASE_PIN in self._job.checkpoints.pins(self._name):
            return self._open(BASE_PIN)
        task = self._open(None)
        try:
            last = task.last
            if last is not None and not self._adopt and not self._holds_nothing(task, last):
                raise ConfigError(
                    f"task {self._name!r} has checkpoints of its own ({last.id}) and none of the whole job: begin with "
                    f"an empty place for its records, or adopt its last one"
                )
            base = last if last is not None else task.commit_now()
            self._job.checkpoints.pin(self._name, base.id, BASE_PIN)
        except BaseException:
            task.close()
            raise
        return task

    def _holds_nothing(self, task: Task, last: Checkpoint) -> bool:
        """Whether *last* is the empty first checkpoint of a start that ended before it could pin it."""
        if last.parent is not None or last.offsets or self._databases:
            return False
        return all(next(iter(task.store(name).scan()), None) is None for name in self._job.config.stores)

    def keep(self, retained: Collection[JobCheckpointId], newest: JobCheckpointId) -> None:
        """Remove the pins that no retained job checkpoint needs; the next commit's clean-up removes the data."""
        for name in self._job.checkpoints.pins(self._name):
            attempt = _attempt_of(name)
            if attempt is not None and attempt < newest and attempt not in retained:
                self._job.checkpoints.unpin(self._name, name)

    def close(self) -> None:
        """Close the task; commits nothing."""
        task, self.task = self.task, None
        if task is not None:
            task.close()


def is_damage(error: BaseException) -> bool:
    """Whether *error*, of a restore, says that only another job checkpoint can help."""
    return isinstance(error, StateNotFoundError | StateCorruptError | FormatError)


def _attempt_of(pin: str) -> JobCheckpointId | None:
    try:
        return JobCheckpointId.parse(pin.removeprefix(PIN_PREFIX)) if pin.startswith(PIN_PREFIX) else None
    except ValueError:
        return None


def _done(state: State) -> Future[State]:
    future: Future[State] = Future()
    future.set_result(state)
    return future
