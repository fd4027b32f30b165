"""One store of a restore: its local image, else the backends in order, and never half of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import stamina

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.errors import (
    ConfigError,
    FencedError,
    FormatError,
    StateCorruptError,
    StateNotFoundError,
    StoreClosedError,
    TransientError,
)
from millpond.events import Listener, Quarantined, RestoreFailedOver, RestoreProgress, StoreIsNew, StoreRestored
from millpond.points import reached
from millpond.restore.parts import RestorePolicy, RestoreTask, Source
from millpond.restore.plan import RestorePlan, StorePlan, refuse_other_rules
from millpond.restore.target import StoreTarget
from millpond.restore.watch import StoppedError, Watch
from millpond.spi import FileEntry
from millpond.stores.images import Image, Made, Sealing

FINAL = (ConfigError, StateNotFoundError, StateCorruptError, FormatError, FencedError, StoreClosedError)
"""Errors that the same call would give again."""

_IMAGE_NAME = re.compile(r"([+-]?[0-9]+-[+-]?[0-9]+)-(.+)", re.ASCII)


class StoreRestorer:
    """Restores the stores of one task, each by itself; any thread."""

    def __init__(self, task: RestoreTask, policy: RestorePolicy, watch: Watch) -> None:
        """Restore as long as *watch* allows."""
        self._task = task
        self._policy = policy
        self._watch = watch

    def restore(self, plan: RestorePlan, store: StorePlan) -> Image | None:
        """
        Give the store's image, whole and in its place; None for a store that begins empty.

        Raises:
            StateNotFoundError, StateCorruptError: No backend can give it back.
            ConfigError: It was written by other rules than the configured ones.
            TransientError: A failure that may go away did not within the attempts.
        """
        begun = self._task.job.clock.monotonic()
        if store.new or plan.checkpoint is None:
            self._tell_new(plan, store)
            return None
        image, source = self._from_local(store), "local"
        try:
            if image is None:
                image, source = self._from_backends(plan.checkpoint, store)
        except StateNotFoundError:
            if not self._task.store(store.store).wants.ephemeral:
                raise
            self._task.tell(StoreIsNew(**self._task.where(), store=store.store))
            return None
        reached("restore.store-sealed")
        duration_s = self._task.job.clock.monotonic() - begun
        size = 0 if source == "local" else image.size
        self._task.tell(
            StoreRestored(**self._task.where(), store=store.store, source=source, duration_s=duration_s, size=size)
        )
        return image

    def _tell_new(self, plan: RestorePlan, store: StorePlan) -> None:
        if plan.checkpoint is not None and not self._task.store(store.store).wants.ephemeral:
            self._task.tell(StoreIsNew(**self._task.where(), store=store.store))

    def _from_local(self, store: StorePlan) -> Image | None:
        """Give the local image that the checkpoint names, if it is whole; damage is moved aside."""
        if store.image is None:
            return None
        directory = self._task.directory
        try:
            manifest = directory.verify(
                store.store, store.image, transfers=self._task.job.transfers, check=self._watch.check
            )
        except StateNotFoundError:
            return None
        except StateCorruptError as error:
            self._fail_over(store.store, "local", store.sources[0][0], error)
            self.quarantine(store.store, store.image, error)
            return None
        self.check_properties(store.store, manifest.properties)
        return Image(store.store, store.image, directory.image(store.store, store.image), manifest.files)

    def quarantine(self, store: str, image: str, error: StateCorruptError) -> None:
        """Move a local image that is proven damaged aside, so that the next restore asks the backends."""
        directory = self._task.directory
        path = directory.quarantine(directory.image(store, image), str(error))
        self._task.tell(Quarantined(**self._task.where(), path=path, reason=str(error)))

    def _from_backends(self, checkpoint: Checkpoint, store: StorePlan) -> tuple[Image, str]:
        """Ask the backends in order; not found and corrupt lead to the next one."""
        following = [name for name, _ in store.sources[1:]] + [""]
        errors: list[StateNotFoundError | StateCorruptError] = []
        for (name, marker), after in zip(store.sources, following, strict=True):
            try:
                return self._from_backend(checkpoint, store.store, self._task.source(name), marker), name
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
        policy, left_s = self._policy, self._watch.left_s()
        for attempt in stamina.retry_context(
            on=lambda error: not isinstance(error, (*FINAL, StoppedError)),
            attempts=policy.attempts,
            timeout=None if left_s is None else max(0.1, left_s),
            wait_initial=0.1,
            wait_max=policy.max_wait_s,
        ):
            with attempt:
                return self._ask(checkpoint, store, source, marker)
        raise AssertionError("a retry ends by a result or by an error")

    def _ask(self, checkpoint: Checkpoint, store: str, source: Source, marker: str) -> Image:
        self._watch.check()
        configured, made = self._task.store(store), self._made(checkpoint, store)
        self._make_way(store, made)
        target = StoreTarget(
            configured.spec,
            configured.engine,
            marker,
            self._task.directory.stage(store, made.image),
            lambda: self._older_image(checkpoint.id, store, source.key),
            _Progress(self._task.job.listener, self._task.where(), store, source.name),
            self._watch.check,
            self._task.job.transfers,
            lambda: self._local_files(store),
            self._task.engine_named,
        )
        try:
            _called(source, target)
            self._watch.check()
            if target.adopted is not None:
                self.check_properties(store, target.adopted.properties)
            reached("restore.store-filled")
            return target.finish(self._sealing(), made, configured.properties)
        except Exception as error:
            error.add_note(f"while restoring store {store!r} of task {self._task.task!r} from backend {source.name!r}")
            raise
        finally:
            target.close()

    def _make_way(self, store: str, made: Made) -> None:
        """Remove what lies where the image goes: an earlier pass of this restore left it, and no record names it."""
        names = self._task.directory.image_names(store)
        if made.image in names:
            self._task.directory.drop_images(store, set(names) - {made.image})

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
            same_engine = manifest.engine == self._task.store(store).spec.engine
            if marker is not None and manifest.id < than and checkpoint.images.get(store) == name and same_engine:
                return marker, directory.image(store, name)
        return None

    def _local_files(self, store: str) -> list[FileEntry]:
        """Give the files of all whole local images of *store*: only a short cut, so what is damaged is passed over."""
        directory, transfers = self._task.directory, self._task.job.transfers
        found: list[FileEntry] = []
        for name in directory.image_names(store):
            try:
                manifest = directory.verify(store, name, transfers=transfers, check=self._watch.check)
            except (StateNotFoundError, StateCorruptError):
                continue
            image = directory.image(store, name)
            found += [FileEntry(each.name, image / each.name, each.size, each.digest) for each in manifest.files]
        return found

    def check_properties(self, store: str, written: Mapping[str, str]) -> None:
        """Refuse a store that was *written* by other rules than those by which it would be read."""
        refuse_other_rules(store, written, self._task.store(store).properties)

    def _sealing(self) -> Sealing:
        return Sealing(
            directory=self._task.directory,
            transfers=self._task.job.transfers,
            algorithm=self._policy.algorithm,
            check=self._watch.check,
        )

    def _fail_over(self, store: str, source: str, following: str, error: BaseException) -> None:
        self._task.tell(
            RestoreFailedOver(**self._task.where(), store=store, source=source, following=following, error=error)
        )


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
