"""The entry points: a state backend and a checkpoint manager, each over a bucket."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from millpond.blob import BlobBackend, BlobCheckpoints, BlobSettings, RecordsSettings
from millpond.spi import JobContext
from millpond_s3.settings import S3Settings
from millpond_s3.store import S3Store


@frozen(kw_only=True, slots=False)
class S3BackendSettings(S3Settings, BlobSettings):
    """The section of a backend: where the bucket is, and what every backend over an object store is told."""


@frozen(kw_only=True, slots=False)
class S3RecordsSettings(S3Settings, RecordsSettings):
    """The section of the checkpoint manager: where the bucket is, and how often superseded records are removed."""


class S3Backend(BlobBackend):
    """Backs stores up to a bucket."""

    config_class: ClassVar[type] = S3BackendSettings
    config: S3BackendSettings

    def open_store(self, job: JobContext) -> S3Store:
        """Open the bucket; nothing is sent yet."""
        return S3Store(self.config, job.transfers.threads)


class S3Checkpoints(BlobCheckpoints):
    """Keeps the records of a job's tasks in a bucket."""

    config_class: ClassVar[type] = S3RecordsSettings
    config: S3RecordsSettings

    def open_store(self, job: JobContext) -> S3Store:
        """Open the bucket; nothing is sent yet."""
        return S3Store(self.config, job.transfers.threads)
