"""The restore engine: reads the record, asks for the plan, and carries it out."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from pathlib import Path
from typing import Any

import stamina
from attrs import field, frozen

from millpond.answers import answer, broken, checkpoint_answer, note_problem
from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import (
    ConfigError,
    FencedError,
    FormatError,
    StateCorruptError,
    StateNotFoundError,
    StoreClosedError,
    TransientError,
)
from millpond.events import (
    Event,
    Listener,
    MarkerIgnored,
    OlderCheckpointChosen,
    Quarantined,
    RestoreFailedOver,
    RestorePlanned,
    RestoreProgress,
    StoreIsNew,
    StoreRestored,
)
from millpond.lanes import Workers
from millpond.local import TaskDirectory
from millpond.patience import Asking, directly
from millpond.points import reached
from millpond.restore.live import EngineNamed
from millpond.restore.plan import (
    RestorePlan,
    StorePlan,
    StoreWants,
    older_than,
    plan_restore,
    refuse_other_layout,
    refuse_other_rules,
    v1_turned,
)
from millpond.restore.target import StoreTarget
from millpond.spi import CheckpointManager, FileEntry, JobContext, StoreEngine, StoreSpec, TaskRestoreManager
from millpond.stores.images import Image, Made, Sealing

STOP_TIMEOUT_S = 30.0
"""How long the other stores' restores are awaited once one has failed."""

FINAL = (ConfigError, StateNotFoundError, StateCorruptError, FormatError, FencedError, StoreClosedError)
"""Errors that the same call would give again."""

_IMAGE_NAME = re.compile(r"([+-]?[0-9]+-[+-]?[0-9]+)-(.+)", re.ASCII)


@frozen
class Source:
    """
    A backend as the restore engine sees it.

    Attributes:
        name: The section's name in the configuration.
        key: The key of its markers.
        manager: Restores this task's stores.
    """

    name: str
    key: str
    manager: TaskRestoreManager


@frozen(kw_only=True)
class RestorePolicy:
    """
    What the operator decides about restores.

    Attributes:
        older_on_damage: Take all stores and offsets to an older checkpoint when nobody can give the newest back.
        parallel: Stores that are restored at once.
        attempts: How often a backend is asked before a failure that may go away is final.
        max_wait_s: The longest pause between two attempts.
        algorithm: Of digests.
    """

    older_on_damage: bool = False
    parallel: int = 4
    attempts: int = 5
    max_wait_s: float = 30.0
    algorithm: str = "blake3"


@frozen
class RestoreStore:
    """
    A store to restore.

    Attributes:
        spec: As configured.
        engine: The class of its engine.
        wants: Its restore list.
        properties: What its manifest must say, e.g. its serdes.
    """

    spec: StoreSpec
    engine: type[StoreEngine]
    wants: StoreWants
    properties: Mapping[str, str] = field(factory=dict)


@frozen(kw_only=True)
class RestoreTask:
    """
    What one task brings to its restore.

    Attributes:
        job: The job.
        task: The task's name.
        claim: Its claim; None: it only reads.
        manager: Keeps the records.
        sources: The backends that some restore list names.
        directory: The task's directories.
        stores: The configured stores.
        backends: Marker key to the name of each configured backend.
        closing: Ends when the job is being closed: the restore is then interrupted.
        engine_named: Finds the engine of an image that another one than the store's made.
    """

    job: JobContext
    task: str
    claim: Claim | None
    manager: CheckpointManager
    sources: Sequence[Source]
    directory: TaskDirectory
    stores: Sequence[RestoreStore]
    backends: Mapping[str, str]
    closing: Future[None] = field(factory=Future)
    engine_named: EngineNamed | None = None


@frozen
class Restored:
    """
    What a restore gave.

    Attributes:
        checkpoint: What the stores are now; None: the task has never committed.
        images: Store to its image; a new store has none.
        newest: The newest id that the manager knows; not the checkpoint's after time travel.
    """

    checkpoint: Checkpoint | None
    images: Mapping[str, Image]
    newest: CheckpointId | None


