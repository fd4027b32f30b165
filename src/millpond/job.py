"""A job, as a host holds it: opened from a configuration, it opens tasks."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Self

from millpond.checkpoint import CheckpointId
from millpond.clock import SystemClock
from millpond.config import JobConfig, load
from millpond.errors import ConfigError, StoreClosedError, TransientError
from millpond.events import Event, Listeners, StateNotDurable
from millpond.lanes import TransferPool, Workers
from millpond.opening import JobParts, TaskParts, open_task
from millpond.patience import Patience
from millpond.progress import LogListener
from millpond.spi import Checkpointable, CheckpointManager, JobContext, StateBackendAdmin
from millpond.stores.budget import BufferBudget
from millpond.task import Task

_CLOSERS = 32
_GRACE_S = 3.0
"""What a closing that takes all of its time may need beyond it, to say what did not end."""

_jobs: weakref.WeakSet[Job] = weakref.WeakSet()


def open_job(
    config: JobConfig | Mapping[str, object] | str | os.PathLike[str],
    *,
    listeners: Iterable[Callable[[Event], None]] = (),
) -> Job:
    """
    Open a job: check its configuration and start its threads; no I/O besides.

    Args:
        config: A TOML or properties file, a mapping of the same shape, or what ``millpond.config.load`` gave.
        listeners: Told of every event, beside the log.

    Raises:
        ConfigError: Everything that is wrong with the configuration, a line each.
    """
    return Job(load(config), listeners)


class Job:
    """A job's shared parts: threads, buffers' budget, checkpoint manager. A context manager; any thread."""

    def __init__(self, config: JobConfig, listeners: Iterable[Callable[[Event], None]] = ()) -> None:
        """Start the job's threads."""
        self.config = config
        self._transfers = TransferPool(config.transfer_threads, config.transfer_memory)
        context = JobContext(
            job=config.name,
            job_id=config.id,
            layout=config.layout,
            listener=Listeners.of([LogListener(), *listeners]),
            clock=SystemClock(),
            transfers=self._transfers,
        )
        self._parts = JobParts(
            config=config,
            context=context,
            manager=self._manager(context),
            budget=BufferBudget(config.buffer_memory),
            apply_workers=Workers("apply", 2),
            commit_workers=Workers("commit", 2),
            upload_workers=Workers("upload", max(1, len(config.backends))),
        )
        self._lock = threading.Lock()
        self._preparing = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._prepared = False
        self._closed = False
        self._openings: set[Patience] = set()
        self._tasks: dict[str, tuple[Task, TaskParts]] = {}
        _jobs.add(self)

    def _manager(self, context: JobContext) -> CheckpointManager:
        checkpoint = self.config.checkpoint
        try:
            return checkpoint.factory(checkpoint.settings, context, checkpoint.versions)
        except BaseException:
            self._transfers.close(0)
            raise

    @property
    def checkpoints(self) -> CheckpointManager:
        """The job's checkpoint manager, which the job closes: to look at records, and to pin what has to stay."""
        return self._parts.manager

    # ----------------------------------------------------------------------------------------------- opening

    def prepare(self) -> None:
        """
        Make what the manager and the backends need, and try what they rely on; idempotent. ``open_task`` sees to it.

        Raises:
            ConfigError: Something does not hold; the message says what to do.
        """
        self._raise_if_closed()
        with self._preparing:
            if not self._prepared:
                self._prepare()
                self._prepared = True

    def _prepare(self) -> None:
        parts = self._parts
        parts.manager.create_resources()
        parts.manager.validate_resources()
        if not parts.manager.capabilities.durable:
            self._tell_not_durable(f"checkpoint manager {self.config.checkpoint.manager!r}")
        for name, admin in self._admins().items():
            admin.create_resources()
            admin.validate_resources()
            if not self.config.backends[name].factory.capabilities.durable:
                self._tell_not_durable(f"backend {name!r}")

    def _admins(self) -> dict[str, StateBackendAdmin]:
        stores = self.config.stores.values()
        return {
            backend.name: backend.factory.admin(
                self._parts.context,
                [store.spec for store in stores if backend.name in (*store.backup, *store.restore)],
            )
            for backend in self.config.backends.values()
        }

    def _tell_not_durable(self, name: str) -> None:
        self._parts.context.listener(StateNotDurable(job=self.config.name, name=name))

    def open_task(
        self,
        name: str,
        *,
        at: CheckpointId | str | None = None,
        timeout_s: float | None = None,
        databases: Mapping[str, Checkpointable] | None = None,
        given_up: Future[None] | None = None,
    ) -> Task:
        """
        Claim the task *name*, restore it and give it ready, or raise.

        Args:
            name: One of ``job.tasks``, where the configuration states them.
            at: An older checkpoint to go back to: its id, or the name of a pin. The next commit builds on it.
            timeout_s: How long the opening may take, in seconds, whatever a plugin hangs in; None: as long as it takes.
                What hangs keeps the task's folder taken until it comes back.
            databases: The host's own databases, by the name of a store with ``engine = "host"``: each takes part in
                every commit by its ``checkpoint``, called on the thread that calls ``commit``. Open them from
                ``Task.image`` when this has returned.
            given_up: Ends when the host does not want the task any more, e.g. since it was handed to another process
                in the middle of the restore: this call then raises StoreClosedError at once.

        Raises:
            ConfigError: The configuration does not fit the task or its checkpoint.
            TransientError: Another process owns the task's folder, or something did not answer; try again.
            StateNotFoundError, StateCorruptError: No backend can give the checkpoint back. Never an empty store.
            FormatError: The checkpoint's record cannot be read.
        """
        if self.config.tasks is not None and name not in self.config.tasks:
            raise ConfigError(f"job {self.config.name!r} has no task {name!r}; job.tasks names {self.config.tasks}")
        unwanted = _either(self._parts.closing, given_up)
        patience = Patience(self._parts.context.clock, timeout_s, unwanted, f"the opening of task {name!r}")
        try:
            self._begin_opening(patience)
            patience.ask(self.prepare, "the job is prepared")
            return open_task(self._parts, name, at, patience, databases or {}, self._keep)
        finally:
            self._openings.discard(patience)  # first, and by one call: Ctrl-C may end this block at any later one
            patience.end()
            with self._changed:
                self._changed.notify_all()

    def _begin_opening(self, patience: Patience) -> None:
        with self._changed:
            self._raise_if_closed()
            self._openings.add(patience)

    def _keep(self, task: Task, parts: TaskParts) -> None:
        """Keep *task* to close it with the job, unless that was closed meanwhile."""
        with self._changed:
            self._raise_if_closed()
            self._tasks[task.name] = (task, parts)

    # ------------------------------------------------------------------------------------------------- closing

    def close(self, timeout_s: float = 30.0) -> None:
        """
        Close all tasks, in parallel, then the threads; one deadline for all. Commits nothing. Idempotent, any thread.

        A task that another thread is opening is not opened: ``open_task`` raises StoreClosedError there.

        Raises:
            TransientError: Something was still at work when the time was over.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            if self._closed:
                return
            self._closed = True
            tasks = [task for task, _ in self._tasks.values()]
        self._parts.closing.set_result(None)
        late = _close_all({f"task {task.name!r}": task.close for task in tasks}, deadline)
        late += self._await_openings(deadline)
        late += _close_all({"the checkpoint manager": lambda _: self._parts.manager.close()}, deadline)
        pools: dict[str, Workers | TransferPool] = {
            "apply": self._parts.apply_workers,
            "commit": self._parts.commit_workers,
            "upload": self._parts.upload_workers,
            "transfer": self._transfers,
        }
        late += [f"{name} threads" for name, pool in pools.items() if not pool.close(_left(deadline))]
        if late:
            raise TransientError(f"job {self.config.name!r} is closed, but not all of it ended: {'; '.join(late)}")

    def _await_openings(self, deadline: float) -> list[str]:
        with self._changed:
            ended = self._changed.wait_for(lambda: not self._openings, max(0.0, deadline - time.monotonic()))
        return [] if ended else [f"{len(self._openings)} tasks are still being opened"]

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise StoreClosedError(f"job {self.config.name!r} is closed")

    def __enter__(self) -> Self:
        """Give the job itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; commits nothing."""
        self.close()

    def end_in_child(self) -> None:
        """Make every further use raise: the threads of this job stayed behind in the parent."""
        self._closed = True
        self._lock = threading.Lock()  # a thread that stayed behind may hold it
        self._changed = threading.Condition(self._lock)
        self._preparing = threading.Lock()
        for task, parts in self._tasks.values():
            task.end_in_child()
            parts.end_in_child()


def _close_all(closings: Mapping[str, Callable[[float], None]], deadline: float) -> list[str]:
    """Do all *closings* side by side, each with the seconds that are left; give what did not end or failed."""
    if not closings:
        return []
    threads = Workers("close", min(len(closings), _CLOSERS))
    futures = {
        name: threads.submit(lambda close=close: close(_left(deadline)))  # type: ignore[misc]
        for name, close in closings.items()
    }
    wait(futures.values(), max(0.1, deadline + _GRACE_S - time.monotonic()))
    threads.close(0)
    return [f"{name}: {failure}" for name, future in futures.items() if (failure := _failure(future))]


def _either(closing: Future[None], given_up: Future[None] | None) -> Future[None]:
    """Give a Future that ends when one of the two has."""
    if given_up is None:
        return closing
    either: Future[None] = Future()
    lock = threading.Lock()

    def ended(_: Future[None]) -> None:
        with lock:
            if not either.done():
                either.set_result(None)

    closing.add_done_callback(ended)
    given_up.add_done_callback(ended)
    return either


def _left(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _failure(closing: Future[None]) -> str | None:
    """Say what is wrong with a *closing*; None: nothing."""
    if not closing.done():
        return "its close() has not ended"
    error = closing.exception()
    return None if error is None else str(error) or type(error).__name__


def _forked() -> None:
    for job in list(_jobs):
        job.end_in_child()


os.register_at_fork(after_in_child=_forked)
