"""A job, as a host holds it: opened from a configuration, it opens tasks."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType

from millpond.checkpoint import CheckpointId
from millpond.clock import SystemClock
from millpond.config import JobConfig, load
from millpond.errors import ConfigError, StoreClosedError, TransientError
from millpond.events import Event, Listeners, StateNotDurable
from millpond.lanes import TransferPool, Workers
from millpond.opening import JobParts, TaskParts, open_task
from millpond.progress import LogListener
from millpond.spi import JobContext, StateBackendAdmin
from millpond.stores.budget import BufferBudget
from millpond.task import Task

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
        checkpoint = config.checkpoint
        self._parts = JobParts(
            config=config,
            context=context,
            manager=checkpoint.factory(checkpoint.settings, context, checkpoint.versions),
            budget=BufferBudget(config.buffer_memory),
            apply_workers=Workers("apply", 2),
            commit_workers=Workers("commit", 2),
            upload_workers=Workers("upload", max(1, len(config.backends))),
        )
        self._lock = threading.Lock()
        self._prepared = False
        self._closed = False
        self._tasks: dict[str, tuple[Task, TaskParts]] = {}
        _jobs.add(self)

    # ----------------------------------------------------------------------------------------------- opening

    def prepare(self) -> None:
        """
        Make what the manager and the backends need, and try what they rely on; idempotent. ``open_task`` sees to it.

        Raises:
            ConfigError: Something does not hold; the message says what to do.
        """
        self._raise_if_closed()
        with self._lock:
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
        self, name: str, *, at: CheckpointId | str | None = None, timeout_s: float | None = None
    ) -> Task:
        """
        Claim the task *name*, restore it and give it ready, or raise.

        Args:
            name: One of ``job.tasks``, where the configuration states them.
            at: An older checkpoint to go back to: its id, or the name of a pin. The next commit builds on it.
            timeout_s: How long the restore may take, in seconds; None: as long as it makes progress.

        Raises:
            ConfigError: The configuration does not fit the task or its checkpoint.
            TransientError: Another process owns the task's folder, or something did not answer; try again.
            StateNotFoundError, StateCorruptError: No backend can give the checkpoint back. Never an empty store.
            FormatError: The checkpoint's record cannot be read.
        """
        self._raise_if_closed()
        if self.config.tasks is not None and name not in self.config.tasks:
            raise ConfigError(f"job {self.config.name!r} has no task {name!r}; job.tasks names {self.config.tasks}")
        self.prepare()
        task, parts = open_task(self._parts, name, at, timeout_s)
        with self._lock:
            self._tasks[name] = (task, parts)
        return task

    # ------------------------------------------------------------------------------------------------- closing

    def close(self, timeout_s: float = 30.0) -> None:
        """
        Close all tasks, in parallel, then the threads; one deadline for all. Commits nothing. Idempotent.

        Raises:
            TransientError: Something was still at work when the time was over.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            tasks = [task for task, _ in self._tasks.values()]
        deadline = time.monotonic() + timeout_s
        late = _close_all(tasks, timeout_s)
        self._parts.manager.close()
        pools: dict[str, Workers | TransferPool] = {
            "apply": self._parts.apply_workers,
            "commit": self._parts.commit_workers,
            "upload": self._parts.upload_workers,
            "transfer": self._transfers,
        }
        late += [f"{name} threads" for name, pool in pools.items() if not pool.close(max(0.1, deadline - time.monotonic()))]
        if late:
            raise TransientError(f"job {self.config.name!r} is closed, but not all of it ended: {'; '.join(late)}")

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise StoreClosedError(f"job {self.config.name!r} is closed")

    def __enter__(self) -> Job:
        """Give the job itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; commits nothing."""
        self.close()

    def _end_in_child(self) -> None:
        """Make every further use raise: the threads of this job stayed behind in the parent."""
        self._closed = True
        for _, parts in self._tasks.values():
            parts.end_in_child()


def _close_all(tasks: Iterable[Task], timeout_s: float) -> list[str]:
    """Close *tasks* side by side; give what did not end."""
    threads = Workers("close", 4)
    futures: list[Future[None]] = [threads.submit(lambda t=task: t.close(timeout_s)) for task in tasks]  # type: ignore[misc]
    late = []
    for future in futures:
        try:
            future.result(timeout_s + 1.0)
        except (TransientError, TimeoutError) as error:
            late.append(str(error))
    threads.close(0)
    return late


def _forked() -> None:
    for job in list(_jobs):
        job._end_in_child()


os.register_at_fork(after_in_child=_forked)
