"""What one task brings to its restore, what the operator decides about it, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from attrs import field, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.events import Event
from millpond.local import TaskDirectory
from millpond.restore.live import EngineNamed
from millpond.restore.plan import StoreWants
from millpond.spi import CheckpointManager, JobContext, StoreEngine, StoreSpec, TaskRestoreManager
from millpond.stores.images import Image


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
        closing: Ends when the job is being closed or the host gives the opening up: the restore is then interrupted.
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

    def where(self) -> dict[str, str]:
        """Give what every event says of its place."""
        return {"job": self.job.job, "task": self.task}

    def tell(self, event: Event) -> None:
        """Tell the job's listener."""
        self.job.listener(event)

    def store(self, name: str) -> RestoreStore:
        """Give the configured store *name*."""
        return next(store for store in self.stores if store.spec.name == name)

    def source(self, name: str) -> Source:
        """Give the backend *name*."""
        return next(source for source in self.sources if source.name == name)


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
