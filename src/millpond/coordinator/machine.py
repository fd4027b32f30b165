"""
The coordinator's state machine: from facts to decisions, without clock, disk, thread or network.

::

    GATHERING  some member is missing, or a restore has to wait
        all are here, nothing is being written  ->  RESTORING
    RESTORING  every member was told where to go, under a transaction of its own
        every member answered, and the transaction is in the record
                                                ->  RUNNING, and all are told to start
        one cannot, its part is damaged         ->  the next older job checkpoint, for all
    RUNNING    attempts at job checkpoints, one at a time
        a member is lost, replaced, or asks     ->  GATHERING; the attempt is abandoned

An attempt's members are all members of the topology, fixed when it begins. When the last has saved, a record with it is
written; only then is the attempt *completed*, and a restore that is due meanwhile waits for the outcome. Members start
only after a write, too: whoever was replaced is refused there. So no restart goes back before a job checkpoint that
anybody was told to be complete. The semantics are Heron's
(``StatefulController``, ``Checkpointer``, ``Restorer``), without their races: numbers come from the leadership's epoch,
answers of another transaction, attempt, or start of a member count for nothing, and the record is compared and set.

Each fact costs the same however many members there are, but for those that begin or end an attempt or a restore.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millpond.coordinator import events
from millpond.coordinator.choice import choose_checkpoint, refuse_other_topology, retained
from millpond.coordinator.decisions import Broadcast, Decision, Fail, Send, Tell, Write
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.messages import (
    Abandoned,
    Alive,
    Begin,
    Completed,
    Declined,
    Here,
    Joined,
    Left,
    Refused,
    Rejoin,
    Report,
    Reset,
    Restore,
    Restored,
    Saved,
    Start,
    Unrestorable,
)
from millpond.coordinator.record import JobCheckpoint, JobRecord
from millpond.coordinator.roster import Roster
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.standing import Attempt, Counts, Phase, Restoring, Writing
from millpond.coordinator.state import MemberState, State
from millpond.errors import ConfigError, StateNotFoundError
from millpond.events import Event

_LONGEST_RETRY_S = 60.0


class CoordinatorMachine:
    """
    One leadership's coordinator. One thread; *now* is always monotonic seconds and never goes back.

    Attributes:
        record: The record as it is known to be written.
        phase: What the job is doing.
        counts: For metrics.
        running: The restore after which the members process; None before the first.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        epoch: int,
        record: JobRecord | None,
        now: float,
        millis: Callable[[], int] = lambda: 0,
    ) -> None:
        """
        Begin a leadership of *epoch* from the *record* that was read after the election; None: there is none.

        *millis* gives the wall clock, for people only.

        Raises:
            ConfigError: The record is another job's.
        """
        self.record = record or JobRecord(settings.job, settings.job_id)
        if (self.record.job, self.record.job_id) != (settings.job, settings.job_id):
            raise ConfigError(
                f"the coordinator's record is of job {self.record.job!r} ({self.record.job_id}), not of "
                f"{settings.job!r} ({settings.job_id}): give each job a place of its own"
            )
        newest = self.record.newest
        if newest is not None and newest.id.epoch >= epoch:
            raise ConfigError(
                f"the epoch {epoch} is not after that of job checkpoint {newest.id}: the place of the coordinator's "
                f"record was emptied or replaced; bring it back, or keep its epochs"
            )
        self.phase = Phase.GATHERING
        self.counts = Counts()
        self.running: TransactionId | None = None
        self._settings = settings
        self._epoch = epoch
        self._millis = millis
        self._roster = Roster(settings.job, settings.members)
        self._attempt: Attempt | None = None
        self._writing: Writing | None = None
        self._restoring: Restoring | None = None
        self._attempts = 0
        self._transactions = 0
        self._unreadable: set[JobCheckpointId] = set()
        self._base: JobCheckpointId | None = None  # what the members were restored to, or completed since
        self._next_attempt = 0.0
        self._requested: list[str] = []
        self._forgotten: set[str] = set()  # names of savepoints that retention may have
        self._reason = "the coordinator was elected"
        self._retry_at = now
        self._here_at = now
        self._missing_at = now + settings.silence_s
        self._asked_at = now  # what was asked for waits until then
        self._now = now
        self._retry_s = settings.retry_s
        self._out: list[Decision] = []

    # ------------------------------------------------------------------------------------------------------------ facts

    def report(self, report: Report, now: float) -> Sequence[Decision]:
        """Take a member's *report*."""
        self._now = now
        if self.phase is Phase.STUCK:
            return ()
        if isinstance(report, Joined):
            self._joined(report, now)
        elif self._is_current(report, now):
            _HANDLERS[type(report)](self, report, now)
        return self._decided()

    def tick(self, now: float) -> Sequence[Decision]:
        """Look at the time: who is silent, what is due, what has to be asked again."""
        self._now = now
        if self.phase is Phase.STUCK:
            return ()
        if now >= self._here_at:
            self._here_at = now + self._settings.silence_s / 3
            self._broadcast(Here(epoch=self._epoch))
        self._lose_silent(now)
        self._tell_missing(now)
        if self._attempt is not None:
            self._mind_attempt(self._attempt, now)
        if self._restoring is not None:
            self._mind_restore(self._restoring, now)
        self._restore_if_all_are_here(now)
        self._begin_if_due(now)
        return self._decided()

    def request(self, name: str, now: float) -> Sequence[Decision]:
        """
        Begin an attempt as soon as none is in flight; with a *name* its checkpoint stays as a savepoint.

        A name that a savepoint has already, or will have, changes nothing.
        """
        if name and (name in self._requested or name in {c.name for c in self.record.checkpoints}):
            return ()
        self._forgotten.discard(name)
        self._requested.append(name)
        self._begin_if_due(now)
        return self._decided()

    def forget(self, name: str, now: float) -> Sequence[Decision]:
        """Let retention have the savepoint *name* from the next job checkpoint on."""
        self._forgotten.add(name)
        return self._decided()

    def written(self, now: float) -> Sequence[Decision]:
        """Take note that the record of the last ``Write`` is durable."""
        writing, self._writing = self._writing, None
        if writing is None:
            return ()
        self.record = writing.record
        if writing.attempt is not None:
            self._completed(writing.attempt, now)
        if writing.restoring is not None and writing.restoring is self._restoring:
            self._start(writing.restoring, now)
        self._restore_if_all_are_here(now)
        self._begin_if_due(now)
        return self._decided()

    def _completed(self, attempt: Attempt, now: float) -> None:
        """The record names it: tell everybody."""
        retained = self.record.ids
        self._base = attempt.id if self.phase is Phase.RUNNING else self._base
        self._unreadable &= set(retained)
        self.counts.completed += 1
        self._broadcast(Completed(epoch=self._epoch, attempt=attempt.id, retained=retained))
        self._tell(
            events.JobCheckpointCompleted(
                job=self._settings.job,
                id=attempt.id,
                members=len(attempt.states),
                duration_s=now - attempt.begun,
                retained=retained,
            )
        )
        self._next_attempt = max(self._next_attempt, now + self._settings.pause_s)

    def next_look(self, now: float) -> float:
        """Give the seconds until ``tick`` should be called again, whatever happens meanwhile."""
        return min(self._settings.resend_s, self._settings.silence_s / 3, max(0.0, self._due_in(now))) or 0.01

    def _due_in(self, now: float) -> float:
        if self.phase is Phase.RUNNING:
            return self._next_attempt - now
        return self._settings.resend_s if self._retry_at <= now else self._retry_at - now

    # ---------------------------------------------------------------------------------------------------------- members

    def _is_current(self, report: Report, now: float) -> bool:
        """Whether *report* comes from the start of the member that counts; if so it was heard now."""
        if self._roster.hear(report.member, report.incarnation, now):
            return True
        self.counts.ignored += 1
        if isinstance(report, Left):
            return False
        if self._roster.is_past(report.member, report.incarnation):
            self._refuse_replaced(report)
        elif report.member in self._settings.members:
            self._send(report.member, Rejoin(epoch=self._epoch))
        return False

    def _refuse_replaced(self, report: Report) -> None:
        reason = f"a later start of member {report.member!r} has taken its place: stop this one"
        self._send(
            report.member,
            Refused(epoch=self._epoch, incarnation=report.incarnation, reason=reason, replaced=True),
        )

    def _joined(self, report: Joined, now: float) -> None:
        if self._roster.hear(report.member, report.incarnation, now):
            self._repeat_restore(report.member)
        elif self._roster.is_past(report.member, report.incarnation):
            self._refuse_replaced(report)
        elif problem := self._roster.misplaced(report.member, report.place):
            self._tell(events.MemberRefused(job=self._settings.job, task=report.member, reason=problem))
            self._send(report.member, Refused(epoch=self._epoch, incarnation=report.incarnation, reason=problem))
        else:
            self._welcome(report, now)

    def _welcome(self, report: Joined, now: float) -> None:
        replaced = self._roster.admit(report.member, report.incarnation, now)
        self._tell(
            events.MemberJoined(
                job=self._settings.job, task=report.member, incarnation=report.incarnation, replaced=replaced
            )
        )
        self._disturb(f"member {report.member!r} has {'started again' if replaced else 'joined'}")
        self._restore_if_all_are_here(now)

    def _lose_silent(self, now: float) -> None:
        while (silent := self._roster.longest_silent(now)) is not None and silent[1] >= self._settings.silence_s:
            self._lose(silent[0], f"it was silent for {silent[1]:.1f} s")

    def _tell_missing(self, now: float) -> None:
        """Say from time to time for whom the whole job waits."""
        if self.phase is not Phase.GATHERING or self._roster.is_complete or now < self._missing_at:
            return
        self._missing_at = now + 3 * self._settings.silence_s
        self._tell(events.MembersMissing(job=self._settings.job, members=self._roster.missing()))

    def _lose(self, member: str, reason: str, *, for_good: bool = False) -> None:
        incarnation = self._roster.remove(member, for_good=for_good)
        self._tell(events.MemberLost(job=self._settings.job, task=member, incarnation=incarnation, reason=reason))
        self._disturb(f"member {member!r} is lost: {reason}")

    def _left(self, report: Left, now: float) -> None:
        self._lose(report.member, report.reason or "it has left", for_good=True)

    def _alive(self, report: Alive, now: float) -> None:
        """Send again what this member seems not to have got."""
        self._tell_outcome(report)
        if self.phase is Phase.RUNNING and self.running is not None and report.running != self.running:
            self._resend(report.member, Start(epoch=self._epoch, transaction=self.running))
        newest = self.record.newest
        if newest is None or newest.id != self._base or self.running is None or report.running != self.running:
            return
        if report.completed is None or report.completed < newest.id:
            self._resend(report.member, Completed(epoch=self._epoch, attempt=newest.id, retained=self.record.ids))

    def _tell_outcome(self, report: Alive) -> None:
        """Tell a member that waits for an attempt's outcome that it was given up, unless it is still under way."""
        waiting = report.waiting
        newest = self.record.newest
        under_way = self._attempt or (self._writing.attempt if self._writing else None)
        if waiting is None or (under_way is not None and waiting >= under_way.id):
            return
        if newest is None or waiting > newest.id:
            reason = "it was given up, and word of that was lost"
            self._resend(report.member, Abandoned(epoch=self._epoch, attempt=waiting, reason=reason))

    def _disturb(self, reason: str) -> None:
        """Stop whatever needs all members: one of them is not, or no longer, what it was."""
        self._reason = reason
        if self._attempt is not None:
            self._abandon(self._attempt, reason)
        self._restoring, self.running = None, None
        self.phase = Phase.GATHERING

    # --------------------------------------------------------------------------------------------------------- attempts

    def _begin_if_due(self, now: float) -> None:
        asked = bool(self._requested) and now >= self._asked_at
        if self.phase is not Phase.RUNNING or not (asked or now >= self._next_attempt):
            return
        busy = self._attempt or (self._writing.attempt if self._writing else None)
        if busy is None:
            self._begin(now)
        elif now >= self._next_attempt:
            self._skip(busy, now)

    def _begin(self, now: float) -> None:
        assert self.running is not None
        self._attempts += 1
        name = self._requested.pop(0) if self._requested else ""
        id = JobCheckpointId(self._epoch, self._attempts)
        self._attempt = Attempt(id, now, now, set(self._settings.members), name)
        self._next_attempt = now + self._settings.interval_s
        self.counts.attempts += 1
        self._broadcast(Begin(epoch=self._epoch, transaction=self.running, attempt=id))
        self._tell(events.JobCheckpointStarted(job=self._settings.job, attempt=id, members=len(self._settings.members)))

    def _skip(self, busy: Attempt, now: float) -> None:
        self._next_attempt = now + self._settings.interval_s
        self.counts.skipped += 1
        self._tell(
            events.JobCheckpointSkipped(
                job=self._settings.job, in_flight=busy.id, age_s=now - busy.begun, missing=len(busy.waiting)
            )
        )

    def _saved(self, report: Saved, now: float) -> None:
        attempt = self._attempt_of(report)
        if attempt is None or report.member not in attempt.waiting:
            self.counts.ignored += 1
            return
        self.counts.saved += 1
        attempt.waiting.discard(report.member)
        attempt.states[report.member] = MemberState(self._settings.members[report.member], report.state)
        if not attempt.waiting:
            self._complete(attempt)

    def _attempt_of(self, report: Saved | Declined) -> Attempt | None:
        """Give the attempt that *report* belongs to; None unless it is the one in flight, after the same restore."""
        attempt = self._attempt
        if attempt is None or attempt.id != report.attempt or report.transaction != self.running:
            return None
        return attempt

    def _declined(self, report: Declined, now: float) -> None:
        attempt = self._attempt_of(report)
        if attempt is None:
            self.counts.ignored += 1
            return
        self._abandon(attempt, f"member {report.member!r} cannot save: {report.reason}")
        self._next_attempt = max(self._next_attempt, now + self._settings.pause_s)

    def _complete(self, attempt: Attempt) -> None:
        """All members have saved: the record is next."""
        checkpoint = JobCheckpoint(attempt.id, self._millis(), attempt.states, attempt.name, self._base)
        kept = retained(
            self.record.checkpoints,
            self._base,
            self._settings.retain - (0 if attempt.name else 1),
            self._forgotten,
        )
        record = JobRecord(self.record.job, self.record.job_id, (checkpoint, *kept), self.running)
        self._attempt = None
        self._write(Writing(record, attempt=attempt))

    def _write(self, writing: Writing) -> None:
        self._writing = writing
        self._out.append(Write(writing.record))

    def _abandon(self, attempt: Attempt, reason: str) -> None:
        self._attempt = None
        if attempt.name:
            self._requested.insert(0, attempt.name)  # whoever asked for a savepoint wants one
        self._asked_at = self._now + max(self._settings.pause_s, self._settings.resend_s)
        self.counts.abandoned += 1
        self._broadcast(Abandoned(epoch=self._epoch, attempt=attempt.id, reason=reason))
        self._tell(
            events.JobCheckpointAbandoned(
                job=self._settings.job, attempt=attempt.id, reason=reason, missing=len(attempt.waiting)
            )
        )

    def _mind_attempt(self, attempt: Attempt, now: float) -> None:
        if now - attempt.begun >= self._settings.timeout_s:
            some = ", ".join(sorted(attempt.waiting)[:5])
            self._abandon(
                attempt, f"{len(attempt.waiting)} members have not saved in {self._settings.timeout_s:g} s: {some}"
            )
            self._next_attempt = max(self._next_attempt, now + self._settings.pause_s)
        elif now - attempt.asked >= self._settings.resend_s:
            attempt.asked = now
            assert self.running is not None
            for member in sorted(attempt.waiting):
                self._resend(member, Begin(epoch=self._epoch, transaction=self.running, attempt=attempt.id))

    # --------------------------------------------------------------------------------------------------------- restores

    def _restore_if_all_are_here(self, now: float) -> None:
        """Order a restore when nothing stands in its way; a record that is being written does."""
        if self.phase is not Phase.GATHERING or self._writing is not None or now < self._retry_at:
            return
        if self._roster.is_complete:
            self._order_restore(now)

    def _order_restore(self, now: float) -> None:
        try:
            checkpoint = choose_checkpoint(self.record, self._unreadable, allow_empty=self._settings.allow_empty)
            if checkpoint is not None:
                refuse_other_topology(checkpoint, self._settings.members)
        except (ConfigError, StateNotFoundError) as error:
            self._fail(error)
            return
        self._tell_older(checkpoint)
        self._transactions += 1
        transaction = TransactionId(self._epoch, self._transactions)
        self._restoring = Restoring(transaction, checkpoint, now, now, set(self._settings.members))
        self.phase, self.running = Phase.RESTORING, None
        self.counts.restores += 1
        id = None if checkpoint is None else checkpoint.id
        self._tell(
            events.JobRestoreStarted(
                job=self._settings.job, transaction=transaction, checkpoint=id, reason=self._reason
            )
        )
        for member in self._settings.members:
            self._send_restore(member, self._restoring)

    def _tell_older(self, chosen: JobCheckpoint | None) -> None:
        newest = self.record.newest
        if newest is not None and (chosen is None or chosen.id != newest.id):
            id = None if chosen is None else chosen.id
            self._tell(events.OlderJobCheckpointChosen(job=self._settings.job, damaged=newest.id, chosen=id))

    def _fail(self, error: Exception) -> None:
        self.phase = Phase.STUCK
        self._out.append(Fail(error))

    def _send_restore(self, member: str, restoring: Restoring) -> None:
        checkpoint = restoring.checkpoint
        state: State | None = None if checkpoint is None else checkpoint.members[member].state
        self._send(
            member,
            Restore(
                epoch=self._epoch,
                incarnation=self._roster.incarnation(member),
                transaction=restoring.transaction,
                checkpoint=None if checkpoint is None else checkpoint.id,
                state=state,
                retained=self.record.ids,
            ),
        )

    def _repeat_restore(self, member: str) -> None:
        if self._restoring is not None and member in self._restoring.waiting:
            self.counts.resent += 1
            self._send_restore(member, self._restoring)

    def _restored(self, report: Restored, now: float) -> None:
        restoring = self._restoring
        if restoring is None or restoring.transaction != report.transaction or report.member not in restoring.waiting:
            self.counts.ignored += 1
            return
        restoring.waiting.discard(report.member)
        if not restoring.waiting:
            record = JobRecord(self.record.job, self.record.job_id, self.record.checkpoints, restoring.transaction)
            self._write(Writing(record, restoring=restoring))

    def _start(self, restoring: Restoring, now: float) -> None:
        self._restoring, self.phase, self.running = None, Phase.RUNNING, restoring.transaction
        self._base = None if restoring.checkpoint is None else restoring.checkpoint.id
        self._next_attempt = now + self._settings.interval_s
        self._retry_s = self._settings.retry_s
        self.counts.restored += 1
        self._broadcast(Start(epoch=self._epoch, transaction=restoring.transaction))
        self._tell(
            events.JobRestored(
                job=self._settings.job,
                transaction=restoring.transaction,
                checkpoint=self._base,
                duration_s=now - restoring.begun,
            )
        )

    def _unrestorable(self, report: Unrestorable, now: float) -> None:
        restoring = self._restoring
        if restoring is None or restoring.transaction != report.transaction:
            self.counts.ignored += 1
            return
        checkpoint = restoring.checkpoint
        damaged = report.damaged and checkpoint is not None
        if damaged and checkpoint is not None:
            self._unreadable.add(checkpoint.id)
        else:
            self._retry_at, self._retry_s = now + self._retry_s, min(self._retry_s * 2, _LONGEST_RETRY_S)
        self._tell(
            events.JobRestoreFailed(
                job=self._settings.job,
                task=report.member,
                transaction=restoring.transaction,
                checkpoint=None if checkpoint is None else checkpoint.id,
                reason=report.reason,
                damaged=damaged,
            )
        )
        self._disturb(f"member {report.member!r} cannot be restored: {report.reason}")
        self._restore_if_all_are_here(now)

    def _reset(self, report: Reset, now: float) -> None:
        under_way = self._restoring.transaction if self._restoring is not None else self.running
        if under_way is None or report.transaction != under_way:
            self.counts.ignored += 1
            return
        self._disturb(f"member {report.member!r} asks for a restore: {report.reason}")
        self._restore_if_all_are_here(now)

    def _mind_restore(self, restoring: Restoring, now: float) -> None:
        if not restoring.waiting:
            return  # only the record is missing
        if now - restoring.begun >= self._settings.restore_timeout_s:
            some = ", ".join(sorted(restoring.waiting)[:5])
            self._disturb(f"{len(restoring.waiting)} members did not answer the last restore: {some}")
        elif now - restoring.asked >= self._settings.resend_s:
            restoring.asked = now
            for member in sorted(restoring.waiting):
                self._repeat_restore(member)

    # -------------------------------------------------------------------------------------------------------- decisions

    def _send(self, member: str, order: Restore | Refused | Rejoin) -> None:
        self._out.append(Send(member, order))

    def _resend(self, member: str, order: Begin | Start | Completed | Abandoned) -> None:
        self.counts.resent += 1
        self._out.append(Send(member, order))

    def _broadcast(self, order: Here | Begin | Start | Abandoned | Completed) -> None:
        self._out.append(Broadcast(order))

    def _tell(self, event: Event) -> None:
        self._out.append(Tell(event))

    def _decided(self) -> Sequence[Decision]:
        out, self._out = self._out, []
        return out


_HANDLERS: dict[type, Callable[..., None]] = {
    Alive: CoordinatorMachine._alive,  # noqa: SLF001 - the class's own table
    Declined: CoordinatorMachine._declined,  # noqa: SLF001
    Left: CoordinatorMachine._left,  # noqa: SLF001
    Reset: CoordinatorMachine._reset,  # noqa: SLF001
    Restored: CoordinatorMachine._restored,  # noqa: SLF001
    Saved: CoordinatorMachine._saved,  # noqa: SLF001
    Unrestorable: CoordinatorMachine._unrestorable,  # noqa: SLF001
}
