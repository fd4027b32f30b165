"""What a job has for its tasks, what a task holds, and how all of it is let go."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from attrs import define, field, frozen

from millpond.checkpoint import Claim
from millpond.commit import Backup, CommitEngine
from millpond.config import JobConfig
from millpond.errors import StoreClosedError, TransientError
from millpond.events import Event, TaskClosed
from millpond.lanes import Lane, Workers
from millpond.local import TaskDirectory
from millpond.patience import Patience
from millpond.restore import RestoreEngine, Source
from millpond.spi import CheckpointManager, JobContext
from millpond.stores.budget import BufferBudget
from millpond.stores.buffer import BufferedStore
from millpond.stores.host import HostDatabase

_SHORT_S = 1.0
"""What is left for the next step of closing when the one before took all the time."""

_STORES_S = 30.0
"""How long stores that were just opened may take to close."""


@frozen(kw_only=True)
class JobParts:
    """
    What a job has for its tasks.

    Attributes:
        config: The configuration.
        context: What plugins may know.
        manager: Keeps the records.
        budget: Bounds the buffers of all stores.
        apply_workers: Serve the tasks' apply lanes.
        commit_workers: Serve the tasks' commit lanes.
        upload_workers: Serve the backends of one commit side by side.
        closing: Ends when the job is being closed: restores are then interrupted.
    """

    config: JobConfig
    context: JobContext
    manager: CheckpointManager
    budget: BufferBudget
    apply_workers: Workers
    commit_workers: Workers
    upload_workers: Workers
    closing: Future[None] = field(factory=Future)


@define(eq=False)
class TaskParts:
    """
    Everything that a task holds and must let go, as far as it has come.

    Attributes:
        patience: Waits for the calls of the opening; one that it gave up may still work in the folder.
        hosted: The host's own databases, by the name of their store.
        images: The restored images of these, for the host to open its databases from.
    """

    job: JobParts
    name: str
    directory: TaskDirectory
    patience: Patience
    claim: Claim | None = None
    backups: list[Backup] = field(factory=list)
    sources: list[Source] = field(factory=list)
    live: Path | None = None
    buffered: dict[str, BufferedStore] = field(factory=dict)
    hosted: dict[str, HostDatabase] = field(factory=dict)
    images: dict[str, Path] = field(factory=dict)
    engine: CommitEngine | None = None
    restoring: RestoreEngine | None = None
    lanes: list[Lane] = field(factory=list)
    _working: list[Future[Any]] = field(factory=list)
    _closed: bool = False

    def close(self, timeout_s: float) -> None:
        """
        Let go of everything, whatever fails on the way; idempotent.

        The folder is let go last, and never while something still works in it: then it is when that has ended, and
        until then the task cannot be opened again here.

        Raises:
            TransientError: Something was still at work when the time was over.
        """
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + timeout_s
        late = self._close_commits(timeout_s) + self._await_restore(deadline)
        late += self.close_stores(max(deadline, time.monotonic() + _SHORT_S))
        late += self._close_managers(max(deadline, time.monotonic() + _SHORT_S))
        if self.live is not None and not late:
            shutil.rmtree(self.live, ignore_errors=True)  # the next opening removes what is left of it
        self._let_go_of_folder(late)
        last = self.engine.last.id if self.engine is not None and self.engine.last is not None else None
        self.tell(TaskClosed(job=self.job.context.job, task=self.name, last=last))
        if late:
            raise TransientError(f"task {self.name!r} is closed, but not all of it ended: {'; '.join(late)}")

    def _close_commits(self, timeout_s: float) -> list[str]:
        if self.engine is None or self.engine.close(timeout_s):
            return []
        at_work = self.engine.in_flight
        what = "the clean-up at the start" if at_work is None else f"commit {at_work}"
        return [f"{what} is still at work after {timeout_s:g} s"]

    def _await_restore(self, deadline: float) -> list[str]:
        self.patience.end()
        working = [] if self.restoring is None else self.restoring.working
        pending = wait(working, _left(deadline)).not_done
        given_up = [call for call in self.patience.working if not call.done()]
        self._working += [*pending, *given_up]
        late = [f"the restore of {len(pending)} stores is still at work"] if pending else []
        return [*late, "a plugin has not come back from a call"] if given_up else late

    def drop_live(self) -> None:
        """Close the stores that were opened so far, and forget them."""
        if late := self.close_stores(time.monotonic() + _STORES_S):
            raise TransientError("; ".join(late))
        self.buffered.clear()
        if self.live is not None:
            shutil.rmtree(self.live, ignore_errors=True)  # the next opening removes what is left of it

    def close_stores(self, deadline: float) -> list[str]:
        """Close the stores; say what did not end in time or failed."""
        failed = []
        for name, store in self.buffered.items():
            try:
                store.close(_left(deadline))
            except Exception as error:  # noqa: BLE001 - told by the caller; the rest has to be closed all the same
                failed.append(f"store {name!r}: {error}")
        return failed

    def _close_managers(self, deadline: float) -> list[str]:
        """Close the managers, side by side since any of them may hang; say what did not end in time or failed."""
        managers = [(backup.name, backup.manager.close) for backup in self.backups]
        managers += [(source.name, source.manager.close) for source in self.sources]
        if not managers:
            return []
        workers = Workers("close", len(managers))
        closing = [(name, workers.submit(close)) for name, close in managers]
        workers.close(_left(deadline))
        self._working += [future for _, future in closing if not future.done()]
        failed = [(name, _failure(future)) for name, future in closing]
        return [f"backend {name!r}: {failure}" for name, failure in failed if failure]

    def _let_go_of_folder(self, late: Sequence[str]) -> None:
        if late:
            with suppress(StoreClosedError):  # the threads of the job have ended
                self._working += [lane.submit(_nothing) for lane in self.lanes]
        _when_all_ended(self._working, self.directory.close)

    def end_in_child(self) -> None:
        """Make every use raise, in a forked child: the threads stayed behind. Takes no lock: the parent may hold it."""
        if self.engine is not None:
            self.engine.over = StoreClosedError(f"task {self.name!r} was opened before a fork: open it in the child")
        for store in self.buffered.values():
            store.end_in_child()

    def tell(self, event: Event) -> None:
        """Tell the job's listener."""
        self.job.context.listener(event)


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _nothing() -> None:
    """Take a turn in a lane, behind all that was there before."""


def _failure(closing: Future[None]) -> str | None:
    """Say what is wrong with a *closing*; None: nothing."""
    if not closing.done():
        return "its close() has not ended"
    error = closing.exception()
    return None if error is None else f"{type(error).__name__}: {error}"


def _when_all_ended(working: Sequence[Future[Any]], then: Callable[[], None]) -> None:
    """Call *then* when all of *working* have ended: right now, or on the thread on which the last one does."""
    left = set(working)
    lock = Lock()

    def ended(one: Future[Any]) -> None:
        with lock:
            left.discard(one)
            last = not left
        if last:
            then()

    for future in working:
        future.add_done_callback(ended)
    if not working:
        then()
