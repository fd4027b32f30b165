"""Where one backend of a job keeps one task's objects, opened to look and to copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millpond.blob import BlobBackend
from millpond.blob.layout import TaskKeys
from millpond.blob.savepoint import DataPlace
from millpond.config import BackendConfig
from millpond.errors import ConfigError
from millpond.reading.job import JobReader


def is_object_store(backend: BackendConfig) -> bool:
    """Tell whether *backend* keeps its state as objects that can be copied one by one."""
    return isinstance(backend.factory, BlobBackend)


@contextmanager
def data_place(reader: JobReader, task: str, section: str) -> Iterator[DataPlace]:
    """
    Open the store of the backend *section* for the block.

    Raises:
        ConfigError: It is no object store, or cannot be opened.
    """
    backend = reader.config.backends[section]
    if not isinstance(backend.factory, BlobBackend):
        raise ConfigError(f"backend {section!r} ({backend.type}) is no object store")
    store = backend.factory.open_store(reader.context)
    try:
        yield DataPlace(store, TaskKeys.of(reader.config.name, reader.config.id, task).data(backend.marker_key))
    finally:
        store.close()
