"""The restore engine: reads the record, asks for the plan, and carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any

from millpond.answers import answer, broken, checkpoint_answer, ids_answer, note_problem, pins_answer
from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.errors import ConfigError, StateCorruptError, StateNotFoundError
from millpond.events import MarkerIgnored, OlderCheckpointChosen, RestorePlanned
from millpond.lanes import Workers
from millpond.patience import Asking, directly
from millpond.points import reached
from millpond.restore.parts import Restored, RestorePolicy, RestoreTask, Source
from millpond.restore.plan import RestorePlan, StorePlan, older_than, plan_restore, refuse_other_layout, v1_turned
from millpond.restore.stores import StoreRestorer
from millpond.restore.watch import StoppedError, Watch
from millpond.stores.images import Image

STOP_TIMEOUT_S = 30.0
"""How long the other stores' restores are awaited once one has failed."""


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
        self._watch = Watch(task, timeout_s)
        self._stores = StoreRestorer(task, policy, self._watch)
        self.working: list[Future[Image | None]] = []

    # ------------------------------------------------------------------------------------------------- which checkpoint

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
                turned, images = self._restore(checkpoint)
                return Restored(turned, images, newest_id)
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
        id = at if isinstance(at, CheckpointId) else pins_answer(manager.pins(task)).get(at)
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
        self._task.tell(
            OlderCheckpointChosen(**self._task.where(), damaged=damaged.id, chosen=checkpoint.id, error=error)
        )
        return checkpoint

    def _before(self, damaged: Checkpoint) -> Checkpoint | None:
        manager, task = self._task.manager, self._task.task
        ids, pins = ids_answer(manager.ids(task)), pins_answer(manager.pins(task))
        chosen = older_than(damaged, {*ids, *pins.values()})
        return None if chosen is None else checkpoint_answer(manager.read(task, chosen), chosen)

    # --------------------------------------------------------------------------------------------------- one checkpoint

    def _restore(self, checkpoint: Checkpoint | None) -> tuple[Checkpoint | None, dict[str, Image]]:
        """Restore *checkpoint*; give it as the plan has it, a V1 with markers, and the stores' images."""
        plan = self._plan(checkpoint)
        sources = {store.store: str(store) for store in plan.stores}
        id = None if checkpoint is None else checkpoint.id
        self._task.tell(RestorePlanned(**self._task.where(), checkpoint=id, sources=sources))
        for store, key in plan.ignored:
            self._task.tell(MarkerIgnored(**self._task.where(), store=store, backend=key))
        reached("restore.planned")
        return plan.checkpoint, self._carry_out(plan)

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
                self._stores.check_properties(name, checkpoint.properties.get(name, {}))
        return plan

    def _v1_markers(self, source: Source, checkpoint: Checkpoint) -> Mapping[str, str]:
        doing = f"backend {source.name!r} looks for its markers among the offsets"
        found = self._patiently(partial(source.manager.v1_markers, checkpoint), doing)
        if problem := note_problem(found, "v1_markers"):
            raise broken(f"backend {source.name!r}", problem)
        return found

    def _carry_out(self, plan: RestorePlan) -> dict[str, Image]:
        """Restore all stores, several at once; the first error stops the rest."""
        self._watch.go()
        workers = Workers("restore", min(self._policy.parallel, len(plan.stores)) or 1)
        try:
            futures = {store.store: workers.submit(self._bound(plan, store)) for store in plan.stores}
            self.working += futures.values()
            self._await(list(futures.values()))
            images = {store: future.result() for store, future in futures.items()}
        finally:
            self._watch.stop()
            workers.close(0 if self._watch.must_hurry() else STOP_TIMEOUT_S)
        return {store: image for store, image in images.items() if image is not None}

    def _bound(self, plan: RestorePlan, store: StorePlan) -> Callable[[], Image | None]:
        def work() -> Image | None:
            try:
                return self._stores.restore(plan, store)
            except BaseException:
                self._watch.stop()
                raise

        return work

    def _await(self, futures: list[Future[Image | None]]) -> None:
        pending: set[Future[Any]] = set(futures)
        while pending and not self._task.closing.done():
            ended = wait({*pending, self._task.closing}, self._watch.left_s(), FIRST_COMPLETED).done
            if not ended:
                raise self._watch.late()
            pending -= ended
        if pending:
            raise self._watch.interrupted()
        errors = [error for future in futures if (error := future.exception()) is not None]
        errors.sort(key=lambda error: isinstance(error, StoppedError))
        if errors:
            raise errors[0]

    def quarantine(self, store: str, image: str, error: StateCorruptError) -> None:
        """Move a local image that is proven damaged aside, so that the next restore asks the backends."""
        self._stores.quarantine(store, image, error)
