"""
A coordinator at work: it stands for election, leads, writes the record, and stands again when it was replaced.

One thread decides (the one that calls ``run``); one writes the record, so that deciding never waits for a disk or a
network; the transport delivers on its own. Leadership is checked before each act that others see.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue

from attrs import frozen

from millpond.clock import Clock, SystemClock
from millpond.coordinator import events, lines
from millpond.coordinator import record as record_format
from millpond.coordinator.decisions import Broadcast, Decision, Fail, Send, Tell, Write
from millpond.coordinator.ends import CoordinatorEnd
from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.machine import CoordinatorMachine, Counts, Phase
from millpond.coordinator.messages import Report
from millpond.coordinator.metadata import CoordinatorMetadata, Leadership
from millpond.coordinator.record import JobRecord
from millpond.coordinator.settings import CoordinatorSettings
from millpond.errors import ConfigError, FencedError, FormatError, MillpondError, StoreClosedError, TransientError
from millpond.events import Event, Listeners
from millpond.lanes import Workers

_LONGEST_PAUSE_S = 5.0
_STANDS_S = 5.0


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
class _Written:
    by: _Reign  # an earlier leadership's writer may be late
    version: str


@frozen(eq=False)
class _Refused:
    by: _Reign
    error: BaseException


@frozen
class _Request:
    name: str


@frozen
class _Forget:
    name: str


class _Closing:
    """Wakes whoever waits for facts."""


_Fact = Report | _Written | _Refused | _Request | _Forget | _Closing


class Coordinator:
    """
    One candidate. ``run`` belongs to one thread; everything else may be called on any.

    A process that ends may let ``close`` go; the others take over when its lock or lease is gone.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        metadata: CoordinatorMetadata,
        make_end: Callable[[], CoordinatorEnd],
        *,
        candidate: str = "",
        listeners: Iterable[Callable[[Event], None]] = (),
        clock: Clock | None = None,
    ) -> None:
        """
        Prepare; nothing happens yet.

        Args:
            settings: The job's members and times.
            metadata: Where the record is; the caller closes it.
            make_end: Makes the transport's end for one leadership; it is opened when that begins.
            candidate: Who this is, for people; by default the host's name and the process's number.
            listeners: Told of every event, beside the log.
            clock: Tells the time.
        """
        self._settings = settings
        self._metadata = metadata
        self._make_end = make_end
        self._candidate = candidate or f"{socket.gethostname()}:{os.getpid()}"
        self._listener = Listeners.of([lines.LogListener(), *listeners])
        self._clock = clock or SystemClock()
        self._facts: SimpleQueue[_Fact] = SimpleQueue()
        self._closed = threading.Event()
        self._reign: _Reign | None = None
        self._running = threading.Lock()

    def run(self) -> None:
        """
        Stand for election, lead, and stand again, until ``close``.

        Raises:
            StateNotFoundError: No retained job checkpoint can be restored, and an empty start is not allowed.
            ConfigError, FormatError, StateCorruptError: Only the operator can go on; the message says how.
        """
        with self._running:
            while not self._closed.is_set():
                self._lead_once()

    def _lead_once(self) -> None:
        try:
            leadership = self._metadata.lead(self._candidate, _STANDS_S)
        except (TransientError, StoreClosedError):
            self._closed.wait(0.05)
            return
        try:
            self._lead(leadership)
        except FencedError as error:
            self._tell_fenced(leadership, error)
        except TransientError as error:  # e.g. the record could not be read: somebody else may have more luck
            self._tell_fenced(leadership, error)
            self._closed.wait(1.0)
        finally:
            leadership.resign()

    def _tell_fenced(self, leadership: Leadership, error: BaseException) -> None:
        self._listener(
            events.CoordinatorFenced(
                job=self._settings.job, candidate=self._candidate, epoch=leadership.epoch, error=error
            )
        )

    def _lead(self, leadership: Leadership) -> None:
        stored = self._metadata.read()
        record = None if stored is None else record_format.decode(stored.data)
        machine = CoordinatorMachine(
            self._settings, leadership.epoch, record, self._clock.monotonic(), self._clock.millis
        )
        self._listener(
            events.CoordinatorElected(
                job=self._settings.job,
                candidate=self._candidate,
                epoch=leadership.epoch,
                newest=machine.record.newest.id if machine.record.newest else None,
            )
        )
        end = self._make_end()
        version = None if stored is None else stored.version
        reign = _Reign(machine, leadership, self._metadata, end, self._facts, self._listener, self._clock, version)
        self._reign = reign
        try:
            end.open(self._facts.put)
            reign.decide(self._closed)
        finally:
            end.close()
            reign.end()

    def request(self, name: str = "") -> None:
        """
        Ask for a job checkpoint as soon as none is in flight; with a *name* it stays as a savepoint.

        Raises:
            TransientError: It does not lead: ask the one that does.
            ConfigError: There is a savepoint of that name.
        """
        reign = self._leading()
        if name and name in reign.savepoints:
            raise ConfigError(f"job {self._settings.job!r} has a savepoint {name!r} already: choose another name")
        self._facts.put(_Request(name))

    def forget(self, name: str) -> None:
        """
        Let retention have the savepoint *name* from the next job checkpoint on; a name that is none changes nothing.

        Raises:
            TransientError: It does not lead: ask the one that does.
        """
        self._leading()
        self._facts.put(_Forget(name))

    def _leading(self) -> _Reign:
        reign = self._reign
        if reign is None or not reign.status.leads:
            raise TransientError(f"coordinator {self._candidate!r} does not lead now: ask the one that does")
        return reign

    @property
    def status(self) -> CoordinatorStatus:
        """How it is doing."""
        reign = self._reign
        if reign is None:
            return CoordinatorStatus(False, 0, Phase.GATHERING, None, None, Counts(), 0, 0.0)
        return reign.status

    def close(self) -> None:
        """End ``run`` at its next step, and wait for that, at most ten seconds; idempotent."""
        self._closed.set()
        self._facts.put(_Closing())
        if self._running.acquire(timeout=10.0):
            self._running.release()


class _Reign:
    """One leadership: the machine, and what carries its decisions out."""

    def __init__(
        self,
        machine: CoordinatorMachine,
        leadership: Leadership,
        metadata: CoordinatorMetadata,
        end: CoordinatorEnd,
        facts: SimpleQueue[_Fact],
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

    def _next(self, timeout_s: float) -> _Fact | None:
        try:
            return self._facts.get(timeout=timeout_s) if timeout_s > 0 else self._facts.get_nowait()
        except Empty:
            return None

    def _decisions(self, fact: _Fact, now: float) -> Iterable[Decision]:
        match fact:
            case _Written(by) | _Refused(by) if by is not self:
                return ()
            case _Written(_, version):
                self._version = version
                self._completed_at = now
                return self._machine.written(now)
            case _Refused(_, error):
                raise error
            case _Request(name):
                return self._machine.request(name, now)
            case _Forget(name):
                return self._machine.forget(name, now)
            case _Closing():
                return ()
            case _:
                return self._machine.report(fact, now)

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
                    self._facts.put(_Written(self, self._metadata.write(self._leadership, data, expected)))
                    return
                except (FencedError, ConfigError, FormatError):
                    raise
                except Exception as error:  # noqa: BLE001 - whatever it is, nobody knows whether it was written
                    self._tell_uncertain(record, error)
                if self._over.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                if (version := self._found(data)) is not None:
                    self._facts.put(_Written(self, version))
                    return
        except BaseException as error:  # noqa: BLE001 - it ends the leadership, on the thread that decides
            self._facts.put(_Refused(self, error))
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
