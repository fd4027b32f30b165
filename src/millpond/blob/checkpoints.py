"""The checkpoint manager over an object store: numbered records below ``<job>/<task>/records``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from threading import Lock

from attrs import evolve

from millpond.blob.folder import BlobFolder
from millpond.blob.layout import TaskKeys, job_prefix
from millpond.blob.listing import has_any, task_folders
from millpond.blob.probe import probe_records
from millpond.blob.settings import RecordsSettings
from millpond.blob.store import BlobStore
from millpond.errors import ConfigError, StoreClosedError
from millpond.records import NumberedCheckpoints
from millpond.spi import JobContext, ManagerCapabilities, VersionPolicy


class BlobCheckpoints(NumberedCheckpoints):
    """
    Keeps the records of a job's tasks in an object store that creates a key only if it is absent.

    A driver's subclass gives ``config_class`` and :meth:`open_store`, and nothing else. What a commit needs is two
    requests; so removals and listings, each a request of its own, are spread over several commits.
    """

    capabilities = ManagerCapabilities(tidy_every=RecordsSettings().tidy_every)

    def __init__(self, config: object, job: JobContext, versions: VersionPolicy) -> None:
        """Keep what is given; the store is opened by the first call."""
        super().__init__(config, job, versions)
        if isinstance(config, RecordsSettings):
            self.capabilities = evolve(self.capabilities, tidy_every=config.tidy_every)
        self._open: BlobStore | None = None
        self._opening_lock = Lock()
        self._closed = False

    @abstractmethod
    def open_store(self, job: JobContext) -> BlobStore:
        """Open the store that ``self.config`` names; ConfigError if that cannot be right. It is closed with this."""

    def validate_resources(self) -> None:
        """Try permissions, a race of conditional puts, the freshness of listings, and the clock."""
        probe_records(self._store, self._job, self.job.clock)

    def tasks(self) -> Sequence[str]:
        """Give the names of the tasks that have a record here, sorted."""
        store = self._store
        return sorted(task for task in task_folders(store, self._job) if has_any(store, self._keys(task).records))

    def records_folder(self, task: str) -> BlobFolder:
        """Give the place of the task's records."""
        return BlobFolder(self._store, self._keys(task).records)

    def pins_folder(self, task: str) -> BlobFolder:
        """Give the place of the task's pins."""
        return BlobFolder(self._store, self._keys(task).pins)

    def close(self) -> None:
        """Let go of the store; idempotent."""
        with self._opening_lock:
            self._closed = True
            store, self._open = self._open, None
        if store is not None:
            store.close()

    @property
    def _job(self) -> str:
        return job_prefix(self.job.job, self.job.job_id)

    def _keys(self, task: str) -> TaskKeys:
        return TaskKeys.of(self.job.job, self.job.job_id, task)

    @property
    def _store(self) -> BlobStore:
        with self._opening_lock:
            if self._closed:
                raise StoreClosedError("this checkpoint manager is closed: reopen the job")
            if self._open is None:
                self._open = self._fit_store()
            return self._open

    def _fit_store(self) -> BlobStore:
        store = self.open_store(self.job)
        try:
            refuse_unfit(store)
        except BaseException:
            store.close()
            raise
        return store


def refuse_unfit(store: BlobStore) -> None:
    """
    Refuse a store that cannot keep records.

    Raises:
        ConfigError: It cannot create a key only if it is absent, or its listings lag; with what to use instead.
    """
    can = store.capabilities
    if can.conditional_put and can.fresh_listing:
        return
    lacks = "create a key only if it is absent" if not can.conditional_put else "list what was written a moment ago"
    instead = can.reason or "keep the records elsewhere (checkpoint.manager): a directory, S3, or Kafka"
    raise ConfigError(
        f"{store.where()} cannot keep checkpoint records: it cannot {lacks}, so two owners of a task could not be told "
        f"apart; {instead}. It can still hold the state itself, as a backend"
    )
