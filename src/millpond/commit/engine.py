"""The commit engine of one task; the story is in the package's own words, in ``millpond.commit``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial

from attrs import define, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, SystemStreamPartition
from millpond.commit.attempt import Attempt
from millpond.commit.decisions import (
    Admission,
    admit,
    checkpoint_markers,
    marker_problems,
    note_problem,
    outcome,
    over_the_allowance,
    superseded,
)
from millpond.commit.snapshot import CommitSnapshot
from millpond.commit.stores import Backed, CommittedStore
from millpond.errors import (
    CommitError,
    CommitFailedError,
    CommitTimeoutError,
    CommitUnknownError,
    ConfigError,
    FencedError,
    FormatError,
    MillpondError,
    StoreClosedError,
)
from millpond.events import (
    CleanedUp,
    CleanupFailed,
    CommitFailed,
    CommitPublished,
    CommitSettled,
    CommitSkipped,
    CommitStarted,
    Event,
    ImageMade,
    OptionalBackendFailed,
    TaskFailed,
    TaskFenced,
    Uploaded,
)
from millpond.lanes import Lane, Workers
from millpond.local import TaskDirectory, fsync_tree
from millpond.points import reached
from millpond.spi import Capabilities, CheckpointManager, JobContext, Snapshot, TaskBackupManager
from millpond.stores.images import Image, Made, Sealing, discard

MISSES_TOLERATED = 8
"""After so many checkpoints without an optional backend, the changes since its last marker are no longer kept."""


@frozen
class Backup:
    """
    A backend as the commit engine sees it.

    Attributes:
        name: The section's name in the configuration.
        key: The key of its markers.
        capabilities: What it declares.
        required: A failure of it fails the commit.
        manager: Backs up this task's stores.
    """

    name: str
    key: str
    capabilities: Capabilities
    required: bool
    manager: TaskBackupManager


@frozen(kw_only=True)
class CommitPolicy:
    """
    What the operator decides about commits.

    Attributes:
        timeout_s: From this age on, a commit is given up.
        tolerated_failures: Failures in a row that are not raised to the host.
        tolerated_timeouts: Commits in a row that may take too long before that is raised to the host.
        retain: Checkpoints that stay restorable.
        algorithm: Of digests.
        cleanup_wait_s: How long opening waits for the start-up clean-up.
    """

    timeout_s: float = 300.0
    tolerated_failures: int = 0
    tolerated_timeouts: int = 0
    retain: int = 1
    algorithm: str = "blake3"
    cleanup_wait_s: float = 30.0


@frozen(kw_only=True)
class CommitTask:
    """
    What one task brings to its commits.

    Attributes:
        job: The job.
        claim: The right under which it writes.
        manager: Keeps the records.
        backups: The backends.
        directory: The task's directories.
        properties: For each store, what its manifest says besides.
        apply_lane: Applies runs and makes images.
        commit_lane: Does all the rest of a commit.
        uploads: Serves the backends of one commit side by side.
    """

    job: JobContext
    claim: Claim
    manager: CheckpointManager
    backups: Sequence[Backup]
    directory: TaskDirectory
    properties: Mapping[str, Mapping[str, str]]
    apply_lane: Lane
    commit_lane: Lane
    uploads: Workers


@define(eq=False)
class Unsettled:
    """A checkpoint of which nobody knows yet whether it was written."""

    attempt: Attempt
    checkpoint: Checkpoint


class CommitEngine:
    """
    Commits one task. ``commit`` and ``commit_now`` are for the processing thread; ``over`` may be read from any.

    Attributes:
        last: The last published checkpoint.
        over: Why the task is over; None while it is not.
        last_error: The last failure of a commit that no later success has followed.
        failures: How many commits in a row have failed otherwise than by taking too long.
        timeouts: How many commits were given up since the last success because they took too long.
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
        self._task = task
        self._policy = policy
        self._stores = {store.name: store for store in stores}
        self._order = tuple(self._stores.values())
        self._place = {name: place for place, name in enumerate(self._stores)}
        self._suspects = set(self._stores)  # all stores that may be dirty; the processing thread's
        for store in self._order:
            store.buffered.touched = partial(self._suspects.add, store.name)
        self._newest = newest
        self._issued = newest
        self._hooks: list[Callable[[], None]] = []
        self._unsettled: Unsettled | None = None
        self._doubtful: list[Attempt] = []
        self._retained: dict[CheckpointId, Checkpoint] = {} if last is None else {last.id: last}
        self._in_flight: Attempt | None = None
        self._idle = threading.Condition()
        self._tidying: Future[None] | None = None
        self._unraised: BaseException | None = None
        self._clock = task.job.clock

    # ---------------------------------------------------------------------------------- the processing thread

    def before_publish(self, hook: Callable[[], None]) -> None:
        """Call *hook* on the commit lane of each commit, before anything is uploaded; its error fails the commit."""
        self._hooks.append(hook)

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
        in_flight = self._in_flight
        now = self._clock.monotonic()
        age = None if in_flight is None else now - in_flight.started
        decision = admit(age, self._policy.timeout_s)
        if in_flight is None or decision is Admission.START:
            return self._start(offsets, now)
        if decision is Admission.SKIP or self._is_tolerated(in_flight):
            self._tell(CommitSkipped(**self._where(), in_flight=in_flight.id, age_s=age or 0.0))
            return in_flight.future
        raise CommitTimeoutError(
            f"commit {in_flight.id} of task {self._name!r} is in flight for {age:.1f} s, longer than commit.timeout "
            f"({self._policy.timeout_s:g} s); nothing later can be committed before it ends"
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
                f"the commit of task {self._name!r} did not end within {timeout_s:g} s and is still in flight"
            ) from None

    def raise_if_over(self) -> None:
        """Raise why the task is over, if it is."""
        if self.over is None:
            return
        if isinstance(self.over, FencedError):
            raise FencedError(str(self.over)) from self.over
        raise StoreClosedError(f"task {self._name!r} is over: {self.over}") from self.over

    @property
    def in_flight(self) -> CheckpointId | None:
        """The id of the commit in flight."""
        attempt = self._in_flight
        return None if attempt is None else attempt.id

    @property
    def is_busy(self) -> bool:
        """Whether a commit is in flight that is younger than ``commit.timeout``, so that a new one would be skipped."""
        attempt = self._in_flight
        return attempt is not None and self._clock.monotonic() - attempt.started < self._policy.timeout_s

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
        failure = next((f for store in self._order if (f := store.buffered.failure) is not None), None)
        if failure is not None and self.over is None:
            self._break(failure)

    def _start(self, offsets: Mapping[SystemStreamPartition, str], now: float) -> Future[Checkpoint]:
        marks = self._close_runs()
        if not marks and self.last is not None and self._is_current(self.last, offsets):
            return _done(self.last)
        attempt = self._freeze(offsets, marks, now)
        try:
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
        """Whether *last* says all that there is to say; after time travel it does not: newer records stand beyond it."""
        return last.offsets == offsets and self._unsettled is None and self._newest == last.id

    def _freeze(
        self, offsets: Mapping[SystemStreamPartition, str], marks: Mapping[str, int], now: float
    ) -> Attempt:
        id = CheckpointId.after(self._issued, self._clock.millis(), time.monotonic_ns())
        self._issued = id
        unchanged = frozenset(name for name, mark in marks.items() if mark == self._stores[name].mark)
        return Attempt(id, dict(offsets), marks, unchanged, now, now + self._policy.timeout_s)

    def _note(self, attempt: Attempt) -> None:
        """Let every backend with dirty stores take its note; an error fails the commit, on its lane."""
        if not self._stage_hosted(attempt):
            return
        for backup in self._task.backups:
            if attempt.marks and self._dirty_for(backup, attempt):
                try:
                    attempt.notes[backup.key] = _noted(backup, attempt)
                except Exception as error:  # a plugin's own: it fails this commit and nothing else
                    attempt.error = outcome(error, f"snapshot of backend {backup.name!r}")
                    return
        attempt.phases_s["freeze"] = self._clock.monotonic() - attempt.started
        reached("commit.frozen")

    def _stage_hosted(self, attempt: Attempt) -> bool:
        """Let the host's own databases make their images, here and now; False if one failed, and with it the commit."""
        for name in attempt.marks:
            if self._stores[name].hosted:
                try:
                    self._make_image(attempt, self._stores[name])
                except Exception as error:  # the host's own: it fails this commit and nothing else
                    attempt.error = outcome(error, f"checkpoint() of the host's database {name!r}")
                    return False
        return True

    def _tell_started(self, attempt: Attempt) -> None:
        """Tell of the commit on the lane that has it first: listeners take their time, and not the host's."""
        self._tell(CommitStarted(**self._where(), id=attempt.id, stores=tuple(attempt.marks)))

    # ------------------------------------------------------------------------------------------ the apply lane

    def _stage_images(self, attempt: Attempt) -> None:
        begun = self._clock.monotonic()
        try:
            self._tell_started(attempt)
            for name in attempt.marks:
                if attempt.error is None:
                    self._stage_image(attempt, self._stores[name])
        except BaseException as error:  # noqa: BLE001 - told on the commit lane, where a commit ends
            attempt.error = outcome(error, "making the images")
        attempt.phases_s["image"] = self._clock.monotonic() - begun
        try:
            self._task.commit_lane.submit(lambda: self._run(attempt))
        except StoreClosedError as error:  # the job was closed over it, and its threads have ended
            self._fail(attempt, error)

    def _stage_image(self, attempt: Attempt, store: CommittedStore) -> None:
        attempt.check(self._clock.monotonic())
        if store.buffered.failure is not None:
            raise StoreClosedError(f"store {store.name!r} has failed: {store.buffered.failure}")
        if store.name in attempt.unchanged and store.image is not None:
            attempt.images[store.name] = store.image
            return
        if store.hosted:
            fsync_tree(attempt.images[store.name].path)
        else:
            self._make_image(attempt, store)
        reached("commit.image-staged")

    def _make_image(self, attempt: Attempt, store: CommittedStore) -> None:
        name = Made(attempt.id, self._task.claim.writer).image
        staged = self._task.directory.stage(store.name, name)
        attempt.images[store.name] = Image(store.name, name, staged)
        store.buffered.checkpoint(staged)

    # ----------------------------------------------------------------------------------------- the commit lane

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
            self._clean(attempt)
        except BaseException as error:  # noqa: BLE001 - nobody expected it: the task's health shows it
            self._break(error)
        finally:
            self._end(attempt)

    def _publish(self, attempt: Attempt) -> Checkpoint:
        """Do all that comes before the commit point, and pass it."""
        if not attempt.marks:
            self._tell_started(attempt)
        self._settle()
        if attempt.error is not None:
            raise attempt.error
        self._renew_bases(attempt)
        self._seal_images(attempt)
        reached("commit.before-hooks")
        self._call_hooks(attempt)
        reached("commit.before-upload")
        self._upload(attempt)
        reached("commit.uploaded")
        checkpoint = self._checkpoint(attempt)
        attempt.begin_write(self._clock.monotonic())
        reached("commit.before-write")
        self._write(attempt, checkpoint)
        reached("commit.written")
        return checkpoint

    def _renew_bases(self, attempt: Attempt) -> None:
        """Note for each dirty store that the newest checkpoint has its markers: while it was clean, nobody did."""
        for store in (self._stores[name] for name in attempt.marks):
            for key, held in store.backed.items():
                if self.last is not None and key not in store.unsent:
                    held.id = self.last.id

    def _seal_images(self, attempt: Attempt) -> None:
        begun = self._clock.monotonic()
        sealing = Sealing(
            directory=self._task.directory,
            transfers=self._task.job.transfers,
            algorithm=self._policy.algorithm,
            check=lambda: attempt.check(self._clock.monotonic()),
        )
        made = Made(attempt.id, self._task.claim.writer)
        for name, image in attempt.images.items():
            if image.name == made.image:
                attempt.images[name] = self._seal_image(attempt, image, sealing, made)
                reached("commit.image-sealed")
        attempt.phases_s["image"] = attempt.phases_s.get("image", 0.0) + self._clock.monotonic() - begun

    def _seal_image(self, attempt: Attempt, staged: Image, sealing: Sealing, made: Made) -> Image:
        begun = self._clock.monotonic()
        store = self._stores[staged.store]
        known = {} if store.image is None else store.image.inodes()
        image = sealing.seal(staged, store.spec, known, self._task.properties.get(store.name, {}), made)
        self._tell(
            ImageMade(
                **self._where(),
                id=attempt.id,
                store=store.name,
                files=len(image.files),
                size=image.size,
                new_files=len(image.new),
                new_size=image.new_size,
                duration_s=self._clock.monotonic() - begun,
            )
        )
        return image

    def _call_hooks(self, attempt: Attempt) -> None:
        for hook in self._hooks:
            attempt.check(self._clock.monotonic())
            try:
                hook()
            except BaseException as error:
                told = outcome(error, f"the before_publish hook {_name_of(hook)}")
                raise told from told.__cause__  # never from itself

    def _upload(self, attempt: Attempt) -> None:
        """Let every backend with dirty stores upload, side by side; raise the first failure of a required one."""
        begun = self._clock.monotonic()
        called = [backup for backup in self._task.backups if self._dirty_for(backup, attempt)]
        if len(called) == 1:
            errors: list[BaseException | None] = [self._upload_to(called[0], attempt)]
        else:
            futures = [self._task.uploads.submit(lambda b=backup: self._upload_to(b, attempt)) for backup in called]  # type: ignore[misc]
            errors = [future.result() for future in futures]
        attempt.phases_s["upload"] = self._clock.monotonic() - begun
        fatal = [
            (not isinstance(error, FencedError), backup.name, error)
            for backup, error in zip(called, errors, strict=True)
            if error is not None and (backup.required or isinstance(error, FencedError))
        ]
        if fatal:
            _, name, first = min(fatal, key=lambda one: one[0])  # a new owner outweighs a backend that is down
            raise outcome(first, f"upload to backend {name!r}")
        for backup, error in zip(called, errors, strict=True):
            if error is not None:
                attempt.failed |= {f"{backup.key}\0{store}" for store in self._dirty_for(backup, attempt)}
                self._tell(OptionalBackendFailed(**self._where(), id=attempt.id, backend=backup.name, error=error))

    def _upload_to(self, backup: Backup, attempt: Attempt) -> BaseException | None:
        begun = self._clock.monotonic()
        stores = self._dirty_for(backup, attempt)
        try:
            attempt.check(begun)
            given = backup.manager.upload(
                self._snapshot(backup, attempt, stores), attempt.notes.get(backup.key, {})
            )
            if problem := marker_problems(given, stores):
                raise ConfigError(f"backend {backup.name!r} broke its contract: {problem}")  # noqa: TRY301
        except BaseException as error:  # noqa: BLE001 - a plugin's own: it fails this commit, or this backend's part
            return error
        attempt.uploaded[backup.key] = dict(given)
        duration_s = self._clock.monotonic() - begun
        self._tell(
            Uploaded(**self._where(), id=attempt.id, backend=backup.name, stores=stores, duration_s=duration_s)
        )
        return None

    def _snapshot(self, backup: Backup, attempt: Attempt, stores: Sequence[str]) -> Snapshot:
        return CommitSnapshot(
            attempt=attempt,
            backend=backup.key,
            facets=backup.capabilities.facets,
            stores=stores,
            committed=self._stores,
            scratch=self._task.directory.scratch(f"{backup.name}.images"),
            algorithm=self._policy.algorithm,
            wanted=lambda: attempt.check(self._clock.monotonic()),
        )

    def _dirty_for(self, backup: Backup, attempt: Attempt) -> tuple[str, ...]:
        return tuple(
            name for name, mark in attempt.marks.items() if backup.key in self._stores[name].callers(mark)
        )

    def _checkpoint(self, attempt: Attempt) -> Checkpoint:
        last = self.last
        images = {store.name: store.image.name for store in self._order if store.image is not None}
        images.update({name: image.name for name, image in attempt.images.items()})
        return Checkpoint(
            id=attempt.id,
            offsets=attempt.offsets,
            markers=checkpoint_markers(
                {store.name: store.backends for store in self._order},
                {} if last is None else last.markers,
                attempt.uploaded,
                attempt.failed,
            ),
            claim=self._task.claim,
            parent=None if last is None else last.id,
            layout=self._task.job.layout,
            images=images,
        )

    # --------------------------------------------------------------------------------------- the commit point

    def _write(self, attempt: Attempt, checkpoint: Checkpoint) -> None:
        """Publish; when nobody knows whether that worked, read back."""
        begun = self._clock.monotonic()
        try:
            self._task.manager.write(self._task.claim, checkpoint, after=self._newest)
        except (FencedError, ConfigError, FormatError):
            raise
        except BaseException as error:  # noqa: BLE001 - any other error may come after the effect
            self._read_back(attempt, checkpoint, error)
        finally:
            attempt.phases_s["write"] = self._clock.monotonic() - begun

    def _read_back(self, attempt: Attempt, checkpoint: Checkpoint, error: BaseException) -> None:
        """Return if *checkpoint* was written in spite of *error*; else raise."""
        try:
            written = self._is_written(checkpoint)
        except FencedError:
            # It may have been written before the new owner claimed, who then builds on what it names: all of it stays.
            self._doubtful.append(attempt)
            raise
        except BaseException as second:  # noqa: BLE001 - not known is an outcome of its own
            self._unsettled = Unsettled(attempt, checkpoint)
            unknown = CommitUnknownError(
                f"nobody knows whether commit {checkpoint.id} of task {self._name!r} was written: {error}; reading it "
                f"back failed too: {second}. The next commit finds out"
            )
            raise unknown from error
        if not written:
            # The request may still be on its way: what it names stays until a later record has taken its place.
            self._doubtful.append(attempt)
            raise CommitFailedError(f"commit {checkpoint.id} was not written: {error}") from error

    def _is_written(self, checkpoint: Checkpoint) -> bool:
        newest = self._task.manager.read_last(self._task.claim.task)
        if newest is None or newest.claim is None:
            return False
        if newest.claim.epoch > self._task.claim.epoch:
            raise FencedError(f"task {self._name!r} has a new owner, epoch {newest.claim.epoch}")
        return newest.id == checkpoint.id and newest.claim.writer == self._task.claim.writer

    def _settle(self) -> None:
        """Find out what became of a commit whose outcome was unknown, before anything else happens."""
        unsettled = self._unsettled
        if unsettled is None:
            return
        checkpoint = unsettled.checkpoint
        try:
            written = self._is_written(checkpoint)
        except FencedError:
            raise
        except Exception as error:
            raise CommitUnknownError(
                f"commit {checkpoint.id} of task {self._name!r} is not settled yet: {error}"
            ) from error
        self._unsettled = None
        self._tell(CommitSettled(**self._where(), id=checkpoint.id, published=written))
        if written:
            self._advance(unsettled.attempt, checkpoint)
        else:
            self._doubtful.append(unsettled.attempt)

    # ------------------------------------------------------------------------------------ after the commit point

    def _advance(self, attempt: Attempt, checkpoint: Checkpoint) -> None:
        """Make *checkpoint* what everything else builds on."""
        self.last = checkpoint
        self._newest = checkpoint.id
        self._retained[checkpoint.id] = checkpoint
        self.failures, self.timeouts, self.last_error, self._unraised = 0, 0, None, None
        for name, image in attempt.images.items():
            self._stores[name].stale_images = self._stores[name].image is not image
            self._stores[name].image = image
        for name in attempt.marks:
            self._advance_store(self._stores[name], attempt, checkpoint)
        now = self._clock.monotonic()
        self._tell(
            CommitPublished(
                **self._where(),
                checkpoint=checkpoint,
                stores=tuple(attempt.marks),
                duration_s=now - attempt.started,
                phases_s=dict(attempt.phases_s),
            )
        )

    def _advance_store(self, store: CommittedStore, attempt: Attempt, checkpoint: Checkpoint) -> None:
        store.mark = attempt.marks[store.name]
        for key in store.backends:
            marker = checkpoint.markers.get(key, {}).get(store.name)
            if marker is None:
                store.unsent.add(key)
                self._miss(store, key)
            elif store.name in attempt.uploaded.get(key, {}):
                store.unsent.discard(key)
                store.backed[key] = Backed(checkpoint.id, marker, store.mark)
            else:
                store.backed[key].id = checkpoint.id
        store.buffered.forget(min((held.mark for held in store.backed.values()), default=store.mark))

    def _miss(self, store: CommittedStore, key: str) -> None:
        held = store.backed.get(key)
        if held is not None:
            held.misses += 1
            if held.misses > MISSES_TOLERATED:
                del store.backed[key]

    def _clean(self, attempt: Attempt) -> None:
        """Let go of what only superseded checkpoints held; a failure is an event and the next commit's work."""
        called = [backup for backup in self._task.backups if self._dirty_for_cleanup(backup, attempt)]
        self._clean_up(called)
        self._drop_images()
        reached("commit.ended")

    def _dirty_for_cleanup(self, backup: Backup, attempt: Attempt) -> bool:
        return backup.key in attempt.uploaded or bool(self._doubtful)

    def _clean_up(self, backups: Iterable[Backup]) -> None:
        reached("commit.before-records-drop")
        try:
            dropped, retained = self._drop_records()
        except FencedError:
            raise
        except BaseException as error:  # noqa: BLE001 - the commit has happened; tidying may wait
            self._tell(CleanupFailed(**self._where(), backend="", error=error))
            return
        reached("commit.before-cleanup")
        doubtful, self._doubtful = self._doubtful, []
        for backup in backups:
            self._clean_backend(backup, dropped, retained, doubtful)

    def _clean_backend(
        self,
        backup: Backup,
        dropped: tuple[CheckpointId, ...],
        retained: Sequence[Checkpoint],
        doubtful: Iterable[Attempt],
    ) -> None:
        begun = self._clock.monotonic()
        written = {checkpoint.id for checkpoint in retained}
        self._forget_lost_bases(backup, retained)
        try:
            for attempt in doubtful:
                if attempt.id not in written:
                    backup.manager.abandon(attempt.id)
            backup.manager.cleanup(retained)
        except BaseException as error:  # noqa: BLE001 - the commit has happened; tidying may wait
            self._tell(CleanupFailed(**self._where(), backend=backup.name, error=error))
            return
        duration_s = self._clock.monotonic() - begun
        self._tell(CleanedUp(**self._where(), backend=backup.name, duration_s=duration_s, dropped=dropped))

    def _forget_lost_bases(self, backup: Backup, retained: Sequence[Checkpoint]) -> None:
        """Build on no marker of *backup* that no retained checkpoint has: its clean-up removes what that names."""
        kept = {item for checkpoint in retained for item in checkpoint.markers.get(backup.key, {}).items()}
        for store in self._order:
            held = store.backed.get(backup.key)
            if held is not None and (store.name, held.marker) not in kept:
                del store.backed[backup.key]

    def _drop_records(self) -> tuple[tuple[CheckpointId, ...], list[Checkpoint]]:
        """Drop the records beyond ``retain``, then look at the pins, and give all that must stay restorable."""
        manager, task = self._task.manager, self._task.claim.task
        ids = manager.ids(task)
        current = set() if self.last is None else {self.last.id}
        dropped = superseded(ids, self._policy.retain, *current)
        if dropped:
            manager.delete(self._task.claim, dropped)
        # In this order: a pin that was set before the record went is seen here; one set later finds no record.
        kept = sorted({*ids[: self._policy.retain], *manager.pins(task).values(), *current}, reverse=True)
        self._retained = {id: self._retained.get(id) or manager.read(task, id) for id in kept}
        return dropped, list(self._retained.values())

    def _drop_images(self) -> None:
        reached("commit.before-images-drop")
        try:
            for store in self._order:
                if store.image is not None and store.stale_images:
                    self._task.directory.drop_images(store.name, {store.image.name})
                    store.stale_images = False
        except MillpondError as error:
            self._tell(CleanupFailed(**self._where(), backend="local images", error=error))

    # -------------------------------------------------------------------------------------- failures and the end

    def _fail(self, attempt: Attempt, error: BaseException) -> None:
        """Tell the host that *attempt* did not happen, or that nobody knows; undo what can be undone."""
        told = outcome(error, f"commit {attempt.id} of task {self._name!r}")
        if attempt.late:
            self.timeouts += 1
        else:
            self.failures += 1
        self.last_error = self._unraised = told
        try:
            self._conclude(attempt, told)
        except BaseException as unexpected:  # noqa: BLE001 - nobody expected it: the task's health shows it
            self.over = self.over or unexpected
        finally:
            self._end(attempt)
            attempt.future.set_exception(told)

    def _conclude(self, attempt: Attempt, told: BaseException) -> None:
        unknown = isinstance(told, CommitUnknownError)
        self._tell(CommitFailed(**self._where(), id=attempt.id, error=told, unknown=unknown))
        if isinstance(told, FencedError):
            self._break(told)
        else:
            self._notice_failures()
        if not self._may_be_written(attempt):
            self._abandon(attempt)

    def _may_be_written(self, attempt: Attempt) -> bool:
        unsettled = self._unsettled is not None and self._unsettled.attempt is attempt
        return unsettled or attempt in self._doubtful

    def _abandon(self, attempt: Attempt) -> None:
        for backup in self._task.backups:
            if self._dirty_for(backup, attempt):
                try:
                    backup.manager.abandon(attempt.id)
                except BaseException as error:  # noqa: BLE001 - best effort: cleanup finds the rest
                    self._tell(CleanupFailed(**self._where(), backend=backup.name, error=error))
        for name, image in attempt.images.items():
            if image is not self._stores[name].image:
                discard(image)

    def _break(self, error: BaseException) -> None:
        """End the task: nothing is written for it any more."""
        self.last_error = error
        if isinstance(error, FencedError):
            self.over = error
            self._tell(TaskFenced(**self._where(), error=error))
        else:
            self.over = self.over or error
            self._tell(TaskFailed(**self._where(), error=error))

    def _end(self, attempt: Attempt) -> None:
        with self._idle:
            if self._in_flight is attempt:
                self._in_flight = None
            self._idle.notify_all()

    def _await_idle(self, deadline: float) -> None:
        with self._idle:
            idle = self._idle.wait_for(lambda: self._in_flight is None, max(0.0, deadline - time.monotonic()))
        if not idle:
            raise CommitTimeoutError(f"another commit of task {self._name!r} is still in flight")

    def begin(self) -> None:
        """
        Start the backup managers and tidy what earlier owners left; on the opening thread, before the first commit.

        The clean-up is awaited for the policy's time; after that it goes on by itself.
        """
        for backup in self._task.backups:
            for name in _unsent(backup, self.last):
                if name in self._stores and backup.key in self._stores[name].backends:
                    self._stores[name].unsent.add(backup.key)
        reached("restore.before-cleanup")
        self._tidying = tidying = self._task.commit_lane.submit(self._clean_at_start)
        try:
            tidying.result(self._policy.cleanup_wait_s)
        except TimeoutError as error:
            if tidying.done():
                raise
            self._tell(CleanupFailed(**self._where(), backend="", error=error))

    def _clean_at_start(self) -> None:
        if self.last is not None:
            self._clean_up(self._task.backups)
        self._drop_images()

    def close(self, timeout_s: float) -> bool:
        """
        Give up a commit in flight unless it is being written, and wait at most *timeout_s* seconds for its end.

        False when it still had not ended, or the clean-up at the start had not. Idempotent.
        """
        deadline = time.monotonic() + timeout_s
        self.over = self.over or StoreClosedError(f"task {self._name!r} is closed")
        attempt = self._in_flight
        if attempt is not None:
            attempt.give_up("the task was closed")
        with self._idle:
            idle = self._idle.wait_for(lambda: self._in_flight is None, timeout_s)
        tidying = [] if self._tidying is None else [self._tidying]
        return idle and not wait(tidying, max(0.0, deadline - time.monotonic())).not_done

    @property
    def _name(self) -> str:
        return self._task.claim.task

    def _where(self) -> dict[str, str]:
        return {"job": self._task.job.job, "task": self._name}

    def _tell(self, event: Event) -> None:
        self._task.job.listener(event)


def _noted(backup: Backup, attempt: Attempt) -> Mapping[str, str]:
    """Let *backup* take its note of the commit, and check it."""
    given = backup.manager.snapshot(attempt.id)
    if problem := note_problem(given):
        raise ConfigError(f"backend {backup.name!r} broke its contract: {problem}")
    return dict(given)


def _unsent(backup: Backup, last: Checkpoint | None) -> list[str]:
    """Begin with *backup*; give the stores that it names as not yet sent."""
    given = backup.manager.init(last)
    if isinstance(given, str) or not isinstance(given, Collection):
        raise ConfigError(
            f"backend {backup.name!r} broke its contract: init() gave {type(given).__name__}, not names of stores"
        )
    return list(given)


def _done(checkpoint: Checkpoint) -> Future[Checkpoint]:
    future: Future[Checkpoint] = Future()
    future.set_result(checkpoint)
    return future


def _name_of(hook: Callable[[], None]) -> str:
    return getattr(hook, "__qualname__", repr(hook))
