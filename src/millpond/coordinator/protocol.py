"""
A member's side of the protocol: from orders and what its host did to steps and reports; no thread, no I/O.

It answers each order that was answered before in the same words, so nothing that is lost or doubled does harm, and it
does nothing for a coordinator whose epoch is over.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field, frozen

from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.messages import (
    Abandoned,
    Alive,
    Begin,
    Completed,
    Declined,
    Here,
    Joined,
    Order,
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
from millpond.coordinator.state import Place, State


@frozen
class RestoreTo:
    """Stop processing, and go to *checkpoint* (None: the state before the first one), where *state* says."""

    transaction: TransactionId
    checkpoint: JobCheckpointId | None
    state: State | None
    retained: tuple[JobCheckpointId, ...]


@frozen
class Run:
    """All members are restored: process."""

    transaction: TransactionId


@frozen
class Save:
    """An attempt began: a source saves now, and sends its barrier on."""

    attempt: JobCheckpointId


@frozen
class Drop:
    """An attempt will never be whole."""

    attempt: JobCheckpointId
    reason: str


@frozen
class Commit:
    """A job checkpoint is whole: what waited for it may go out; of older ones only *retained* have to stay."""

    attempt: JobCheckpointId
    retained: tuple[JobCheckpointId, ...]


@frozen
class End:
    """This start of the member is not wanted; *replaced*: since a later one has its place."""

    reason: str
    replaced: bool


@frozen
class Say:
    """Send *report* to the coordinator; it may be lost."""

    report: Report


Step = RestoreTo | Run | Save | Drop | Commit | End | Say


@define
class MemberProtocol:
    """
    One start of one member. One thread.

    Attributes:
        name: The member's name.
        incarnation: What no other start of it is called.
        place: Where in the topology it is.
        epoch: The greatest that any order had; orders of smaller ones come from a coordinator that was replaced.
        running: The restore after which it processes; None: it waits.
        restoring: The newest restore that was ordered.
        attempt: The attempt that it saves or has saved; None before the first after a restore.
        completed: The newest job checkpoint that it knows to be whole.
        ignored: How many orders counted for nothing.
    """

    name: str
    incarnation: str
    place: Place
    epoch: int = 0
    running: TransactionId | None = None
    restoring: TransactionId | None = None
    attempt: JobCheckpointId | None = None
    completed: JobCheckpointId | None = None
    ignored: int = 0
    _restored: bool = field(default=False, init=False)
    _said: Report | None = field(default=None, init=False)  # the answer to the newest attempt
    _floor: JobCheckpointId | None = field(default=None, init=False)  # no attempt up to here begins any more
    _announced: JobCheckpointId | None = field(default=None, init=False)

    # ----------------------------------------------------------------------------------------------------------- orders

    def join(self) -> Joined:
        """Give the report with which this start begins."""
        return Joined(member=self.name, incarnation=self.incarnation, place=self.place)

    def beat(self) -> Alive:
        """Give the report that says that it lives, and how far it is."""
        return Alive(
            member=self.name,
            incarnation=self.incarnation,
            running=self.running,
            completed=self.completed,
            waiting=self.waiting,
        )

    @property
    def waiting(self) -> JobCheckpointId | None:
        """The attempt that this member has begun to save and of whose outcome it has not heard."""
        attempt = self.attempt
        if attempt is None or any(known is not None and attempt <= known for known in (self._floor, self.completed)):
            return None
        return attempt

    def order(self, order: Order) -> Sequence[Step]:
        """Take an *order*; give what to do, in order."""
        if isinstance(order, Refused | Restore) and order.incarnation != self.incarnation:
            return self._ignore()  # another start of this member is meant
        if order.epoch < self.epoch:
            return self._ignore()
        self.epoch = order.epoch
        match order:
            case Here():
                return ()
            case Restore():
                return self._restore(order)
            case Start():
                return self._start(order)
            case Begin():
                return self._begin(order)
            case Abandoned():
                return self._abandoned(order)
            case Completed():
                return self._completed(order)
            case Rejoin():
                return (Say(self.join()),)
            case Refused():
                return (End(order.reason, order.replaced),)

    def _restore(self, order: Restore) -> Sequence[Step]:
        if self.restoring is not None and order.transaction <= self.restoring:
            if order.transaction == self.restoring and self._restored:
                return (Say(self._restored_report(order.transaction)),)
            return self._ignore()
        self.restoring, self.running = order.transaction, None
        self._restored, self._said, self.attempt = False, None, None
        if order.checkpoint is not None and (self.completed is None or order.checkpoint > self.completed):
            self.completed = order.checkpoint
        return (RestoreTo(order.transaction, order.checkpoint, order.state, order.retained),)

    def _start(self, order: Start) -> Sequence[Step]:
        if order.transaction != self.restoring or not self._restored or self.running is not None:
            return self._ignore()
        self.running = order.transaction
        return (Run(order.transaction),)

    def _begin(self, order: Begin) -> Sequence[Step]:
        if self.running is None or order.transaction != self.running:
            return self._ignore()
        if order.attempt == self.attempt and self._said is not None:
            return (Say(self._said),)
        if self.is_over(order.attempt) or order.attempt == self._announced:
            return self._ignore()
        self._announced = order.attempt
        return (Save(order.attempt),)

    def _abandoned(self, order: Abandoned) -> Sequence[Step]:
        if self._floor is not None and order.attempt <= self._floor:
            return self._ignore()
        self._floor = order.attempt
        return (Drop(order.attempt, order.reason),)

    def _completed(self, order: Completed) -> Sequence[Step]:
        if self.completed is not None and order.attempt <= self.completed:
            return self._ignore()
        self.completed = order.attempt
        return (Commit(order.attempt, order.retained),)

    def _ignore(self) -> Sequence[Step]:
        self.ignored += 1
        return ()

    # ----------------------------------------------------------------------------------------------- what the host did

    def is_over(self, attempt: JobCheckpointId) -> bool:
        """Whether *attempt* cannot begin here any more: it was abandoned, or it or a later one has begun."""
        return any(known is not None and attempt <= known for known in (self._floor, self.attempt, self.completed))

    def restored(self, transaction: TransactionId) -> Sequence[Step]:
        """The member is as *transaction* says; nothing to report if a later restore was ordered meanwhile."""
        if transaction != self.restoring:
            return ()
        self._restored = True
        return (Say(self._restored_report(transaction)),)

    def unrestorable(self, transaction: TransactionId, reason: str, *, damaged: bool) -> Sequence[Step]:
        """The member cannot be as *transaction* says; it takes the same order again."""
        if transaction != self.restoring:
            return ()
        return (
            Say(
                Unrestorable(
                    member=self.name,
                    incarnation=self.incarnation,
                    transaction=transaction,
                    reason=reason,
                    damaged=damaged,
                )
            ),
        )

    def begin_saving(self, attempt: JobCheckpointId) -> bool:
        """Begin to save for *attempt*, on the host's word; False: it is over, or no restore is complete."""
        if self.running is None or self.is_over(attempt):
            return False
        self.attempt, self._said = attempt, None
        return True

    def saved(self, attempt: JobCheckpointId, state: State) -> Sequence[Step]:
        """The *state* is durable; nothing to report if the attempt is over meanwhile."""
        if not self._is_saving(attempt):
            return ()
        assert self.running is not None
        return self._answer(
            Saved(
                member=self.name,
                incarnation=self.incarnation,
                transaction=self.running,
                attempt=attempt,
                state=state,
            )
        )

    def declined(self, attempt: JobCheckpointId, reason: str) -> Sequence[Step]:
        """Nothing can be saved for *attempt*."""
        if self.running is None or (attempt != self.attempt and not self.begin_saving(attempt)):
            return ()
        return self._answer(
            Declined(
                member=self.name,
                incarnation=self.incarnation,
                transaction=self.running,
                attempt=attempt,
                reason=reason,
            )
        )

    def reset(self, reason: str) -> Sequence[Step]:
        """Ask for a restore of all; nothing while none is complete or under way."""
        if self.restoring is None:
            return ()
        return (Say(Reset(member=self.name, incarnation=self.incarnation, transaction=self.restoring, reason=reason)),)

    def _is_saving(self, attempt: JobCheckpointId) -> bool:
        return self.running is not None and attempt == self.attempt and self._said is None

    def _answer(self, report: Report) -> Sequence[Step]:
        self._said = report
        return (Say(report),)

    def _restored_report(self, transaction: TransactionId) -> Restored:
        return Restored(member=self.name, incarnation=self.incarnation, transaction=transaction)
