"""The commit engine of one task; the story is in the package's own words, in ``millpond.commit``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial

from millpond.checkpoint import Checkpoint, CheckpointId, SystemStreamPartition
from millpond.commit.attempt import Attempt
from millpond.commit.backing import Backing
from millpond.commit.decisions import (
    Admission,
    admit,
    checkpoint_markers,
    mixed_stores,
    outcome,
    over_the_allowance,
)
from millpond.commit.imaging import Imaging
from millpond.commit.keeping import Keeping
from millpond.commit.parts import CommitPolicy, CommitTask
from millpond.commit.point import CommitPoint
from millpond.commit.stores import CommittedStore
from millpond.errors import (
    CommitError,
    CommitTimeoutError,
    CommitUnknownError,
    FencedError,
    StoreClosedError,
)
from millpond.events import (
    CleanupFailed,
    CommitFailed,
    CommitPublished,
    CommitSkipped,
    CommitStarted,
    TaskFailed,
    TaskFenced,
)
from millpond.patience import Asking, directly
from millpond.points import reached


class CommitEngine:
    """
    Commits one task. ``commit`` and ``commit_now`` are for the processing thread; ``over`` may be read from any.

    Attributes:
        last: The last published checkpoint.
        over: Why the task is over; None while it is not.
        last_error: The last failure of a commit that no later success has followed.
        failures: How many commits in a row have failed otherwise than by taking too long.
        timeouts: How many commits were given up since the last success because they took too long.
        begun: How many commits were begun; one that had nothing to do counts.
    """

    def __init__(
        self,
        task: CommitTask,
        policy: CommitPolicy,
        stores: Iterable[CommittedStore],
        last: Checkpoint | None,
        newest: CheckpointId | None,
    ) -> None:
        """Go on from the restored checkpoint *last*; *newest* is the newest id that the manager knows."""
        self.last = last
        self.over: BaseException | None = None
        self.last_error: BaseException | None = None
        self.failures = 0
        self.timeouts = 0
        self.begun = 0
        self.identities: Mapping[SystemStreamPartition, str] = {} if last is None else last.identities
        self._task = task
        self._policy = policy
        self._stores = {store.name: store for store in stores}
        self._properties = {name: said for name, said in task.properties.items() if name in self._stores}
        self._imaging = Imaging(task, policy, self._stores)
        self._backing = Backing(task, policy, self._stores)
        self._point = CommitPoint(task, newest)
        self._keeping = Keeping(task, policy, self._stores, self._point)
        self._place = {name: place for place, name in enumerate(self._stores)}
        self._suspects = set(self._stores)  # all stores that may be dirty; the processing thread's
        for store in self._stores.values():
            store.buffered.touched = partial(self._suspects.add, store.name)
        self._issued = newest
        self._hooks: list[Callable[[], None]] = []
        self._in_flight: Attempt | None = None
        self._idle = threading.Condition()
        self._tidying: Future[None] | None = None
        self._unraised: BaseException | None = None
        if last is not None:
            self._keeping.remember(last)

    # -------------------------------------------------------------------------------------------- the processing thread

    def before_publish(self, hook: Callable[[], None]) -> None:
        """Call *hook* on the commit lane of each commit, before anything is uploaded; its error fails the commit."""
        self._hooks.append(hook)

    def identify(self, source: SystemStreamPartition, identity: str) -> None:
        """Note in each checkpoint that begins from now on what tells *source* from others of its name."""
        self.identities = {**self.identities, source: identity}

    def commit(self, offsets: Mapping[SystemStreamPartition, str]) -> Future[Checkpoint]:
        """
        Begin a commit of all that was written so far, with *offsets*; never waits.

        Gives the Future of the commit in flight if there is one.

        Raises:
            CommitError: An earlier commit failed, beyond the operator's tolerance.
            CommitTimeoutError: The one in flight is older than ``commit.timeout``; it is given up if it still can be.
            FencedError, StoreClosedError: The task is over.
        """
        self.raise_if_over()
        self._raise_earlier_failure()
        in_flight = self._wanted_in_flight()
        now = self._task.now()
        age = None if in_flight is None else now - in_flight.started
        decision = admit(age, self._policy.timeout_s)
        if in_flight is None or decision is Admission.START:
            return self._start(offsets, now)
        if decision is Admission.SKIP or self._is_tolerated(in_flight):
            self._task.tell(CommitSkipped(**self._task.where(), in_flight=in_flight.id, age_s=age or 0.0))
            return in_flight.future
        raise CommitTimeoutError(
            f"commit {in_flight.id} of task {self._task.claim.task!r} is in flight for {age:.1f} s, longer than "
            f"commit.timeout ({self._policy.timeout_s:g} s); nothing later can be committed before it ends"
        )

    def commit_now(self, offsets: Mapping[SystemStreamPartition, str], timeout_s: float) -> Checkpoint:
        """
        Commit all that was written so far and wait for it, at most *timeout_s* seconds in all.

        Waits first for a commit in flight; what that could not publish is part of this one.

        Raises:
            CommitTimeoutError: The time is over; the commit may still happen.
            CommitError, FencedError, StoreClosedError: As ``commit``, and as its Future.
        """
        deadline = time.monotonic() + timeout_s
        self.raise_if_over()
        self._await_idle(deadline)
        self._unraised = None  # superseded: this caller hears of the outcome that counts
        future = self.commit(offsets)
        try:
            return future.result(max(0.0, deadline - time.monotonic()))
        except CommitError:
            self._unraised = None
            raise
        except TimeoutError:
            raise CommitTimeoutError(
                f"the commit of task {self._task.claim.task!r} did not end within {timeout_s:g} s: it is still in "
                f"flight"
            ) from None

    def raise_if_over(self) -> None:
        """Raise why the task is over, if it is."""
        if self.over is None:
            return
        if isinstance(self.over, FencedError):
            raise FencedError(str(self.over)) from self.over
        raise StoreClosedError(f"task {self._task.claim.task!r} is over: {self.over}") from self.over

    @property
    def in_flight(self) -> CheckpointId | None:
        """The id of the commit in flight."""
        attempt = self._in_flight
        return None if attempt is None else attempt.id

    @property
    def is_busy(self) -> bool:
        """Whether a commit is in flight that is younger than ``commit.timeout``, so that a new one would be skipped."""
        attempt = self._wanted_in_flight()
        return attempt is not None and self._task.now() - attempt.started < self._policy.timeout_s

    def _wanted_in_flight(self) -> Attempt | None:
        """Give the commit in flight; one that has failed, and is being undone, holds up the commit lane alone."""
        attempt = self._in_flight
        return None if attempt is None or attempt.is_undone else attempt

    def _raise_earlier_failure(self) -> None:
        error, self._unraised = self._unraised, None
        if error is not None and self._is_too_much():
            raise error

    def _is_too_much(self) -> bool:
        policy = self._policy
        return over_the_allowance(self.failures, policy.tolerated_failures) or over_the_allowance(
            self.timeouts, policy.tolerated_timeouts
        )

    def _is_tolerated(self, late: Attempt) -> bool:
        """Give up a commit that takes too long, and say whether the operator tolerates one more of that kind."""
        late.give_up_late()
        return not over_the_allowance(self.timeouts + 1, self._policy.tolerated_timeouts)

    def _close_runs(self) -> dict[str, int]:
        """
        Close the open run of every store; give the dirty ones, each with the newest run that belongs to it.

        Only suspects are asked: those that were written to or were dirty at the last look. A thousand others cost
        nothing.
        """
        marks: dict[str, int] = {}
        try:
            for name in sorted(self._suspects, key=self._place.__getitem__):
                store = self._stores[name]
                mark = store.buffered.close_run()
                if store.dirty(mark):
                    marks[name] = mark
                else:
                    self._suspects.discard(name)
        except StoreClosedError:
            self._notice_failures()
            raise
        return marks

    def _notice_failures(self) -> None:
        """End the task if an engine has failed on the apply lane."""
        failure = next((f for store in self._stores.values() if (f := store.buffered.failure) is not None), None)
        if failure is not None and self.over is None:
            self._break(failure)

    def _start(self, offsets: Mapping[SystemStreamPartition, str], now: float) -> Future[Checkpoint]:
        marks = self._close_runs()
        self.begun += 1
        if not marks and self.last is not None and self._is_current(self.last, offsets):
            return _done(self.last)
        attempt = self._freeze(offsets, marks, now)
        try:
            with self._idle:
                self._in_flight = attempt
            self._note(attempt)
            if marks:
                self._task.apply_lane.submit(lambda: self._stage_images(attempt))
            else:
                self._task.commit_lane.submit(lambda: self._run(attempt))
        except BaseException:
            # Interrupted: the closed runs belong to the next commit. A lane that has this one already gives it up.
            attempt.give_up("the host was interrupted")
            self._end(attempt)
            with suppress(StoreClosedError):
                self._task.commit_lane.submit(lambda: self._abandon(attempt))
            raise
        return attempt.future

    def _is_current(self, last: Checkpoint, offsets: Mapping[SystemStreamPartition, str]) -> bool:
        """Whether *last* says all; after time travel it does not: newer records stand beyond it."""
        return last.offsets == offsets and self._point.unsettled is None and self._point.newest == last.id

    def _freeze(self, offsets: Mapping[SystemStreamPartition, str], marks: Mapping[str, int], now: float) -> Attempt:
        id = CheckpointId.after(self._issued, self._task.job.clock.millis(), time.monotonic_ns())
        self._issued = id
        unchanged = frozenset(name for name, mark in marks.items() if mark == self._stores[name].mark)
        return Attempt(id, dict(offsets), marks, unchanged, now, now + self._policy.timeout_s)

    def _note(self, attempt: Attempt) -> None:
        """Let the host's databases and the backends take their notes; an error fails the commit, on its lane."""
        try:
            self._imaging.stage_hosted(attempt)
            self._backing.note(attempt)
        except CommitError as error:
            attempt.error = error
            return
        attempt.phases_s["freeze"] = self._task.now() - attempt.started
        reached("commit.frozen")

    def _tell_started(self, attempt: Attempt) -> None:
        """Tell of the commit on the lane that has it first: listeners take their time, and not the host's."""
        self._task.tell(CommitStarted(**self._task.where(), id=attempt.id, stores=tuple(attempt.marks)))

    # --------------------------------------------------------------------------------------------------- the apply lane

    def _stage_images(self, attempt: Attempt) -> None:
        begun = self._task.now()
        try:
            self._tell_started(attempt)
            if attempt.error is None:
                self._imaging.stage(attempt)
        except BaseException as error:  # noqa: BLE001 - told on the commit lane, where a commit ends
            attempt.error = outcome(error, "making the images")
        attempt.phases_s["image"] = self._task.now() - begun
        try:
            self._task.commit_lane.submit(lambda: self._run(attempt))
        except StoreClosedError as error:  # the job was closed over it, and its threads have ended
            self._fail(attempt, error)

    # -------------------------------------------------------------------------------------------------- the commit lane

    def _run(self, attempt: Attempt) -> None:
        try:
            checkpoint = self._publish(attempt)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the host has to hear of it
            self._fail(attempt, error)
            return
        try:
            try:
                self._advance(attempt, checkpoint)
            finally:
                attempt.future.set_result(checkpoint)  # it has happened, whatever comes after it
            self._keeping.clean(attempt, checkpoint)
            self._imaging.drop_stale()
            reached("commit.ended")
        except BaseException as error:  # noqa: BLE001 - nobody expected it: the task's health shows it
            self._break(error)
        finally:
            self._end(attempt)

    def _publish(self, attempt: Attempt) -> Checkpoint:
        """Do all that comes before the commit point, and pass it."""
        if not attempt.marks:
            self._tell_started(attempt)
        settled = self._point.settle()
        if settled is not None:
            self._advance(settled.attempt, settled.checkpoint)
            self._imaging.go_on_with_published(attempt)
        if attempt.error is not None:
            raise attempt.error
        self._renew_bases(attempt)
        self._imaging.seal(attempt)
        reached("commit.before-hooks")
        self._call_hooks(attempt)
        reached("commit.before-upload")
        self._backing.upload(attempt)
        reached("commit.uploaded")
        checkpoint = self._checkpoint(attempt)
        attempt.begin_write(self._task.now())
        reached("commit.before-write")
        self._point.write(attempt, checkpoint)
        reached("commit.written")
        return checkpoint

    def _renew_bases(self, attempt: Attempt) -> None:
        """Note for each dirty store that the newest checkpoint has its markers: while it was clean, nobody did."""
        for store in (self._stores[name] for name in attempt.marks):
            for key, held in store.backed.items():
                if self.last is not None and key not in store.unsent:
                    held.id = self.last.id

    def _call_hooks(self, attempt: Attempt) -> None:
        for hook in self._hooks:
            attempt.check(self._task.now())
            try:
                hook()
            except BaseException as error:  # noqa: BLE001 - the host's own
                told = outcome(error, f"the before_publish hook {_name_of(hook)}")
                raise told from told.__cause__  # never from itself

    def _checkpoint(self, attempt: Attempt) -> Checkpoint:
        last = self.last
        images = {store.name: store.image.name for store in self._stores.values() if store.image is not None}
        made = {name for name, image in attempt.images.items() if image.name != images.get(name)}
        images.update({name: image.name for name, image in attempt.images.items()})
        markers = checkpoint_markers(
            {store.name: store.backends for store in self._stores.values()},
            {} if last is None else last.markers,
            attempt.uploaded,
            attempt.failed,
        )
        if mixed := mixed_stores(made, markers, attempt.uploaded):
            raise AssertionError(f"there are new images of {mixed}, and markers of earlier ones")
        return Checkpoint(
            id=attempt.id,
            offsets=attempt.offsets,
            markers=markers,
            claim=self._task.claim,
            parent=None if last is None else last.id,
            layout=self._task.job.layout,
            images=images,
            properties=self._properties,
            identities=self.identities,
        )

    # ------------------------------------------------------------------------------------------- after the commit point

    def _advance(self, attempt: Attempt, checkpoint: Checkpoint) -> None:
        """Make *checkpoint* what everything else builds on."""
        self.last = checkpoint
        self._point.newest = checkpoint.id
        self._keeping.remember(checkpoint)
        self.failures, self.timeouts, self.last_error, self._unraised = 0, 0, None, None
        for name, image in attempt.images.items():
            self._stores[name].stale_images |= self._stores[name].image is not image
            self._stores[name].image = image
        for name in attempt.marks:
            self._stores[name].advance(attempt.marks[name], checkpoint, attempt.uploaded)
        now = self._task.now()
        self._task.tell(
            CommitPublished(
                **self._task.where(),
                checkpoint=checkpoint,
                stores=tuple(attempt.marks),
                duration_s=now - attempt.started,
                phases_s=dict(attempt.phases_s),
            )
        )

    # --------------------------------------------------------------------------------------------- failures and the end

    def _fail(self, attempt: Attempt, error: BaseException) -> None:
        """
        Tell the host that *attempt* did not happen, or that nobody knows; then undo what can be undone.

        The undoing may take as long as an upload. It ends before the next commit uploads anything: both are this
        lane's. A commit in flight has ended only when it is undone.
        """
        told = outcome(error, f"commit {attempt.id} of task {self._task.claim.task!r}")
        if attempt.late:
            self.timeouts += 1
        else:
            self.failures += 1
        self.last_error = self._unraised = told
        try:
            try:
                self._conclude(attempt, told)
            finally:
                attempt.future.set_exception(told)
            if not self._point.may_be_written(attempt):
                self._abandon(attempt)
        except BaseException as unexpected:  # noqa: BLE001 - nobody expected it: the task's health shows it
            self.over = self.over or unexpected
        finally:
            self._end(attempt)

    def _conclude(self, attempt: Attempt, told: BaseException) -> None:
        """Note what the failure means for the task, before the host hears of it."""
        unknown = isinstance(told, CommitUnknownError)
        self._task.tell(CommitFailed(**self._task.where(), id=attempt.id, error=told, unknown=unknown))
        if isinstance(told, FencedError):
            self._break(told)
        else:
            self._notice_failures()

    def _abandon(self, attempt: Attempt) -> None:
        self._backing.abandon(attempt)
        self._imaging.discard(attempt)

    def _break(self, error: BaseException) -> None:
        """End the task: nothing is written for it any more."""
        self.last_error = error
        if isinstance(error, FencedError):
            self.over = error
            self._task.tell(TaskFenced(**self._task.where(), error=error))
        else:
            self.over = self.over or error
            self._task.tell(TaskFailed(**self._task.where(), error=error))

    def _end(self, attempt: Attempt) -> None:
        with self._idle:
            if self._in_flight is attempt:
                self._in_flight = None
            self._idle.notify_all()

    def settle(self, timeout_s: float) -> None:
        """Wait until no commit is in flight; CommitTimeoutError after *timeout_s* seconds."""
        self.raise_if_over()
        self._await_idle(time.monotonic() + timeout_s)

    def _await_idle(self, deadline: float) -> None:
        with self._idle:
            idle = self._idle.wait_for(lambda: self._in_flight is None, max(0.0, deadline - time.monotonic()))
        if not idle:
            raise CommitTimeoutError(f"another commit of task {self._task.claim.task!r} is still in flight")

    def begin(self, ask: Asking = directly) -> None:
        """
        Start the backup managers and tidy what earlier owners left; on the opening thread, before the first commit.

        *ask* waits for a manager that may hang. The clean-up is awaited for the policy's time; after that it goes on by
        itself.
        """
        self._backing.begin(self.last, ask)
        reached("restore.before-cleanup")
        self._tidying = tidying = self._task.commit_lane.submit(self._clean_at_start)
        try:
            tidying.result(self._policy.cleanup_wait_s)
        except TimeoutError as error:
            if tidying.done():
                raise
            self._task.tell(CleanupFailed(**self._task.where(), backend="", error=error))

    def _clean_at_start(self) -> None:
        if self.last is not None:
            self._keeping.clean_up(self._task.backups, self.last)
        self._imaging.drop_stale()

    def close(self, timeout_s: float) -> bool:
        """
        Give up a commit in flight unless it is being written, and wait at most *timeout_s* seconds for its end.

        False when it still had not ended, or the clean-up at the start had not. Idempotent.
        """
        deadline = time.monotonic() + timeout_s
        self.over = self.over or StoreClosedError(f"task {self._task.claim.task!r} is closed")
        attempt = self._in_flight
        if attempt is not None:
            attempt.give_up("the task was closed")
        with self._idle:
            idle = self._idle.wait_for(lambda: self._in_flight is None, timeout_s)
        tidying = [] if self._tidying is None else [self._tidying]
        return idle and not wait(tidying, max(0.0, deadline - time.monotonic())).not_done


def _done(checkpoint: Checkpoint) -> Future[Checkpoint]:
    future: Future[Checkpoint] = Future()
    future.set_result(checkpoint)
    return future


def _name_of(hook: Callable[[], None]) -> str:
    return getattr(hook, "__qualname__", repr(hook))
