"""What every object-store backend shares, above one small role: a driver is only a ``BlobStore``."""

from millpond.blob.backend import BlobBackend
from millpond.blob.checkpoints import BlobCheckpoints
from millpond.blob.settings import BlobSettings, RecordsSettings
from millpond.blob.store import (
    AccessDeniedError,
    BlobCapabilities,
    BlobEntry,
    BlobStore,
    Body,
    BrokenBodyError,
    BytesBody,
    FileBody,
    Unfinished,
)

__all__ = [
    "AccessDeniedError",
    "BlobBackend",
    "BlobCapabilities",
    "BlobCheckpoints",
    "BlobEntry",
    "BlobSettings",
    "BlobStore",
    "Body",
    "BrokenBodyError",
    "BytesBody",
    "FileBody",
    "RecordsSettings",
    "Unfinished",
]
