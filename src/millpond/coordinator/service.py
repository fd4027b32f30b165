"""
A coordinator at work: it stands for election, leads, writes the record, and stands again when it was replaced.

One thread decides (the one that calls ``run``); one writes the record, so that deciding never waits for a disk or a
network; the transport delivers on its own. Leadership is checked before each act that others see.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from millpond.clock import Clock, SystemClock
from millpond.coordinator import events, lines
from millpond.coordinator import record as record_format
from millpond.coordinator.ends import CoordinatorEnd
from millpond.coordinator.machine import CoordinatorMachine
from millpond.coordinator.messages import Report
from millpond.coordinator.metadata import CoordinatorMetadata, Leadership
from millpond.coordinator.reign import Closing, CoordinatorStatus, Fact, Forget, Reign, Request
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.standing import Counts, Phase
from millpond.errors import ConfigError, FencedError, StoreClosedError, TransientError
from millpond.events import Event, Listeners

_STANDS_S = 5.0
_MOST_WAITING = 200_000


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
        self._facts: SimpleQueue[Fact] = SimpleQueue()
        self._closed = threading.Event()
        self._reign: Reign | None = None
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
        reign = Reign(machine, leadership, self._metadata, end, self._facts, self._listener, self._clock, version)
        self._reign = reign
        try:
            end.open(self._take)
            reign.decide(self._closed)
        finally:
            end.close()
            reign.end()

    def _take(self, report: Report) -> None:
        """Take a report off the transport; what comes much faster than it is decided on is lost, as it may be."""
        if self._facts.qsize() < _MOST_WAITING:
            self._facts.put(report)

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
        self._facts.put(Request(name))

    def forget(self, name: str) -> None:
        """
        Let retention have the savepoint *name* from the next job checkpoint on; a name that is none changes nothing.

        Raises:
            TransientError: It does not lead: ask the one that does.
        """
        self._leading()
        self._facts.put(Forget(name))

    def _leading(self) -> Reign:
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
        self._facts.put(Closing())
        if self._running.acquire(timeout=10.0):
            self._running.release()
