"""Probes and tidies a job's place in an object store."""

from __future__ import annotations

from millpond.blob.layout import job_prefix
from millpond.blob.lease import SharedStore
from millpond.blob.probe import probe_data
from millpond.spi import JobContext, StateBackendAdmin


class BlobAdmin(StateBackendAdmin):
    """Probes and tidies a job's place in an object store."""

    def __init__(self, job: JobContext, backend: str, shared: SharedStore) -> None:
        self._job, self._backend, self._shared = job, backend, shared

    def validate_resources(self) -> None:
        """Try permissions, ranged reads and listings, and compare clocks."""
        lease = self._shared.lease(self._job)
        try:
            probe_data(lease.store, job_prefix(self._job.job, self._job.job_id), self._job.clock)
        finally:
            lease.close()
