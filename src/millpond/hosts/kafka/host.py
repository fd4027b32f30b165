"""
The Kafka host: a consumer in its group, whose partitions are tasks with state.

Everything happens on the thread that polls, in turns: records are fetched, tasks process and commit, and inside of the
fetch the group gives and takes partitions. Only claims and restores go on beside it, while nothing is read from their
partitions, so that the consumer stays alive in its group; and a hand-over, for which the group waits, commits and
closes tasks side by side. Offsets come from the checkpoint, never from the group.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs

from millpond.config import JobConfig, host_settings, load
from millpond.errors import ConfigError, MillpondError, TransientError
from millpond.events import Event, Listeners
from millpond.hosts.kafka import driver as kafka
from millpond.hosts.kafka.decisions import (
    Part,
    Phase,
    check_task_number,
    first_offset,
    flow,
    topic_problems,
    whole_tasks,
)
from millpond.hosts.kafka.driver import Driver, Kind, Trouble
from millpond.hosts.kafka.events import Assigned, ClientTrouble, HostReady, HostStopping, Revoked
from millpond.hosts.kafka.health import HostHealth
from millpond.hosts.kafka.hosted import Process
from millpond.hosts.kafka.outputs import Outputs
from millpond.hosts.kafka.settings import Client, KafkaSettings, consumer_config, producer_config
from millpond.hosts.kafka.tasks import RANGE_TIMEOUT_S, Tasks
from millpond.job import Job, open_job
from millpond.progress import LogListener

if TYPE_CHECKING:
    from millpond.hosts.kafka.driver import Message, Producer

IDLE_S = 0.1
"""How long a turn waits for a record: no commit, stop or restored task waits longer for its turn."""
BUSY_S = 0.01
"""The same while a task is being opened or waits for room."""

LAG_EVERY_S = 1.0

Connect = Callable[[Client, Sequence[str]], Driver]


class KafkaHost:
    """
    Runs a job on a Kafka consumer group. ``run`` belongs to one thread; ``stop`` and ``health`` to any.

    The job's configuration has a section ``[hosts.kafka]``: :class:`~millpond.hosts.kafka.settings.KafkaSettings`.
    """

    def __init__(
        self,
        config: JobConfig | Mapping[str, object] | str | os.PathLike[str],
        process: Process,
        *,
        listeners: Iterable[Callable[[Event], None]] = (),
        connect: Connect = kafka.connect,
    ) -> None:
        """
        Check the configuration; no I/O besides.

        Args:
            config: As of ``millpond.open_job``.
            process: Called with each record and its task, in the order of the partition. What it raises ends the host.
            listeners: Told of every event of the job and of the host, beside the log.
            connect: Makes the driver; for tests.

        Raises:
            ConfigError: Everything that is wrong with the configuration.
        """
        self.config = load(config)
        self.settings = host_settings(self.config, "kafka", KafkaSettings)
        self._process = process
        self._listeners = tuple(listeners)
        self._tell = Listeners.of([LogListener(), *self._listeners])
        self._producing = producer_config(self.settings, self.config)
        self._producer: Producer | None = None
        self._driver = connect(consumer_config(self.settings, self.config), self.settings.topics)
        self._counts: dict[str, int] = {}
        self._job: Job | None = None
        self._tasks: Tasks | None = None
        self._stop = threading.Event()
        self._assigned: set[Part] = set()
        self._paused: set[Part] = set()
        self._settled = False
        self._ready = False
        self._failure: BaseException | None = None
        self._error: BaseException | None = None
        self._polled_at: float | None = None
        self._lag: Mapping[Part, int] = {}
        self._measured_at = 0.0

    # ---------------------------------------------------------------------------------------------------- from outside

    def run(self) -> None:
        """
        Run until ``stop`` is called, then hand all tasks over and leave the group.

        Raises:
            ConfigError: The topics do not fit, or the cluster refuses this client.
            SourceGoneError: A partition no longer has the offset that a task reads next.
            CommitError: More commits failed than ``commit.tolerated_failures`` allows.
            MillpondError: A task cannot be opened, and waiting does not help.
            Exception: What the user's function raised. Its task commits nothing more, so that the record is done again.
        """
        try:
            self._run()
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._end()

    def _run(self) -> None:
        names = self._task_names()
        if self._stop.is_set():
            return
        config = attrs.evolve(self.config, tasks=names)
        self._job = open_job(config, listeners=self._listeners)
        outputs = partial(Outputs, producer=self._make_producer)
        self._tasks = Tasks(self._job, names, self._driver, self.settings, self._process, outputs, self._tell)
        self._driver.subscribe(self)
        while not self._stop.is_set():
            self._turn(self._tasks)

    def stop(self) -> None:
        """Let ``run`` come to its end; any thread, also a signal's handler."""
        self._stop.set()

    @property
    def health(self) -> HostHealth:
        """How the host is doing; any thread."""
        tasks, polled = self._tasks, self._polled_at
        phases = {} if tasks is None else tasks.phases
        running = [] if tasks is None else list(tasks.running.values())
        return HostHealth(
            ready=self._ready,
            last_poll_age_s=None if polled is None else time.monotonic() - polled,
            tasks={one.task.name: one.task.health for one in running},
            opening={
                tasks.name(number): phase
                for number, phase in phases.items()
                if tasks is not None and phase is not Phase.RUNNING
            },
            lag=self._lag,
            error=self._error,
        )

    # ------------------------------------------------------------------------------------------------------- the start

    def _task_names(self) -> tuple[str, ...] | None:
        """Wait for the cluster, and give the names of all tasks; None if their number is nobody's business."""
        while not self._stop.is_set():
            try:
                found = {topic: self._driver.partition_count(topic, RANGE_TIMEOUT_S) for topic in self.settings.topics}
            except TransientError as error:
                self._tell(ClientTrouble(job=self.config.name, text=str(error)))
                self._stop.wait(1.0)
                continue
            if problems := topic_problems(found, self.config.tasks):
                raise ConfigError("\n".join(problems))
            self._counts = {topic: count for topic, count in found.items() if count is not None}
            break
        if self.config.tasks is not None or not self.settings.pin_partitions:
            return self.config.tasks
        return tuple(f"Partition {number}" for number in range(min(self._counts.values(), default=0)))

    def _make_producer(self) -> Producer:
        if self._producer is None:
            self._producer = kafka.make_producer(self._producing)
        return self._producer

    # ---------------------------------------------------------------------------------------------------------- a turn

    def _turn(self, tasks: Tasks) -> None:
        records, troubles = self._driver.read(max(1, self.settings.batch - tasks.queued), self._patience(tasks))
        self._polled_at = time.monotonic()
        if self._failure is not None:
            raise self._failure
        for trouble in troubles:
            self._judge(trouble, tasks)
        _deal(records, tasks)
        tasks.start_opened()
        if tasks.begin_reading():
            self._paused.clear()  # a client that had to assign anew has forgotten what was paused
        tasks.work()
        self._mirror(tasks.published())
        self._let_flow(tasks)
        self._show_readiness(tasks)
        self._measure_lag(tasks)

    def _patience(self, tasks: Tasks) -> float:
        """Say how long this turn may wait for a record."""
        if any(one.waiting and one.has_room for one in tasks.running.values()):
            return 0.0
        return IDLE_S if tasks.is_settled and len(tasks.readable) == len(tasks.running) else BUSY_S

    def _let_flow(self, tasks: Tasks) -> None:
        pause, resume = flow(tasks.reading, tasks.readable, self._paused)
        if pause:
            self._driver.pause(pause)
            self._paused.update(pause)
        if resume:
            self._driver.resume(resume)
            self._paused.difference_update(resume)

    def _mirror(self, offsets: Mapping[Part, int]) -> None:
        if not offsets or not self.settings.mirror_offsets:
            return
        try:
            self._driver.mirror(offsets)
        except MillpondError as error:  # for tools that show the lag: nothing depends on it
            self._tell(ClientTrouble(job=self.config.name, text=f"offsets were not mirrored to the group: {error}"))

    def _show_readiness(self, tasks: Tasks) -> None:
        ready = self._settled and tasks.is_settled
        if ready != self._ready:
            self._ready = ready
            self._tell(HostReady(job=self.config.name, ready=ready))

    def _measure_lag(self, tasks: Tasks) -> None:
        """Note now and then how far behind the tasks are, as the client has seen it."""
        if time.monotonic() - self._measured_at < LAG_EVERY_S:
            return
        self._measured_at = time.monotonic()
        behind = {part: (self._driver.end_of(part), first) for part, first in tasks.positions().items()}
        self._lag = {part: max(0, end - first) for part, (end, first) in behind.items() if end is not None}

    def _judge(self, trouble: Trouble, tasks: Tasks) -> None:
        """
        Do what a trouble of the client asks for.

        Raises:
            SourceGoneError, ConfigError, TransientError: The host cannot go on.
        """
        match trouble.kind:
            case Kind.GONE if trouble.part is not None:
                self._check_offset(trouble.part, tasks)
            case Kind.NO_TOPIC:
                self._check_topics(trouble)
            case Kind.REFUSED:
                raise ConfigError(f"the cluster refuses this client: {trouble.text}")
            case Kind.OVER:
                raise TransientError(f"the Kafka client cannot go on: {trouble.text}")
            case _:
                self._tell(ClientTrouble(job=self.config.name, text=trouble.text))

    def _check_offset(self, part: Part, tasks: Tasks) -> None:
        """Raise if the partition does not have what its task reads next; else have it read there again."""
        running = tasks.running.get(part[1])
        if running is None:
            return
        try:
            low, high = self._driver.range_of(part, RANGE_TIMEOUT_S)
        except TransientError as error:
            self._tell(ClientTrouble(job=self.config.name, text=str(error)))
        else:
            last = str(running.next[part[0]] - 1)
            first_offset(part, last, low, high, self.settings.begin, running.task.name)
        running.begun.discard(part[0])

    def _check_topics(self, trouble: Trouble) -> None:
        """Raise if a topic is gone for good, which a client may also say while the cluster is being restarted."""
        self._tell(ClientTrouble(job=self.config.name, text=trouble.text))
        try:
            found = {topic: self._driver.partition_count(topic, RANGE_TIMEOUT_S) for topic in self.settings.topics}
        except TransientError:
            return
        if problems := topic_problems(found, self.config.tasks):
            raise ConfigError("\n".join(problems))

    # ----------------------------------------------------------------------- rebalances: inside ``read`` and ``close``

    def assigned(self, parts: Collection[Part]) -> None:
        """Open what is whole now."""
        self._assigned.update(parts)
        self._settled = True
        if self._stop.is_set():
            return
        self._tell(Assigned(job=self.config.name, partitions=_shown(parts)))
        self._follow(commit=True)

    def revoked(self, parts: Collection[Part]) -> None:
        """Hand over what is not whole any more."""
        self._take(parts, lost=False)

    def lost(self, parts: Collection[Part]) -> None:
        """Close what others may have by now."""
        self._take(parts, lost=True)

    def _take(self, parts: Collection[Part], *, lost: bool) -> None:
        self._assigned.difference_update(parts)
        self._paused.difference_update(parts)
        self._settled = bool(self._assigned) and not lost
        if parts:
            self._tell(Revoked(job=self.config.name, partitions=_shown(parts), lost=lost))
        self._follow(commit=not lost)

    def _follow(self, *, commit: bool) -> None:
        """Bring the tasks in line with the assignment; what goes wrong is raised by the turn, outside of the client."""
        tasks = self._tasks
        if tasks is None:
            return
        try:
            wanted = whole_tasks(self._assigned, self.settings.topics)
            for number in wanted:
                check_task_number(number, tasks.names, self._grown(number))
            self._mirror(tasks.follow(wanted, self.settings.handover.total_seconds(), commit=commit))
        except BaseException as error:  # noqa: BLE001 - the client must not see it
            self._failure = error

    def _grown(self, number: int) -> dict[str, int]:
        """Give the numbers of partitions, which are at least so many that there is a partition *number*."""
        return {topic: max(count, number + 1) for topic, count in self._counts.items()}

    # --------------------------------------------------------------------------------------------------------- the end

    def _end(self) -> None:
        """Hand everything over and leave the group; what fails here does not hide why the host ends."""
        self._ready, self._settled = False, False
        self._stop.set()
        deadline = time.monotonic() + self.settings.shutdown.total_seconds()
        self._tell(HostStopping(job=self.config.name, error=self._error))
        if self._tasks is not None:
            self._mirror(self._tasks.close(self.settings.shutdown.total_seconds()))
        self._driver.close()
        if self._job is not None:
            try:
                self._job.close(max(1.0, deadline - time.monotonic()))
            except TransientError:
                if self._error is None:
                    raise


def _deal(records: Sequence[Message], tasks: Tasks) -> None:
    """Give each record to its task; one of a task that is not here any more is its new owner's."""
    dealt: dict[tuple[str | None, int | None], list[Message]] = {}
    for record in records:
        part = record.topic(), record.partition()
        if (its := dealt.get(part)) is None:
            dealt[part] = [record]
        else:
            its.append(record)
    for (topic, number), its in dealt.items():
        running = None if number is None else tasks.running.get(number)
        if running is not None and topic is not None:
            running.take(topic, its)


def _shown(parts: Collection[Part]) -> tuple[str, ...]:
    return tuple(f"{topic}[{number}]" for topic, number in sorted(parts))
