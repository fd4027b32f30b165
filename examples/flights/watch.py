"""Starts the job, kills it as planned, starts it again, and holds every life of it against the ledger."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from attrs import asdict, define, field, frozen
from child import Child
from kills import Kill, Moment, Trigger
from ledger import Ledger
from reports import Committing, Durable, Reads, Refused, Report, Restored, Resumed

SILENCE_S = 180.0


class RunError(Exception):
    """The run itself went wrong: the job ended by itself, or says nothing any more."""


@frozen
class Death:
    """
    What a kill hit.

    Attributes:
        number: Of the kill, from 1.
        during: What the job was doing.
        committing: How many tasks had a commit in flight.
        uncommitted: Rows that this life had read and that no acknowledged commit covers.
        wiped: Whether the state directory was removed afterwards.
    """

    number: int
    during: Moment
    committing: int
    uncommitted: int
    wiped: bool


@frozen
class Recovery:
    """
    What a restart cost.

    Attributes:
        seconds: From starting the process until the last task was open.
        sources: How many stores came from ``"local"`` images, from which backend, or were ``"new"``.
        repeated: Rows that had been read before and are read again.
    """

    seconds: float
    sources: Counter[str]
    repeated: int


class Audience(Protocol):
    """Who is shown the run."""

    def progress(self, ledger: Ledger) -> None:
        """Show how far the job has come; called for every report."""

    def killed(self, death: Death) -> None:
        """Show a kill."""

    def recovered(self, recovery: Recovery) -> None:
        """Show a restart that came through."""

    def refused(self, report: Refused) -> None:
        """Show a commit that is not known to have happened."""


@define
class Life:
    """What one process has told so far."""

    sources: Counter[str] = field(factory=Counter)
    committing: dict[str, str] = field(factory=dict)
    recovered: bool = False
    reports: int = 0

    def take(self, report: Report) -> None:
        """Enter *report*."""
        self.reports += 1
        match report:
            case Restored(source=source):
                self.sources[source] += 1
            case Committing(task, checkpoint):
                self.committing[task] = checkpoint
            case Durable(task, _, _) | Refused(task, _):
                self.committing.pop(task, None)

    def moment(self, planned: Moment, resumed: bool) -> Moment:
        """Say what the process was doing, which may be later than what was *planned*."""
        if not resumed:
            return Moment.RESTORING if self.reports else Moment.STARTING
        if planned is Moment.ACKNOWLEDGED or (planned is Moment.COMMITTING and self.committing):
            return planned
        return Moment.PROCESSING


@define
class Watch:
    """
    One run over all lives of the job.

    Attributes:
        ledger: What the job was told; this process keeps it, and lives.
        start: Starts the job again; given how many rows it may read, None being all.
        lose: Removes what a kill is to take away with it; given whether that is the state directory.
        audience: Who is shown what happens.
        journal: Gets what went into the ledger, a line each, for a look afterwards.
    """

    ledger: Ledger
    start: Callable[[int | None], Child]
    lose: Callable[[bool], None]
    audience: Audience
    journal: TextIO
    deaths: list[Death] = field(factory=list)

    def run(self, plan: Sequence[Kill]) -> None:
        """
        Carry out *plan*, then let the job come to its end.

        Raises:
            BrokenPromiseError: The job forgot or repeated what it must not.
            RunError: It ended before its time, or is silent.
        """
        for kill in plan:
            self._live_and_die(kill)
        with self.start(None) as child:
            self._follow(child, Life(), None)
            self._expect_end(child)

    def _live_and_die(self, kill: Kill) -> None:
        with self.start(kill.until) as child:
            life = Life()
            self._follow(child, life, Trigger(kill, child.started))
            if not child.kill():
                raise RunError(f"the job ended by itself (status {child.process.returncode}) before it was killed")
            for report in child.last_words():
                self._take(child, life, report)
        during = life.moment(kill.moment, self.ledger.resumed)
        self.lose(kill.wipe)
        number, committing = len(self.deaths) + 1, len(life.committing)
        self.deaths.append(Death(number, during, committing, self.ledger.uncommitted, kill.wipe))
        self.audience.killed(self.deaths[-1])
        self._note({"killed": during, "wiped": kill.wipe})
        self.ledger.died()

    def _follow(self, child: Child, life: Life, trigger: Trigger | None) -> None:
        """Take reports until it is time to kill, or the pipe ends."""
        while not child.ended:
            deadline = trigger.deadline() if trigger else None
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return
            report = child.next(SILENCE_S if deadline is None else deadline - now)
            if report is not None:
                self._take(child, life, report)
                if trigger:
                    trigger.see(report, self.ledger.furthest, time.monotonic())
            elif deadline is None and not child.ended:
                raise RunError(f"the job has said nothing for {SILENCE_S:.0f} s")

    def _take(self, child: Child, life: Life, report: Report) -> None:
        life.take(report)
        self.ledger.take(report)
        if isinstance(report, Resumed | Durable | Refused):
            self._note({"report": type(report).__name__, **asdict(report)})
        if isinstance(report, Refused):
            self.audience.refused(report)
        if self.ledger.resumed and not life.recovered:
            life.recovered = True
            self.audience.recovered(Recovery(time.monotonic() - child.started, life.sources, self.ledger.repeated))
        if isinstance(report, Reads):
            self.audience.progress(self.ledger)

    def _expect_end(self, child: Child) -> None:
        status = child.process.wait(SILENCE_S)
        if status != 0 or not self.ledger.finished:
            raise RunError(f"the job ended with status {status} before its last row was durable")

    def _note(self, values: dict[str, object]) -> None:
        self.journal.write(json.dumps(values) + "\n")
        self.journal.flush()