class RestoreEngine:
    """
    Restores one task.

    Attributes:
        working: Futures of the stores that were begun; one that has not ended still works in the task's folder.
    """

    def __init__(
        self, task: RestoreTask, policy: RestorePolicy, timeout_s: float | None, ask: Asking = directly
    ) -> None:
        """Restore within *timeout_s* seconds, None: without a limit of its own; *ask* waits for what may hang."""
        self._task = task
        self._patiently = ask
        self._policy = policy
        self._clock = task.job.clock
        self._deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        self._stopped = threading.Event()
        self.working: list[Future[Image | None]] = []

    # --------------------------------------------------------------------------------------- which checkpoint

    def restore(self, at: CheckpointId | str | None = None) -> Restored:
        """
        Bring every store to the newest checkpoint, or to *at*: an id, its text, or the name of a pin.

        Raises:
            StateNotFoundError, StateCorruptError: Nobody can give it back, or *at* is not there.
            ConfigError: The configuration does not fit the checkpoint.
            FormatError: A record cannot be read.
            TransientError: A failure that may go away did not within the attempts, or the time is over.
        """
        newest = self._read_last()
        checkpoint = newest if at is None else self._patiently(partial(self._chosen, at), f"reading checkpoint {at}")
        newest_id = None if newest is None else newest.id
        while True:
            try:
                return Restored(checkpoint, self._restore(checkpoint), newest_id)
            except (StateNotFoundError, StateCorruptError) as error:
                checkpoint = self._older(checkpoint, error)

    def plan(self, at: CheckpointId | str | None = None) -> RestorePlan:
        """Say where each store would come from, and change nothing."""
        return self._plan(self._read_last() if at is None else self._chosen(at))

    def _read_last(self) -> Checkpoint | None:
        manager, task = self._task.manager, self._task.task
        last = self._patiently(lambda: manager.read_last(task), "reading its last checkpoint")
        return None if last is None else answer(last, Checkpoint, "the checkpoint manager", "read_last")

    def _chosen(self, at: CheckpointId | str) -> Checkpoint:
        manager, task = self._task.manager, self._task.task
        id = at if isinstance(at, CheckpointId) else manager.pins(task).get(at)
        if id is None:
            try:
                id = CheckpointId.parse(str(at))
            except ValueError:
                raise ConfigError(f"task {task!r}: {at!r} is neither the id of a checkpoint nor a pin") from None
        return checkpoint_answer(manager.read(task, id), id)

    def _older(self, damaged: Checkpoint | None, error: StateNotFoundError | StateCorruptError) -> Checkpoint:
        """Give the next older checkpoint, where the operator allows it; else raise *error*."""
        if damaged is None or not self._policy.older_on_damage or not all(one.done() for one in self.working):
            raise error
        checkpoint = self._patiently(partial(self._before, damaged), f"looking for one before checkpoint {damaged.id}")
        if checkpoint is None:
            raise error
        self._tell(OlderCheckpointChosen(**self._where(), damaged=damaged.id, chosen=checkpoint.id, error=error))
        return checkpoint

    def _before(self, damaged: Checkpoint) -> Checkpoint | None:
        manager, task = self._task.manager, self._task.task
        chosen = older_than(damaged, {*manager.ids(task), *manager.pins(task).values()})
        return None if chosen is None else checkpoint_answer(manager.read(task, chosen), chosen)

    # ----------------------------------------------------------------------------------------- one checkpoint

    def _restore(self, checkpoint: Checkpoint | None) -> dict[str, Image]:
        plan = self._plan(checkpoint)
        sources = {store.store: str(store) for store in plan.stores}
        id = None if checkpoint is None else checkpoint.id
        self._tell(RestorePlanned(**self._where(), checkpoint=id, sources=sources))
        for store, key in plan.ignored:
            self._tell(MarkerIgnored(**self._where(), store=store, backend=key))
        reached("restore.planned")
        return self._carry_out(plan)

    def _plan(self, checkpoint: Checkpoint | None) -> RestorePlan:
        task = self._task
        if checkpoint is not None:
            refuse_other_layout(checkpoint.layout, task.job.layout, task.task)
            for source in task.sources:
                doing = f"backend {source.name!r} begins its restore (init)"
                self._patiently(partial(source.manager.init, checkpoint), doing)
            if checkpoint.claim is None and not checkpoint.markers:
                found = {source.key: self._v1_markers(source, checkpoint) for source in task.sources}
                checkpoint = v1_turned(checkpoint, {key: markers for key, markers in found.items() if markers})
        local = {store.spec.name: task.directory.image_names(store.spec.name) for store in task.stores}
        plan = plan_restore(checkpoint, [store.wants for store in task.stores], local, task.backends)
        if checkpoint is not None:
            for name in (store.store for store in plan.stores if not store.new):
                self._check_properties(name, checkpoint.properties.get(name, {}))
        return plan

    def _v1_markers(self, source: Source, checkpoint: Checkpoint) -> Mapping[str, str]:
        doing = f"backend {source.name!r} looks for its markers among the offsets"
        found = self._patiently(partial(source.manager.v1_markers, checkpoint), doing)
        if problem := note_problem(found, "v1_markers"):
            raise broken(f"backend {source.name!r}", problem)
        return found

    def _carry_out(self, plan: RestorePlan) -> dict[str, Image]:
        """Restore all stores, several at once; the first error stops the rest."""
        self._stopped.clear()
        workers = Workers("restore", min(self._policy.parallel, len(plan.stores)) or 1)
        try:
            futures = {store.store: workers.submit(self._bound(plan, store)) for store in plan.stores}
            self.working += futures.values()
            self._await(list(futures.values()))
            images = {store: future.result() for store, future in futures.items()}
        finally:
            self._stopped.set()
            workers.close(0 if self._is_late() or self._task.closing.done() else STOP_TIMEOUT_S)
        return {store: image for store, image in images.items() if image is not None}

    def _bound(self, plan: RestorePlan, store: StorePlan) -> Callable[[], Image | None]:
        def work() -> Image | None:
            try:
                return self._restore_store(plan, store)
            except BaseException:
                self._stopped.set()
                raise

        return work

    def _await(self, futures: list[Future[Image | None]]) -> None:
        pending: set[Future[Any]] = set(futures)
        while pending and not self._task.closing.done():
            left = None if self._deadline is None else max(0.0, self._deadline - self._clock.monotonic())
            ended = wait({*pending, self._task.closing}, left, FIRST_COMPLETED).done
            if not ended:
                raise self._late()
            pending -= ended
        if pending:
            raise self._interrupted()
        errors = [error for future in futures if (error := future.exception()) is not None]
        errors.sort(key=lambda error: isinstance(error, _StoppedError))
        if errors:
            raise errors[0]

    # ----------------------------------------------------------------------------------------------- one store

    def _restore_store(self, plan: RestorePlan, store: StorePlan) -> Image | None:
        begun = self._clock.monotonic()
        if store.new or plan.checkpoint is None:
            self._tell_new(plan, store)
            return None
        image, source = self._from_local(store), "local"
        try:
            if image is None:
                image, source = self._from_backends(plan.checkpoint, store)
        except StateNotFoundError:
            if not self._store(store.store).wants.ephemeral:
                raise
            self._tell(StoreIsNew(**self._where(), store=store.store))
            return None
        reached("restore.store-sealed")
        duration_s = self._clock.monotonic() - begun
        size = 0 if source == "local" else image.size
        self._tell(StoreRestored(**self._where(), store=store.store, source=source, duration_s=duration_s, size=size))
        return image

    def _tell_new(self, plan: RestorePlan, store: StorePlan) -> None:
        if plan.checkpoint is not None and not self._store(store.store).wants.ephemeral:
            self._tell(StoreIsNew(**self._where(), store=store.store))

    def _from_local(self, store: StorePlan) -> Image | None:
        """Give the local image that the checkpoint names, if it is whole; damage is moved aside."""
        if store.image is None:
            return None
        directory = self._task.directory
        try:
            manifest = directory.verify(store.store, store.image, transfers=self._task.job.transfers, check=self._check)
        except StateNotFoundError:
            return None
        except StateCorruptError as error:
            self._fail_over(store.store, "local", store.sources[0][0], error)
            self.quarantine(store.store, store.image, error)
            return None
        self._check_properties(store.store, manifest.properties)
        return Image(store.store, store.image, directory.image(store.store, store.image), manifest.files)

    def quarantine(self, store: str, image: str, error: StateCorruptError) -> None:
        """Move a local image that is proven damaged aside, so that the next restore asks the backends."""
        directory = self._task.directory
        path = directory.quarantine(directory.image(store, image), str(error))
        self._tell(Quarantined(**self._where(), path=path, reason=str(error)))

    def _from_backends(self, checkpoint: Checkpoint, store: StorePlan) -> tuple[Image, str]:
        """Ask the backends in order; not found and corrupt lead to the next one."""
        following = [name for name, _ in store.sources[1:]] + [""]
        errors: list[StateNotFoundError | StateCorruptError] = []
        for (name, marker), after in zip(store.sources, following, strict=True):
            try:
                return self._from_backend(checkpoint, store.store, self._source(name), marker), name
            except (StateNotFoundError, StateCorruptError) as error:
                errors.append(error)
                self._fail_over(store.store, name, after, error)
        told = "; ".join(f"{name}: {error}" for (name, _), error in zip(store.sources, errors, strict=True))
        kind = StateCorruptError if any(isinstance(e, StateCorruptError) for e in errors) else StateNotFoundError
        raise kind(
            f"task {self._task.task!r}, store {store.store!r}: no backend can give checkpoint {checkpoint.id} back "
            f"({told})"
        ) from errors[-1]

    def _from_backend(self, checkpoint: Checkpoint, store: str, source: Source, marker: str) -> Image:
        policy = self._policy
        for attempt in stamina.retry_context(
            on=lambda error: not isinstance(error, (*FINAL, _StoppedError)),
            attempts=policy.attempts,
            timeout=None if self._deadline is None else max(0.1, self._deadline - self._clock.monotonic()),
            wait_initial=0.1,
            wait_max=policy.max_wait_s,
        ):
            with attempt:
                return self._ask(checkpoint, store, source, marker)
        raise AssertionError("a retry ends by a result or by an error")

    def _ask(self, checkpoint: Checkpoint, store: str, source: Source, marker: str) -> Image:
        self._check()
        configured, made = self._store(store), self._made(checkpoint, store)
        target = StoreTarget(
            configured.spec,
            configured.engine,
            marker,
            self._task.directory.stage(store, made.image),
            lambda: self._older_image(checkpoint.id, store, source.key),
            _Progress(self._task.job.listener, self._where(), store, source.name),
            self._check,
            self._task.job.transfers,
            lambda: self._local_files(store),
            self._task.engine_named,
        )
        try:
            _called(source, target)
            self._check()
            if target.adopted is not None:
                self._check_properties(store, target.adopted.properties)
            reached("restore.store-filled")
            return target.finish(self._sealing(), made, configured.properties)
        except Exception as error:
            error.add_note(f"while restoring store {store!r} of task {self._task.task!r} from backend {source.name!r}")
            raise
        finally:
            target.close()

    def _made(self, checkpoint: Checkpoint, store: str) -> Made:
        """Name the image: as the checkpoint does, so that it is found again; else after the checkpoint."""
        named = _IMAGE_NAME.fullmatch(checkpoint.images.get(store, ""))
        if named is not None:
            return Made(CheckpointId.parse(named[1]), named[2])
        return Made(checkpoint.id, self._task.claim.writer if self._task.claim else "restored")

    def _older_image(self, than: CheckpointId, store: str, key: str) -> tuple[str, Path] | None:
        """Find a whole local image of a checkpoint before *than* that has a marker of the backend *key*."""
        directory, manager = self._task.directory, self._task.manager
        for name in reversed(directory.image_names(store)):
            try:
                manifest = directory.verify(store, name, transfers=self._task.job.transfers)
                checkpoint = manager.read(self._task.task, manifest.id)
            except (StateNotFoundError, StateCorruptError, FormatError):  # only a short cut: another one, or none
                continue
            marker = checkpoint.markers.get(key, {}).get(store)
            same_engine = manifest.engine == self._store(store).spec.engine
            if marker is not None and manifest.id < than and checkpoint.images.get(store) == name and same_engine:
                return marker, directory.image(store, name)
        return None

    def _local_files(self, store: str) -> list[FileEntry]:
        """Give the files of all whole local images of *store*: only a short cut, so what is damaged is passed over."""
        directory, transfers = self._task.directory, self._task.job.transfers
        found: list[FileEntry] = []
        for name in directory.image_names(store):
            try:
                manifest = directory.verify(store, name, transfers=transfers, check=self._check)
            except (StateNotFoundError, StateCorruptError):
                continue
            image = directory.image(store, name)
            found += [FileEntry(each.name, image / each.name, each.size, each.digest) for each in manifest.files]
        return found

    def _check_properties(self, store: str, written: Mapping[str, str]) -> None:
        refuse_other_rules(store, written, self._store(store).properties)

    # ----------------------------------------------------------------------------------------------- all else

    def _sealing(self) -> Sealing:
        return Sealing(
            directory=self._task.directory,
            transfers=self._task.job.transfers,
            algorithm=self._policy.algorithm,
            check=self._check,
        )

    def _store(self, name: str) -> RestoreStore:
        return next(store for store in self._task.stores if store.spec.name == name)

    def _source(self, name: str) -> Source:
        return next(source for source in self._task.sources if source.name == name)

    def _check(self) -> None:
        if self._task.closing.done():
            raise self._interrupted()
        if self._stopped.is_set():
            raise _StoppedError(f"the restore of task {self._task.task!r} was interrupted")
        if self._is_late():
            raise self._late()

    def _is_late(self) -> bool:
        return self._deadline is not None and self._clock.monotonic() > self._deadline

    def _interrupted(self) -> StoreClosedError:
        return StoreClosedError(f"job {self._task.job.job!r} was closed while task {self._task.task!r} was restored")

    def _late(self) -> TransientError:
        return TransientError(f"the restore of task {self._task.task!r} did not end in time: allow more (timeout_s)")

    def _fail_over(self, store: str, source: str, following: str, error: BaseException) -> None:
        self._tell(RestoreFailedOver(**self._where(), store=store, source=source, following=following, error=error))

    def _where(self) -> dict[str, str]:
        return {"job": self._task.job.job, "task": self._task.task}

    def _tell(self, event: Event) -> None:
        self._task.job.listener(event)


class _StoppedError(TransientError):
    """The restore was interrupted, most often because another store failed."""


def _called(source: Source, target: StoreTarget) -> None:
    """Let *source* fill *target*; what is no Exception must not end the host."""
    try:
        source.manager.restore(target)
    except Exception:
        raise
    except BaseException as error:
        raise TransientError(f"backend {source.name!r} raised {type(error).__name__} ({error})") from error


class _Progress:
    """Adds up what a restore manager reports, and tells the listener."""

    def __init__(self, listener: Listener, where: Mapping[str, str], store: str, backend: str) -> None:
        self._tell = listener
        self._where = where
        self._store = store
        self._backend = backend
        self._records = 0
        self._size = 0

    def __call__(self, records: int, size: int, total_size: int | None) -> None:
        self._records += records
        self._size += size
        self._tell(
            RestoreProgress(
                **self._where,
                store=self._store,
                backend=self._backend,
                records=self._records,
                size=self._size,
                total_size=total_size,
            )
        )
