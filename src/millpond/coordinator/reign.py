"""One leadership at work: the state machine, and what carries its decisions out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue

from attrs import frozen

from millpond.clock import Clock
from millpond.coordinator import events
from millpond.coordinator import record as record_format
from millpond.coordinator.decisions import Broadcast, Decision, Fail, Send, Tell, Write
from millpond.coordinator.ends import CoordinatorEnd
from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.machine import CoordinatorMachine
from millpond.coordinator.messages import Report
from millpond.coordinator.metadata import CoordinatorMetadata, Leadership
from millpond.coordinator.record import JobRecord
from millpond.coordinator.standing import Counts, Phase
from millpond.errors import ConfigError, FencedError, FormatError, MillpondError
from millpond.events import Event
from millpond.lanes import Workers

_LONGEST_PAUSE_S = 5.0


@frozen
class CoordinatorStatus:
    """
    How a coordinator is doing; a value of one moment.

    Attributes:
        leads: It decides; else it stands by.
        epoch: Of its leadership; 0 before the first.
        phase: What the job is doing.
        newest: The newest job checkpoint.
        newest_age_s: Seconds since it was completed under this leadership; None if it was not.
        counts: What was counted under this leadership.
        steps: Facts that it has taken.
        busy_s: Processor time that deciding, and writing the record, took, in seconds.
    """

    leads: bool
    epoch: int
    phase: Phase
    newest: JobCheckpointId | None
    newest_age_s: float | None
    counts: Counts
    steps: int
    busy_s: float


@frozen(eq=False)
class Written:
    """The record is written, says the writer of one leadership; an earlier one's may be late."""

    by: Reign
    version: str


@frozen(eq=False)
class RecordRefused:
    """The record can never be written by this leadership."""

    by: Reign
    error: BaseException


@frozen
class Request:
    """Somebody asks for a job checkpoint; with a name it is to stay."""

    name: str


@frozen
class Forget:
    """Somebody needs the savepoint no more."""

    name: str


class Closing:
    """Wakes whoever waits for facts."""


Fact = Report | Written | RecordRefused | Request | Forget | Closing


class Reign:
    """One leadership: the machine, and what carries its decisions out."""

    def __init__(
        self,
        machine: CoordinatorMachine,
        leadership: Leadership,
        metadata: CoordinatorMetadata,
        end: CoordinatorEnd,
        facts: SimpleQueue[Fact],
        listener: Callable[[Event], None],
        clock: Clock,
        version: str | None,
    ) -> None:
        self._machine = machine
        self._leadership = leadership
        self._metadata = metadata
        self._end = end
        self._facts = facts
        self._listener = listener
        self._clock = clock
        self._version = version
        self._over = threading.Event()
        self._writers = Workers("coordinator-record", 1)
        self._completed_at: float | None = None
        self._steps = 0
        self._busy_s = 0.0
        self._writing_s = 0.0  # the writer's thread's own

    @property
    def status(self) -> CoordinatorStatus:
        """How it is doing."""
        machine = self._machine
        newest = machine.record.newest
        at = self._completed_at
        return CoordinatorStatus(
            leads=not self._over.is_set(),
            epoch=self._leadership.epoch,
            phase=machine.phase,
            newest=None if newest is None else newest.id,
            newest_age_s=None if at is None else self._clock.monotonic() - at,
            counts=machine.counts,
            steps=self._steps,
            busy_s=self._busy_s + self._writing_s,
        )

    @property
    def savepoints(self) -> frozenset[str]:
        """The names of the savepoints that the record has."""
        return frozenset(checkpoint.name for checkpoint in self._machine.record.checkpoints if checkpoint.name)

    def decide(self, closed: threading.Event) -> None:
        """Take facts and carry decisions out until *closed*; raises what ends the leadership."""
        look_at = self._clock.monotonic()
        while not closed.is_set():
            fact = self._next(max(0.0, look_at - self._clock.monotonic()))
            begun = time.thread_time()
            now = self._clock.monotonic()
            if fact is not None:
                self._steps += 1
                self._carry_out(self._decisions(fact, now))
            if now >= look_at:
                self._carry_out(self._machine.tick(now))
            if fact is None or now >= look_at or not isinstance(fact, Report):
                look_at = now + self._machine.next_look(now)
            self._busy_s += time.thread_time() - begun

    def _next(self, timeout_s: float) -> Fact | None:
        try:
            return self._facts.get(timeout=timeout_s) if timeout_s > 0 else self._facts.get_nowait()
        except Empty:
            return None

    def _decisions(self, fact: Fact, now: float) -> Iterable[Decision]:
        match fact:
            case Written(by) | RecordRefused(by) if by is not self:
                return ()
            case Written(_, version):
                return self._was_written(version, now)
            case RecordRefused(_, error):
                raise error
            case Request(name):
                return self._machine.request(name, now)
            case Forget(name):
                return self._machine.forget(name, now)
            case Closing():
                return ()
            case _:
                return self._machine.report(fact, now)

    def _was_written(self, version: str, now: float) -> Iterable[Decision]:
        before = self._machine.record.ids[:1]
        self._version = version
        decisions = self._machine.written(now)
        if self._machine.record.ids[:1] != before:
            self._completed_at = now
        return decisions

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        checked = False
        for decision in decisions:
            if not checked and isinstance(decision, Send | Broadcast):
                self._leadership.check()
                checked = True
            match decision:
                case Send(member, order):
                    self._end.send(member, order)
                case Broadcast(order):
                    self._end.broadcast(order)
                case Write(record):
                    self._writers.submit(lambda record=record: self._write(record))  # type: ignore[misc]
                case Tell(event):
                    self._listener(event)
                case Fail(error):
                    raise error

    def _write(self, record: JobRecord) -> None:
        """Write *record* until it is known to be written, or can never be; on the writer's thread."""
        begun = time.thread_time()
        expected, pause_s = self._version, 0.05
        try:
            data = record_format.encode(record)
            while not self._over.is_set():
                try:
                    self._facts.put(Written(self, self._metadata.write(self._leadership, data, expected)))
                    return
                except (FencedError, ConfigError, FormatError):
                    raise
                except Exception as error:  # noqa: BLE001 - whatever it is, nobody knows whether it was written
                    self._tell_uncertain(record, error)
                if self._over.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                if (version := self._found(data)) is not None:
                    self._facts.put(Written(self, version))
                    return
        except BaseException as error:  # noqa: BLE001 - it ends the leadership, on the thread that decides
            self._facts.put(RecordRefused(self, error))
        finally:
            self._writing_s += time.thread_time() - begun

    def _tell_uncertain(self, record: JobRecord, error: BaseException) -> None:
        newest = record.newest
        id = newest.id if newest is not None else JobCheckpointId(self._leadership.epoch, 0)
        self._listener(events.JobRecordUncertain(job=record.job, id=id, error=error))

    def _found(self, data: bytes) -> str | None:
        """Give the version if *data* is there after all; None if it is not, or nobody can tell."""
        try:
            stored = self._metadata.read()
        except MillpondError:
            return None
        return stored.version if stored is not None and stored.data == data else None

    def end(self) -> None:
        """Stop the writer; what it was writing may or may not be there, and the next leader will see."""
        self._over.set()
        self._writers.close(5.0)
