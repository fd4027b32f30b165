"""A coordinator's record beside its tasks' records: where ``[checkpoint]`` of the job's configuration keeps those."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Protocol, runtime_checkable

from millpond.blob.checkpoints import BlobCheckpoints
from millpond.checkpoints.directory import DirectoryCheckpoints
from millpond.config import JobConfig
from millpond.coordinator.metadata import CoordinatorMetadata
from millpond.coordinator.numbered import in_blob_store, in_directory
from millpond.errors import ConfigError
from millpond.reading import JobReader

_BLOB_LEASE_S = 15.0


@runtime_checkable
class KeepsCoordinatorRecord(Protocol):
    """What a checkpoint manager has if a coordinator's record can lie beside its records."""

    def coordinator_metadata(self) -> CoordinatorMetadata:
        """Give the place of the record of this manager's job, for its caller to close."""


@contextmanager
def open_metadata(
    config: JobConfig | Mapping[str, object] | str | os.PathLike[str], *, lease_s: float | None = None
) -> Iterator[CoordinatorMetadata]:
    """
    Open the coordinator's record of the job of *config*, beside the records of its tasks; leaving the block closes it.

    Args:
        config: What ``open_job`` takes.
        lease_s: After how many seconds without a sign of life of the leader a standby takes over. None: 15 in an object
            store, and in a directory a lock, which is for coordinators of one machine. In ZooKeeper it is the session's
            time-out, whatever is said here.

    Raises:
        ConfigError: The configuration is wrong, or its checkpoint manager cannot keep such a record.
    """
    with ExitStack() as open_parts:
        reader = open_parts.enter_context(JobReader(config))
        yield open_parts.enter_context(metadata_of(reader, open_parts, lease_s))


def metadata_of(reader: JobReader, open_parts: ExitStack, lease_s: float | None = None) -> CoordinatorMetadata:
    """Give the place of the record of the job that *reader* reads; what it needs is closed with *open_parts*."""
    manager, job, job_id = reader.manager, reader.context.job, reader.context.job_id
    if isinstance(manager, DirectoryCheckpoints):
        return in_directory(manager.config.path, job, job_id, lease_s=lease_s)
    if isinstance(manager, BlobCheckpoints):
        store = manager.open_store(reader.context)
        open_parts.callback(store.close)
        return in_blob_store(store, job, job_id, lease_s=_BLOB_LEASE_S if lease_s is None else lease_s)
    if isinstance(manager, KeepsCoordinatorRecord):
        return manager.coordinator_metadata()
    raise ConfigError(
        f"the checkpoint manager {reader.config.checkpoint.manager!r} cannot keep a coordinator's record beside its "
        f"own: use that of a directory, an object store or ZooKeeper, or give the Coordinator another place"
    )
