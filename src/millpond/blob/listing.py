"""Looking around in a store with few requests."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.blob.layout import AFTER_ALL, task_of
from millpond.blob.store import BlobEntry, BlobStore


def first(store: BlobStore, prefix: str, after: str = "") -> BlobEntry | None:
    """Give the first object below *prefix* whose key is greater than *after*; None if there is none."""
    return next(iter(store.list(prefix, after=after)), None)


def has_any(store: BlobStore, prefix: str) -> bool:
    """Tell whether there is an object below *prefix*."""
    return first(store, prefix) is not None


def task_folders(store: BlobStore, job: str) -> Iterator[str]:
    """Find the tasks that have anything below the job's prefix *job*: one request a task, however much each has."""
    after = ""
    while (found := first(store, job, after)) is not None:
        task = task_of(job, found.key)
        if task is None:
            after = found.key
            continue
        yield task
        after = f"{job}{found.key.removeprefix(job).partition('/')[0]}/{AFTER_ALL}"
