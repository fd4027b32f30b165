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
from operator import methodcaller
from typing import TYPE_CHECKING

import attrs

from millpond.config import JobConfig, host_settings, load
from millpond.errors import MillpondError, TransientError
from millpond.events import Event, Listeners
from millpond.hosts.kafka import driver as kafka
from millpond.hosts.kafka.decisions import (
    Part,
    Phase,
    check_task_number,
    flow,
    whole_tasks,
)
from millpond.hosts.kafka.events import Assigned, ClientTrouble, HostReady, HostStopping, Revoked
from millpond.hosts.kafka.health import HostHealth
from millpond.hosts.kafka.hosted import Process
from millpond.hosts.kafka.input import Input
from millpond.hosts.kafka.outputs import Outputs
from millpond.hosts.kafka.roles import Driver
from millpond.hosts.kafka.settings import Client, KafkaSettings, consumer_config, producer_config
from millpond.hosts.kafka.tasks import Tasks
from millpond.job import Job, open_job
from millpond.progress import LogListener

if TYPE_CHECKING:
    from millpond.hosts.kafka.driver import Message, Producer

IDLE_S = 0.1
"""How long a turn waits for a record: no commit, stop or restored task waits longer for its turn."""
BUSY_S = 0.01
"""The same while a task is being opened or waits for room."""

LAG_EVERY_S = 1.0
SPARE_AFTER_S = 5.0
"""After how long in the group a member that was given nothing counts as one to which the group has nothing to give."""

_topic_of, _number_of = methodcaller("topic"), methodcaller("partition")

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
        self._input = Input(self._driver, self.settings, self.config.name, self.config.tasks, self._tell)
        self._job: Job | None = None
        self._tasks: Tasks | None = None
        self._stop = threading.Event()
        self._assigned: set[Part] = set()
        self._paused: set[Part] = set()
        self._settled = False
        self._idle_since: float | None = None
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
        self._input.await_topics(self._stop)
        if self._stop.is_set():
            return
        names = self._task_names()
        config = attrs.evolve(self.config, tasks=names)
        self._job = open_job(config, listeners=self._listeners)
        outputs = partial(Outputs, producer=self._make_producer)
        self._tasks = Tasks(self._job, names, self._driver, self.settings, self._process, outputs, self._tell)
        self._driver.subscribe(self)
        self._idle_since = time.monotonic()
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
        """Give the names of all tasks; None if their number is nobody's business."""
        if self.config.tasks is not None or not self.settings.pin_partitions:
            return self.config.tasks
        return tuple(f"Partition {number}" for number in range(min(self._input.counts.values(), default=0)))

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
            self._input.judge(trouble, None if trouble.part is None else tasks.running.get(trouble.part[1]))
        _deal(records, tasks)
        tasks.start_opened()
        self._paused.difference_update(tasks.begin_reading())
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
        ready = (self._settled or self._is_spare()) and tasks.is_settled
        if ready != self._ready:
            self._ready = ready
            self._tell(HostReady(job=self.config.name, ready=ready))

    def _is_spare(self) -> bool:
        """Tell whether the group has a place for this member and no partition: it then may not tell anything at all."""
        since = self._idle_since
        return since is not None and time.monotonic() - since > SPARE_AFTER_S and self._driver.is_member()

    def _measure_lag(self, tasks: Tasks) -> None:
        """Note now and then how far behind the tasks are, as the client has seen it."""
        if time.monotonic() - self._measured_at < LAG_EVERY_S:
            return
        self._measured_at = time.monotonic()
        behind = {part: (self._driver.end_of(part), first) for part, first in tasks.positions().items()}
        self._lag = {part: max(0, end - first) for part, (end, first) in behind.items() if end is not None}

    # ----------------------------------------------------------------------- rebalances: inside ``read`` and ``close``

    def assigned(self, parts: Collection[Part]) -> None:
        """Open what is whole now."""
        self._assigned.update(parts)
        self._settled, self._idle_since = True, None
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
        self._idle_since = time.monotonic() if not lost and not self._assigned else None
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
                check_task_number(number, tasks.names, self._input.grown(number))
            self._mirror(tasks.follow(wanted, self.settings.handover.total_seconds(), commit=commit))
        except BaseException as error:  # noqa: BLE001 - the client must not see it
            self._failure = error

    # --------------------------------------------------------------------------------------------------------- the end

    def _end(self) -> None:
        """Hand everything over and leave the group; what fails here does not hide why the host ends."""
        self._ready, self._settled = False, False
        self._stop.set()
        deadline = time.monotonic() + self.settings.shutdown.total_seconds()
        self._tell(HostStopping(job=self.config.name, error=self._error))
        try:
            if self._tasks is not None:
                self._mirror(self._tasks.close(self.settings.shutdown.total_seconds()))
        finally:
            self._driver.close()
            self._close_job(deadline)

    def _close_job(self, deadline: float) -> None:
        if self._job is None:
            return
        try:
            self._job.close(max(1.0, deadline - time.monotonic()))
        except TransientError:
            if self._error is None:
                raise


def _deal(records: Sequence[Message], tasks: Tasks) -> None:
    """Give each record to its task; one of a task that is not here any more is its new owner's."""
    parts = list(zip(map(_topic_of, records), map(_number_of, records), strict=True))
    dealt: dict[tuple[str | None, int | None], list[Message]] = {part: [] for part in parts}
    if len(dealt) == 1:  # the usual case: a fetch brings one partition's
        dealt[parts[0]] += records
    else:
        for part, record in zip(parts, records, strict=True):
            dealt[part].append(record)
    for (topic, number), its in dealt.items():
        running = None if number is None else tasks.running.get(number)
        if running is not None and topic is not None:
            running.take(topic, its)


def _shown(parts: Collection[Part]) -> tuple[str, ...]:
    return tuple(f"{topic}[{number}]" for topic, number in sorted(parts))
