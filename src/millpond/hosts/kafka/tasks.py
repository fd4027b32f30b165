"""The tasks of this process: opened, run, stopped and handed over as the group gives and takes their partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from queue import Empty, SimpleQueue

from attrs import define, field

from millpond.checkpoint import Checkpoint, SystemStreamPartition
from millpond.errors import FencedError, MillpondError, StoreClosedError, TransientError
from millpond.events import Event
from millpond.hosts.kafka.decisions import Part, Phase, check_identity, first_offset, retry_after_s, steps, task_name
from millpond.hosts.kafka.events import ClientTrouble, TaskHeld, TaskLeft, TaskStarted, TaskWaits
from millpond.hosts.kafka.hosted import HostedTask, Process, Running, is_reopened_after
from millpond.hosts.kafka.leaving import leave
from millpond.hosts.kafka.openings import Opened, Opening, Openings, close_quietly
from millpond.hosts.kafka.outputs import Outputs
from millpond.hosts.kafka.roles import Driver
from millpond.hosts.kafka.settings import KafkaSettings
from millpond.hosts.source import SourceGoneError
from millpond.job import Job
from millpond.task import Task

SLICE_S = 0.1
"""How long a task may process before it is another one's turn, and the client's; one record is always ended."""
RANGE_TIMEOUT_S = 5.0
FENCED_RETRY_S = 5.0
"""From the loss of a task to another process until it is claimed again here, while the group still gives it to us."""


@define
class Waiting:
    """A task that is opened again at the monotonic second *at*."""

    at: float


@define(eq=False)
class Tasks:
    """
    All tasks of one host; everything but the openings on the thread that polls.

    Attributes:
        job: The job.
        names: The names of all tasks, in the order of their partitions; None: not stated.
        driver: Asked for what a partition has, and told where to begin.
        settings: The host's.
        process: The user's function.
        outputs_of: Makes what a task, by name, sends with.
        tell: Takes events.
        running: By the number of their partitions.
        reading: The partitions that the client reads: also those of a task that had to stop and is opened again.
    """

    job: Job
    names: Sequence[str] | None
    driver: Driver
    settings: KafkaSettings
    process: Process
    outputs_of: Callable[[str], Outputs]
    tell: Callable[[Event], None]
    running: dict[int, Running] = field(factory=dict)
    reading: set[Part] = field(factory=set)
    _waiting: dict[int, Waiting] = field(factory=dict)
    _opening: set[int] = field(factory=set)
    _failures: dict[int, int] = field(factory=dict)
    _published: SimpleQueue[tuple[Running, Checkpoint]] = field(factory=SimpleQueue)
    _gone: SimpleQueue[SourceGoneError] = field(factory=SimpleQueue)
    _openings: Openings = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._openings = Openings(self._open_one, self.settings.restores)

    @property
    def phases(self) -> dict[int, Phase]:
        """How far each task has come; any thread."""
        phases = dict.fromkeys(list(self._opening), Phase.OPENING) | dict.fromkeys(list(self._waiting), Phase.WAITING)
        return phases | dict.fromkeys(list(self.running), Phase.RUNNING)

    def name(self, number: int) -> str:
        """Give the name of the task of partition *number*."""
        return task_name(number, self.names)

    # ---------------------------------------------------------------------------------- what the group gives and takes

    def follow(self, wanted: Collection[int], timeout_s: float, *, commit: bool) -> dict[Part, int]:
        """
        Open what is *wanted* and let go of the rest, within *timeout_s* seconds; give the offsets to mirror.

        Without *commit*, what is let go has been lost already.
        """
        todo = steps(wanted, self.phases)
        begun = time.monotonic()
        given_up = self._openings.give_up(todo.give_up)
        for number in todo.give_up:
            self._opening.discard(number)
            self._waiting.pop(number, None)
            self._failures.pop(number, None)
        offsets = self._leave(todo.leave, timeout_s, commit=commit)
        self.reading = {part for part in self.reading if part[1] in wanted}
        self._openings.await_end(max(0.0, timeout_s - (time.monotonic() - begun)), given_up)
        for number in sorted(todo.open):
            self._begin(number)
        return offsets

    def _leave(self, numbers: Collection[int], timeout_s: float, *, commit: bool) -> dict[Part, int]:
        leaving = [self.running.pop(number) for number in sorted(numbers)]
        offsets: dict[Part, int] = {}
        for left in leave(leaving, timeout_s, commit=commit):
            self._failures.pop(left.running.number, None)
            committed = None if left.committed is None else left.committed.id
            self.tell(
                TaskLeft(
                    job=self.job.config.name,
                    task=left.running.task.name,
                    committed=committed,
                    duration_s=left.duration_s,
                    error=left.error,
                )
            )
            if left.committed is not None:
                offsets |= left.running.offsets(left.committed)
        return offsets

    # -------------------------------------------------------------------------------------------------------- openings

    def _begin(self, number: int) -> None:
        self._opening.add(number)
        self._openings.begin(number)

    def _open_one(self, opening: Opening) -> tuple[Task, Mapping[str, int]]:
        """Claim and restore a task, and find out where it reads on; on a worker."""
        name = self.name(opening.number)
        task = self.job.open_task(name, given_up=opening.unwanted)
        try:
            first = {topic: self._first(task, topic, opening) for topic in self.settings.topics}
        except BaseException:
            close_quietly(task)
            raise
        return task, first

    def _first(self, task: Task, topic: str, opening: Opening) -> int:
        """
        Give the offset at which *task* reads on, and see that it is still the same topic's.

        One that the checkpoint does not have is part of the next: else a start at the end would move with each restart,
        and records that were removed before the first commit would not be missed.
        """
        part, source = (topic, opening.number), self._source(topic, opening.number)
        identity, (low, high) = self._look(part, opening)
        check_identity(part, task.identities.get(source), identity, task.name)
        if identity is not None:
            task.identify(source, identity)
        saved = task.offsets.get(source)
        first = first_offset(part, saved, low, high, self.settings.begin, task.name)
        if saved is None:
            task.processed(source, first - 1)
        return first

    def _look(self, part: Part, opening: Opening) -> tuple[str | None, tuple[int, int]]:
        """Ask until the cluster answers: what was restored is not thrown away because a broker is away."""
        while True:
            try:
                return self.driver.identity_of(part[0], RANGE_TIMEOUT_S), self.driver.range_of(part, RANGE_TIMEOUT_S)
            except TransientError:
                wait([opening.unwanted], 1.0)
                if opening.unwanted.done():
                    raise

    def _source(self, topic: str, number: int) -> SystemStreamPartition:
        return SystemStreamPartition(self.settings.system, topic, number)

    def start_opened(self) -> None:
        """
        Let the tasks run whose opening has ended; open those again whose time has come.

        Raises:
            MillpondError: A task cannot be opened, and waiting does not help.
        """
        for one in self._openings.ended():
            self._opening.discard(one.opening.number)
            self._start(one)
        now = time.monotonic()
        for number in [number for number, one in self._waiting.items() if one.at <= now]:
            del self._waiting[number]
            self._begin(number)

    def _start(self, one: Opened) -> None:
        number = one.opening.number
        if one.task is None:
            assert one.error is not None
            if not isinstance(one.error, TransientError | FencedError | StoreClosedError):
                raise one.error
            self._wait(number, one.error)
            return
        outputs = self.outputs_of(one.task.name)
        sources = {topic: self._source(topic, number) for topic in self.settings.topics}
        one.task.before_publish(partial(self._refuse_other_topics, one.task, sources))
        one.task.before_publish(outputs.flush)
        hosted = HostedTask(one.task, outputs)
        self.running[number] = Running(number, one.task, hosted, outputs, sources, dict(one.first))
        self.tell(TaskStarted(job=self.job.config.name, task=one.task.name, offsets=dict(one.first)))

    def _refuse_other_topics(self, task: Task, sources: Mapping[str, SystemStreamPartition]) -> None:
        """
        Let no commit tie offsets to a topic that they are not of; its hook, on its worker.

        A client that reads a topic which is replaced by a longer one goes on in that as if nothing had been. A cluster
        that does not answer is asked by the next commit, and at the next opening.

        Raises:
            SourceGoneError: A topic was deleted and made again; the polling thread ends with the same.
        """
        for topic, source in sources.items():
            try:
                found = self.driver.identity_of(topic, RANGE_TIMEOUT_S)
            except TransientError:
                continue
            try:
                check_identity((topic, source.partition), task.identities.get(source), found, task.name)
            except SourceGoneError as error:
                self._gone.put(error)
                raise

    def _wait(self, number: int, error: BaseException) -> None:
        failures = self._failures[number] = self._failures.get(number, 0) + 1
        first_s = FENCED_RETRY_S if isinstance(error, FencedError) else self.settings.retry.total_seconds()
        retry_s = retry_after_s(failures, first_s)
        self._waiting[number] = Waiting(time.monotonic() + retry_s)
        self.tell(TaskWaits(job=self.job.config.name, task=self.name(number), error=error, retry_s=retry_s))

    def begin_reading(self) -> Collection[Part]:
        """Let the client read what new tasks have to read; give the partitions that are not paused any more."""
        parts = {(topic, one.number): first for one in self.running.values() for topic, first in one.next.items()}
        begun = {(topic, one.number) for one in self.running.values() for topic in one.begun}
        starts = {part: first for part, first in parts.items() if part not in begun}
        if not starts:
            return ()
        try:
            flowing = self.driver.begin(starts, {part: parts[part] for part in begun})
        except TransientError as error:
            self.tell(ClientTrouble(job=self.job.config.name, text=f"partitions cannot be read yet: {error}"))
            return ()
        self.reading.update(starts)
        for topic, number in starts:
            self.running[number].begun.add(topic)
        return flowing

    # --------------------------------------------------------------------------------------------------------- running

    @property
    def readable(self) -> set[int]:
        """The tasks that may get records."""
        return {number for number, running in self.running.items() if running.has_begun and running.has_room}

    @property
    def queued(self) -> int:
        """How many records wait in all tasks."""
        return sum(len(running.waiting) for running in self.running.values())

    @property
    def is_settled(self) -> bool:
        """Whether no task is being opened, waits, or has yet to be told where to begin; any thread."""
        return not self._opening and not self._waiting and all(one.has_begun for one in list(self.running.values()))

    def positions(self) -> dict[Part, int]:
        """Give the offset of the next record to process of each partition of the tasks that run."""
        return {(topic, one.number): first for one in self.running.values() for topic, first in one.positions().items()}

    def work(self) -> None:
        """
        Give each task a turn, and let it commit if that is due.

        Raises:
            CommitError: More commits failed than the operator tolerates.
            SourceGoneError: A topic was deleted and made again.
            Exception: What the user's function raised.
        """
        if not self._gone.empty():
            raise self._gone.get()
        for running in list(self.running.values()):
            try:
                self._turn(running)
            except MillpondError as error:
                if not is_reopened_after(error, running.task) and running.outputs.failure is None:
                    raise
                self._stop(running, error)

    def _turn(self, running: Running) -> None:
        if running.waiting:
            had_room = running.has_room
            running.work(self.process, time.monotonic() + SLICE_S)
            if had_room and not running.has_room:
                self.tell(TaskHeld(job=self.job.config.name, task=running.task.name))
        running.outputs.serve()
        commit = running.commit_if_due()
        if commit is not None:
            commit.add_done_callback(partial(self._note, running))

    def _stop(self, running: Running, error: BaseException) -> None:
        """Close one task that cannot go on, and open it again later: at its last checkpoint, from wherever that is."""
        failures = self._failures.get(running.number, 0)
        self._leave([running.number], self.settings.handover.total_seconds(), commit=False)
        self._failures[running.number] = failures
        self._wait(running.number, error)

    def _note(self, running: Running, commit: Future[Checkpoint]) -> None:
        if commit.exception() is None:
            self._published.put((running, commit.result()))

    def published(self) -> dict[Part, int]:
        """Give the offsets to mirror of the checkpoints that were published since the last call."""
        offsets: dict[Part, int] = {}
        while True:
            try:
                running, checkpoint = self._published.get_nowait()
            except Empty:
                return offsets
            if self.running.get(running.number) is running:
                self._failures.pop(running.number, None)
                offsets |= running.offsets(checkpoint)

    # ------------------------------------------------------------------------------------------------------------- end

    def close(self, timeout_s: float) -> dict[Part, int]:
        """Hand everything over within *timeout_s* seconds; give the offsets to mirror."""
        offsets = self.follow((), timeout_s, commit=True)
        self._openings.close(0.5)
        return offsets
