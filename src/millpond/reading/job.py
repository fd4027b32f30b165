"""A job's parts as a reader holds them: its records, its backends' restore managers, its live folders; no claim."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from attrs import frozen

from millpond.answers import ids_answer, pins_answer
from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.clock import SystemClock
from millpond.config import BackendConfig, JobConfig, StoreConfig, load
from millpond.errors import StateNotFoundError, TransientError
from millpond.events import Event, Listener
from millpond.lanes import TransferPool
from millpond.local import ReadOnlyTaskDirectory, TaskDirectory
from millpond.restore import Source
from millpond.spi import JobContext, StateBackendAdmin, StoreSpec, TaskContext

RACES = 5
"""How often the newest checkpoint is looked up anew when a live job has removed the one that was meant."""


def _nobody(event: Event) -> None:
    """Take *event* and tell nobody."""


@frozen
class Listed:
    """
    A checkpoint that can be restored, as a list shows it.

    Attributes:
        checkpoint: The checkpoint.
        pins: The names under which it is pinned, sorted.
        listed: It has a record of its own; False: only a pin keeps it.
    """

    checkpoint: Checkpoint
    pins: tuple[str, ...] = ()
    listed: bool = True


class JobReader:
    """
    Reads what a job has committed. A context manager; one thread at a time.

    Every method may raise TransientError when a place does not answer, and StateCorruptError or FormatError when a
    record cannot be read; the message names it.
    """

    def __init__(
        self,
        config: JobConfig | Mapping[str, object] | str | os.PathLike[str],
        *,
        listener: Listener = _nobody,
    ) -> None:
        """
        Read the job of *config*; *listener* is told how restores go.

        Raises:
            ConfigError: Everything that is wrong with the configuration, a line each.
        """
        self.config = load(config)
        self.transfers = TransferPool(self.config.transfer_threads, self.config.transfer_memory)
        self.context = JobContext(
            job=self.config.name,
            job_id=self.config.id,
            layout=self.config.layout,
            listener=listener,
            clock=SystemClock(),
            transfers=self.transfers,
        )
        checkpoint = self.config.checkpoint
        self.manager = checkpoint.factory(checkpoint.settings, self.context, checkpoint.versions)

    # -------------------------------------------------------------------------------------------------- records

    def tasks(self) -> list[str]:
        """Give the tasks that the configuration names or that have a record, in the configuration's order."""
        configured = list(self.config.tasks or ())
        return configured + sorted(set(self.manager.tasks()) - set(configured))

    def check_task(self, task: str) -> None:
        """
        Refuse a task that nobody knows.

        Raises:
            StateNotFoundError: It is neither in the configuration nor among the records.
        """
        known = self.tasks()
        if task not in known:
            raise StateNotFoundError(
                f"job {self.config.name!r} has no task {task!r}; it has {', '.join(map(repr, known)) or 'none yet'}"
            )

    def checkpoints(self, task: str) -> list[Listed]:
        """Give every checkpoint of *task* that can be restored, newest first, pinned ones too."""
        pins = _names_by_id(self.pins(task))
        ids = ids_answer(self.manager.ids(task))
        found = [self._listed(task, id, pins.get(id, ()), id in ids) for id in sorted({*ids, *pins}, reverse=True)]
        return [each for each in found if each is not None]

    def pins(self, task: str) -> Mapping[str, CheckpointId]:
        """Give the pins of *task*: name to id."""
        return pins_answer(self.manager.pins(task))

    def _listed(self, task: str, id: CheckpointId, pins: Sequence[str], listed: bool) -> Listed | None:
        """Read one checkpoint; None if a live job dropped it since it was listed."""
        try:
            return Listed(self.manager.read(task, id), tuple(pins), listed)
        except StateNotFoundError:
            return None

    def checkpoint(self, task: str, at: str | None = None) -> Checkpoint:
        """
        Give the newest checkpoint of *task*, or the one that *at* names: an id or a pin.

        Raises:
            StateNotFoundError: There is none.
            ConfigError: *at* is neither an id nor the name of a pin.
        """
        if at is None:
            last = self.manager.read_last(task)
            if last is None:
                raise StateNotFoundError(f"task {task!r} has no checkpoint yet")
            return last
        return self.manager.read(task, self.id_of(task, at))

    def listed(self, task: str, at: str | None = None) -> Listed:
        """Give the checkpoint that *at* names, or the newest, as a list shows it; raises as :meth:`checkpoint`."""
        checkpoint = self.checkpoint(task, at)
        pins = _names_by_id(self.pins(task)).get(checkpoint.id, [])
        return Listed(checkpoint, tuple(pins), checkpoint.id in ids_answer(self.manager.ids(task)))

    def id_of(self, task: str, at: str) -> CheckpointId:
        """
        Give the id that *at* names: an id's text, or a pin.

        Raises:
            StateNotFoundError: It is neither the text of an id nor a pin of *task*.
        """
        pins = self.pins(task)
        if at in pins:
            return pins[at]
        try:
            return CheckpointId.parse(at)
        except ValueError:
            names = ", ".join(pins) or "none"
            raise StateNotFoundError(
                f"task {task!r}: {at!r} is neither the id of a checkpoint nor a pin; pins: {names}"
            ) from None

    # ---------------------------------------------------------------------------------------------------- parts

    def store(self, name: str) -> StoreConfig:
        """
        Give the configured store *name*.

        Raises:
            StateNotFoundError: The configuration has none of that name.
        """
        store = self.config.stores.get(name)
        if store is None:
            known = ", ".join(self.config.stores) or "none"
            raise StateNotFoundError(f"job {self.config.name!r} has no store {name!r}; it has {known}")
        return store

    def live(self, task: str) -> ReadOnlyTaskDirectory:
        """Give the folder in which a live job keeps *task*, to look at; it may be missing."""
        return ReadOnlyTaskDirectory.at(self.config.state_dir, self.config.name, self.config.id, task)

    @contextmanager
    def workplace(self, task: str) -> Iterator[TaskDirectory]:
        """Give a task folder of our own below the system's temporary folder; gone after the block."""
        with TemporaryDirectory(prefix="millpond-") as folder:
            directory = TaskDirectory.open(Path(folder), self.config.name, self.config.id, task)
            try:
                yield directory
            finally:
                directory.close()

    @contextmanager
    def sources(self, task: str, backends: Sequence[str], workplace: TaskDirectory) -> Iterator[list[Source]]:
        """Open the restore managers of *backends* for reading; closed after the block."""
        opened: list[Source] = []
        try:
            for name in backends:
                source = self._source(task, self.config.backends[name], workplace)
                opened.append(source)
            yield opened
        finally:
            for source in opened:
                source.manager.close()

    def _source(self, task: str, backend: BackendConfig, workplace: TaskDirectory) -> Source:
        # Its own folder is the live one: some backends keep their images there. Its scratch is ours alone.
        context = TaskContext(
            self.context,
            task,
            None,
            backend.marker_key,
            self.live(task).backend(backend.name),
            workplace.scratch(backend.name),
        )
        manager = backend.factory.restore_manager(context, self._specs(backend.name))
        return Source(backend.name, backend.marker_key, manager)

    def admin(self, backend: str) -> StateBackendAdmin:
        """
        Give what prepares and inspects the backend's place.

        Raises:
            StateNotFoundError: The configuration has no section of that name.
        """
        found = self.config.backends.get(backend)
        if found is None:
            known = ", ".join(self.config.backends) or "none"
            raise StateNotFoundError(f"job {self.config.name!r} has no backend {backend!r}; it has {known}")
        return found.factory.admin(self.context, self._specs(backend))

    def _specs(self, backend: str) -> list[StoreSpec]:
        stores = self.config.stores.values()
        return [store.spec for store in stores if backend in (*store.backup, *store.restore)]

    # ------------------------------------------------------------------------------------------------------ end

    def close(self) -> None:
        """Let go of everything; idempotent."""
        self.manager.close()
        self.transfers.close(5.0)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def pin(self, task: str, at: str | None, name: str) -> CheckpointId:
        """
        Keep the newest checkpoint, or the one that *at* names, under the pin *name*.

        This changes the records, and still claims nothing.

        Raises:
            StateNotFoundError: There is no such checkpoint.
            ConfigError: *name* pins another one, or the manager keeps no pins.
        """
        if at is not None:
            id = self.id_of(task, at)
            self.manager.pin(task, id, name)
            return id
        return self._pin_newest(task, name)

    def _pin_newest(self, task: str, name: str) -> CheckpointId:
        """Pin the newest checkpoint; one that a live job superseded meanwhile gives way to the newer one."""
        id = self.checkpoint(task).id
        for _ in range(RACES):
            try:
                self.manager.pin(task, id, name)
            except StateNotFoundError:
                id = self.checkpoint(task).id
            else:
                return id
        raise TransientError(f"task {task!r}: a live job supersedes its checkpoints faster than one can be pinned")

    def unpin(self, task: str, name: str) -> CheckpointId:
        """
        Remove the pin *name*; give what it pinned.

        Raises:
            StateNotFoundError: There is no such pin.
        """
        pins = self.pins(task)
        if name not in pins:
            raise StateNotFoundError(f"task {task!r} has no pin {name!r}; pins: {', '.join(pins) or 'none'}")
        self.manager.unpin(task, name)
        return pins[name]


def _names_by_id(pins: Mapping[str, CheckpointId]) -> dict[CheckpointId, list[str]]:
    found: dict[CheckpointId, list[str]] = {}
    for name, id in sorted(pins.items()):
        found.setdefault(id, []).append(name)
    return found
