"""A task as it runs in the host: what the user's function gets, the records that wait for it, and its turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from attrs import define, field

from millpond.checkpoint import Checkpoint, SystemStreamPartition
from millpond.errors import FencedError, MillpondError, StoreClosedError
from millpond.hosts.kafka.outputs import Headers, Outputs
from millpond.stores.keyvalue import KeyValueStore
from millpond.task import Task

if TYPE_CHECKING:
    from millpond.hosts.kafka.driver import Message


LOOK_EVERY = 8
"""After how many records a task looks whether a write would wait; one that waits all the same has ``put_timeout``."""


class HostedTask:
    """
    What a job's function is given beside the record: this task's stores, and a way to send outputs.

    The same object for all records of a task while it is open here, and another one when it has been opened again.

    Attributes:
        name: The task's name.
        kept: For whatever the function wants to keep as long as the task is open, such as the stores it looked up.
        task: The task itself: its offsets, its health. The host reports offsets and commits.
    """

    def __init__(self, task: Task, outputs: Outputs) -> None:
        """Made by the host."""
        self.name = task.name
        self.task = task
        self.kept: dict[str, Any] = {}
        self._outputs = outputs
        self.store: Callable[[str], KeyValueStore[Any, Any]] = task.store
        """Give the store of this name."""

    def send(
        self, topic: str, value: bytes | str | None, key: bytes | str | None = None, headers: Headers | None = None
    ) -> None:
        """
        Send a record to *topic*, without waiting; it is acknowledged before the checkpoint that covers it.

        Raises:
            TransientError: The producer's queue was full for a minute.
        """
        self._outputs.send(topic, value, key, headers)


Process = Callable[["Message", HostedTask], object]
"""A job's function: called for each record, in the order of its partition."""


@define(eq=False)
class Running:
    """
    A task that runs; everything on the thread that polls.

    Attributes:
        number: Of its partitions.
        task: The task.
        hosted: What the function gets.
        outputs: What it sends.
        next: The offset that comes next, by topic, as far as they were handed to the task.
        waiting: Records that were fetched and not yet processed.
        begun: Topics whose partition was already told where to begin.
        broken: Why it must not be committed any more; None while it may.
        opened_at: The monotonic second at which it began to run.
    """

    number: int
    task: Task
    hosted: HostedTask
    outputs: Outputs
    sources: Mapping[str, SystemStreamPartition]
    next: dict[str, int]
    begun: set[str] = field(factory=set)
    waiting: deque[Message] = field(factory=deque)
    broken: BaseException | None = None
    opened_at: float = field(factory=time.monotonic)
    _room: Future[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether all its partitions were told where to begin."""
        return len(self.begun) == len(self.next)

    @property
    def has_room(self) -> bool:
        """Whether a write would not wait, as far as the last look says."""
        if self._room is not None and self._room.done():
            self._room = None
        return self._room is None

    def take(self, topic: str, records: Sequence[Message]) -> None:
        """Queue *records* of one topic, in order; those that come a second time, after a seek, are left out."""
        first, last = records[0].offset() or 0, records[-1].offset() or 0
        if first < self.next[topic]:
            records = [record for record in records if (record.offset() or 0) >= self.next[topic]]
        self.next[topic] = max(self.next[topic], last + 1)
        self.waiting.extend(records)

    def work(self, process: Process, until: float) -> None:
        """
        Process what waits: until the monotonic second *until*, or until a write would wait.

        Raises:
            Exception: What *process* raised. The task holds half a record then and must not be committed.
        """
        done: list[Message] = []
        try:
            self._work(process, until, done.append)
        except BaseException as error:
            self.broken = error
            raise
        self._report(done)

    def _work(self, process: Process, until: float, ended: Callable[[Message], None]) -> None:
        waiting, hosted, clock, has_room = self.waiting, self.hosted, time.monotonic, self.task.has_room
        left = 0
        while waiting:
            if left == 0:
                if not has_room():
                    self._room = self.task.room()
                    return
                left = LOOK_EVERY
            record = waiting.popleft()
            process(record, hosted)
            ended(record)
            left -= 1
            if clock() >= until:
                return

    def _report(self, done: Sequence[Message]) -> None:
        """Tell the task what is processed: once for all records of a topic, since nothing commits in between."""
        if len(self.sources) == 1:
            parts = dict.fromkeys(self.sources, done)
        else:
            parts = {topic: [record for record in done if record.topic() == topic] for topic in self.sources}
        for topic, records in parts.items():
            if records:
                self.task.processed(self.sources[topic], records[-1].offset() or 0, len(records))

    def positions(self) -> dict[str, int]:
        """Give the offset of the next record to process, by topic."""
        found = dict(self.next)
        for record in reversed(self.waiting):
            found[str(record.topic())] = int(record.offset() or 0)
        return found

    def commit_if_due(self) -> Future[Checkpoint] | None:
        """Begin a commit if one is due; raises as ``Task.commit``, and what an output's delivery failed with."""
        if self.outputs.failure is not None:
            raise self.outputs.failure
        return self.task.commit_if_due()

    def offsets(self, checkpoint: Checkpoint) -> dict[tuple[str, int], int]:
        """Give the offsets of the next records after *checkpoint*, as the group counts them."""
        found = {topic: checkpoint.offsets.get(source) for topic, source in self.sources.items()}
        return {(topic, self.number): int(offset) + 1 for topic, offset in found.items() if offset is not None}


def is_reopened_after(error: BaseException, task: Task) -> bool:
    """Tell whether the mend for *error* is to open the task again, at its last checkpoint."""
    return isinstance(error, FencedError | StoreClosedError) or (
        isinstance(error, MillpondError) and not task.health.ready
    )
