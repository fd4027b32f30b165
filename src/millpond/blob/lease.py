"""One open store for all who use it: opened by the first, closed by the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from millpond.blob.store import BlobStore
from millpond.errors import StoreClosedError
from millpond.spi import JobContext


class StoreLease:
    """One user's hold on a shared store. Any thread may use it."""

    def __init__(self, sharing: SharedStore, store: BlobStore) -> None:
        """Hold *store*, which *sharing* counts the holders of."""
        self._sharing = sharing
        self._store: BlobStore | None = store

    @property
    def store(self) -> BlobStore:
        """The store; StoreClosedError after ``close``."""
        store = self._store
        if store is None:
            raise StoreClosedError("this backend is closed: reopen its task")
        return store

    def close(self) -> None:
        """Let go; the last holder closes the store. Idempotent."""
        if self._store is not None:
            self._store = None
            self._sharing.returned()


class SharedStore:
    """Opens a store for the first holder and closes it after the last: one pool of connections for all tasks."""

    def __init__(self, open_store: Callable[[JobContext], BlobStore]) -> None:
        """Open stores by *open_store*, one at a time."""
        self._open = open_store
        self._lock = Lock()
        self._store: BlobStore | None = None
        self._holders = 0

    def lease(self, job: JobContext) -> StoreLease:
        """Hold the store, opening it for *job* if nobody does."""
        with self._lock:
            if self._store is None:
                self._store = self._open(job)
            self._holders += 1
            return StoreLease(self, self._store)

    @contextmanager
    def leased(self, job: JobContext) -> Iterator[BlobStore]:
        """Hold the store for the block."""
        lease = self.lease(job)
        try:
            yield lease.store
        finally:
            lease.close()

    def returned(self) -> None:
        """Count one holder less."""
        with self._lock:
            self._holders -= 1
            store = self._store if self._holders == 0 else None
            if store is not None:
                self._store = None
        if store is not None:
            store.close()
