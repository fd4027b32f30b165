"""
A member as its host holds it: it carries out the coordinator's orders on the processing thread, between records.

::

    with Member("count-0", place, TaskKeeper(job, "count-0"), link.member_end("count-0"), Counting()) as member:
        while member.poll(0 if there_is_work else 0.1):
            if member.may_process:
                process_some()          # and member.save(attempt) where a barrier says so
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from millpond.coordinator import events, lines
from millpond.coordinator.alignment import Aligned, Overflowed
from millpond.coordinator.beat import Beater
from millpond.coordinator.ends import MemberEnd
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.keepers import Keeper, is_damage
from millpond.coordinator.messages import Left, Order
from millpond.coordinator.participant import Participant
from millpond.coordinator.protocol import Commit, Drop, End, MemberProtocol, RestoreTo, Run, Save, Say, Step
from millpond.coordinator.state import Place, State
from millpond.errors import ConfigError, FencedError, FormatError, MillpondError
from millpond.events import Event, Listeners
from millpond.lanes import Workers


class Member:
    """
    One start of one member. ``poll`` and what it calls belong to the processing thread. A context manager.

    Attributes:
        name: Its name.
        incarnation: What no other start of it is called.
        keeper: Its state.
    """

    def __init__(
        self,
        name: str,
        place: Place,
        keeper: Keeper,
        end: MemberEnd,
        participant: Participant,
        *,
        two_phase: bool = False,
        job: str = "",
        listeners: Iterable[Callable[[Event], None]] = (),
        workers: Workers | None = None,
        beater: Beater | None = None,
    ) -> None:
        """
        Prepare; entering the block joins.

        Args:
            name: The member's name in the topology.
            place: Its place there.
            keeper: Saves and restores its state; closed with the member.
            end: Its way to the coordinator; closed with the member.
            participant: The host.
            two_phase: After a save it does not process before it hears whether the job checkpoint is whole.
            job: The job's name, for events.
            listeners: Told of events, beside the log.
            workers: Threads for what need not hold up processing; members of a process may share them.
            beater: Says regularly that members live; members of a process may share it.
        """
        self.name = name
        self.incarnation = secrets.token_hex(8)
        self.keeper = keeper
        self._participant = participant
        self._protocol = MemberProtocol(name, self.incarnation, place)
        self._end = end
        self._two_phase = two_phase
        self._job = job
        self._listener = Listeners.of([lines.LogListener(), *listeners])
        self._own_workers = None if workers is not None else Workers("member", 1)
        self._workers = workers or self._own_workers
        self._own_beater = None if beater is not None else Beater()
        self._beater = beater or self._own_beater
        self._lock = threading.RLock()  # the protocol's
        self._steps: deque[Step] = deque()
        self._arrived = threading.Condition(threading.Lock())
        self._at: TransactionId | None = None  # the state is as this restore said
        self._started = False  # the host was told so, after that restore
        self._failure: BaseException | None = None
        self._closed = False

    # ----------------------------------------------------------------------------------------------------------- hosts

    def __enter__(self) -> Self:
        """Join the job."""
        self._end.open(self._order)
        with self._lock:
            self._end.send(self._protocol.join())
        assert self._beater is not None
        self._beater.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave."""
        self.close(f"it failed: {error}" if error is not None else "")

    @property
    def transaction(self) -> TransactionId | None:
        """The restore after which the present state was made; None before the first. Channels belong to it."""
        return self._at

    @property
    def may_process(self) -> bool:
        """Whether the host may process: everybody is restored, and a two-phase member waits for no outcome."""
        protocol = self._protocol
        if self._at is None or not self._started or protocol.running != self._at:
            return False
        return not (self._two_phase and protocol.waiting is not None)

    def poll(self, timeout_s: float = 0.0) -> bool:
        """
        Carry out what was ordered; wait at most *timeout_s* seconds if nothing was. True: go on.

        Raises:
            FencedError: A later start of this member has its place.
            ConfigError: The coordinator refuses it; the message says what to correct.
        """
        if not self._steps and timeout_s > 0:
            with self._arrived:
                self._arrived.wait_for(
                    lambda: bool(self._steps) or self._closed or self._failure is not None, timeout_s
                )
        while self._steps:
            self._carry_out(self._steps.popleft())
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return not self._closed

    def save(self, attempt: JobCheckpointId) -> bool:
        """
        Save for *attempt*, now that all of its barriers are here; False: it is over, and the barrier goes no further.

        Send the barrier on before anything else is sent.

        Raises:
            FencedError, StoreClosedError: The task is over.
        """
        with self._lock:
            if self._protocol.running != self._at or not self._protocol.begin_saving(attempt):
                return False
        self._participant.pre_save(attempt)
        try:
            saved = self.keeper.save(attempt)
        except FencedError:
            raise
        except MillpondError as error:
            self.decline(attempt, str(error))
            return True
        saved.add_done_callback(lambda done: self._saved(attempt, done))
        return True

    def take(self, mark: Aligned | Overflowed) -> bool:
        """Take a mark out of the aligner's stream: save, or decline; True: send the barrier on."""
        if isinstance(mark, Aligned):
            self._listener(
                events.BarriersAligned(
                    job=self._job,
                    task=self.name,
                    attempt=mark.attempt,
                    duration_s=mark.duration_s,
                    held_size=mark.held_size,
                    spilled_size=mark.spilled_size,
                )
            )
            return self.save(mark.attempt)
        self.decline(
            mark.attempt,
            f"{mark.held_size:,} bytes were held while barriers were missing, over the limit of {mark.limit:,}",
        )
        return False

    def decline(self, attempt: JobCheckpointId, reason: str) -> None:
        """Say that nothing can be saved for *attempt*; any thread."""
        with self._lock:
            self._say(self._protocol.declined(attempt, reason))

    def reset(self, reason: str) -> None:
        """Ask for a restore of all, e.g. since records to or from a peer were lost."""
        with self._lock:
            self._say(self._protocol.reset(reason))

    def close(self, reason: str = "") -> None:
        """Leave the job, and close the state; nothing is saved. Idempotent."""
        if self._closed:
            return
        self._closed = True
        assert self._beater is not None
        self._beater.remove(self)
        self._end.send(Left(member=self.name, incarnation=self.incarnation, reason=reason[:500]))
        self._end.close()
        try:
            self.keeper.close()
        finally:
            if self._own_beater is not None:
                self._own_beater.close()
            if self._own_workers is not None:
                self._own_workers.close(5.0)

    # ---------------------------------------------------------------------------------------------------- other threads

    def beat(self) -> None:
        """Say that it lives; any thread."""
        with self._lock:
            if not self._closed:
                self._end.send(self._protocol.beat())

    def _order(self, order: Order) -> None:
        """Take an order; on the transport's thread."""
        with self._lock:
            self._say(self._protocol.order(order))

    def _saved(self, attempt: JobCheckpointId, saved: Future[State]) -> None:
        """Report what was saved; on whichever thread it became durable."""
        error = saved.exception()
        if error is None:
            try:
                with self._lock:
                    self._say(self._protocol.saved(attempt, saved.result()))
                return
            except FormatError as too_large:
                error = too_large
        self.decline(attempt, str(error) or type(error).__name__)
        if isinstance(error, FencedError):
            self._fail(error)

    def _say(self, steps: Iterable[Step]) -> None:
        """Send reports at once; all else waits for the processing thread."""
        for step in steps:
            if isinstance(step, Say):
                self._end.send(step.report)
                continue
            with self._arrived:
                self._steps.append(step)
                self._arrived.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._arrived:
            self._failure = error
            self._arrived.notify_all()

    # -------------------------------------------------------------------------------------------- the processing thread

    def _carry_out(self, step: Step) -> None:
        match step:
            case RestoreTo():
                if step.transaction == self._protocol.restoring:  # else another was ordered meanwhile
                    self._restore(step)
            case Run(transaction):
                if transaction == self._at:
                    self._started = True
                    self._participant.start(transaction)
            case Save(attempt):
                self._participant.begin(attempt)
            case Drop(attempt, reason):
                self._participant.abandoned(attempt, reason)
            case Commit(attempt, retained):
                self._participant.completed(attempt)
                self._clean(retained, attempt)
            case End(reason, replaced):
                raise FencedError(reason) if replaced else ConfigError(reason)
            case Say(report):
                self._end.send(report)

    def _restore(self, step: RestoreTo) -> None:
        if self._at is not None:
            self._participant.pre_restore()
        self._at, self._started = None, False
        try:
            self.keeper.restore(step.checkpoint, step.state)
            self._participant.restored(step.checkpoint, step.transaction)
        except FencedError:
            raise
        except MillpondError as error:
            with self._lock:
                self._say(
                    self._protocol.unrestorable(
                        step.transaction, str(error) or type(error).__name__, damaged=is_damage(error)
                    )
                )
            return
        self._at = step.transaction
        with self._lock:
            self._say(self._protocol.restored(step.transaction))

    def _clean(self, retained: tuple[JobCheckpointId, ...], newest: JobCheckpointId) -> None:
        assert self._workers is not None
        self._workers.call_later(lambda: self._clean_now(retained, newest))

    def _clean_now(self, retained: tuple[JobCheckpointId, ...], newest: JobCheckpointId) -> None:
        try:
            self.keeper.keep(retained, newest)
        except Exception as error:  # noqa: BLE001 - what stays is restorable, and goes with the next job checkpoint
            self._listener(events.SavedStateRemovalFailed(job=self._job, task=self.name, error=error))
