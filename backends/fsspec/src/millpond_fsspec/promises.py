"""What each implementation of fsspec really promises: the allow-list."""

from __future__ import annotations

from attrs import frozen

from millpond.blob import BlobCapabilities

ELSEWHERE = (
    'keep the records elsewhere (checkpoint.manager = "directory", "s3", or "fsspec" with file:, gs:, abfs:, webhdfs:)'
)


@frozen
class Promise:
    """
    What is known of one implementation.

    Attributes:
        driver: The module of this package that knows it, and its class.
        capabilities: What a store on it can do.
        extra: The extra of ``millpond-fsspec`` that installs what it needs; empty if nothing is.
    """

    driver: str
    capabilities: BlobCapabilities
    extra: str = ""


_STRONG = BlobCapabilities()

KNOWN = {
    "fsspec.implementations.local.LocalFileSystem": Promise("files.FileStore", _STRONG),
    "fsspec.implementations.memory.MemoryFileSystem": Promise("memory.MemoryStore", _STRONG),
    "fsspec.implementations.webhdfs.WebHDFS": Promise("hdfs.HdfsStore", _STRONG, "hdfs"),
    "gcsfs.core.GCSFileSystem": Promise("gcs.GcsStore", BlobCapabilities(max_object_bytes=5 << 40), "gcs"),
    "adlfs.spec.AzureBlobFileSystem": Promise(
        "azure.AzureStore", BlobCapabilities(max_object_bytes=190 << 40), "azure"
    ),
    "fsspec.implementations.sftp.SFTPFileSystem": Promise(
        "sftp.SftpStore",
        BlobCapabilities(
            conditional_put=False,
            reason=f"SFTP has no call that creates a file for exactly one of several callers; {ELSEWHERE}",
        ),
        "sftp",
    ),
}
"""By the implementation's class, not by protocol: another class under the same protocol promises nothing."""

EXTRAS = {"gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure", "sftp": "sftp", "ssh": "sftp",
          "webhdfs": "hdfs", "webHDFS": "hdfs"}  # fmt: skip

_INSTEAD = {
    "s3fs.core.S3FileSystem": 'use manager = "s3" and type = "s3" (millpond-s3)',
    "fsspec.implementations.arrow.HadoopFileSystem": "use webhdfs: for the same cluster",
    "fsspec.implementations.dirfs.DirFileSystem": "name the file system itself, with a prefix",
}


def promise_of(cls_path: str) -> Promise:
    """Say what the implementation *cls_path* (module and name) promises; an unknown one nothing."""
    known = KNOWN.get(cls_path)
    if known is not None:
        return known
    instead = _INSTEAD.get(cls_path, ELSEWHERE)
    reason = f"nobody has tried whether {cls_path} creates a file exclusively; {instead}"
    return Promise("other.OtherStore", BlobCapabilities(conditional_put=False, fresh_listing=False, reason=reason))
