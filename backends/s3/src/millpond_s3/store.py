"""The driver: the role of an object store, on the SDK's client."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from millpond.blob.store import BlobCapabilities, BlobEntry, BlobStore, Body, Unfinished
from millpond.errors import ConfigError, StoreClosedError
from millpond.lanes import TransferPool
from millpond_s3.bodies import Window, read_whole, whole
from millpond_s3.client import Connection, connect
from millpond_s3.driver_errors import Doing, code_of, expect, translate, translated
from millpond_s3.parts import Upload
from millpond_s3.settings import MIB, S3Settings
from millpond_s3.versions import keeps_versions, remove

_LARGEST = 5 << 40
_AT_ONCE = MIB
"""A body up to this size, such as a record, is sent from memory with its hash, and without first asking for leave."""

_CLOSE_TIMEOUT_S = 10.0


class S3Store(BlobStore):
    """
    A bucket, or the part of it below ``prefix``. Any thread may call it; nothing is sent before the first call.

    The SDK repeats requests, at most ``attempts`` times each; each attempt ends by a timeout.
    """

    capabilities = BlobCapabilities(max_object_bytes=_LARGEST)

    def __init__(self, settings: S3Settings, threads: int = 8) -> None:
        """Keep what is given; *threads* is how many callers there are at once."""
        self._settings, self._parts_at_once = settings, settings.connections or threads
        self._connection: Connection | None = connect(settings, 2 * self._parts_at_once)
        self._lock = threading.Lock()
        self._pool: TransferPool | None = None
        self._versioned: bool | None = False if settings.versions == "keep" else None

    def put(self, key: str, body: Body, *, if_absent: bool = False) -> bool:
        """Make the object *key*: one request, or parts above ``multipart_above``."""
        with self._doing("s3:PutObject", key) as client:
            if body.size > self._settings.multipart_above:
                upload = Upload(client, self._settings, self._parts_pool(), self._key(key), body)
                return upload.run(if_absent=if_absent)
            new = {**self._settings.for_new(), **({"IfNoneMatch": "*"} if if_absent else {})}
            with Window(body, 0, body.size) as window, _unless(if_absent, "PreconditionFailed", "412") as made:
                sent = whole(window) if body.size <= _AT_ONCE else {"Body": window}
                told = client.put_object(**new, **sent, Key=self._key(key), ContentLength=body.size)
                expect(told, "ETag", self.where(key))
                made.append(True)
        return bool(made)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Give a part of an object by one ranged request."""
        end = "" if length is None else start + max(length, 1) - 1
        ranged = {"Range": f"bytes={start}-{end}"} if start or length is not None else {}
        found: dict[str, Any] | None = None
        with self._doing("s3:GetObject", key) as client, _unless(True, "InvalidRange", "416"):
            found = client.get_object(**self._settings.for_content(), Key=self._key(key), **ranged)
        data = b"" if found is None else read_whole(found, self.where(key))
        if length is not None and len(data) > max(length, 1):
            raise ConfigError(f"{self.where(key)}: a part was asked for and more came: the server ignores ranges")
        return data if length else data[:length]

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobEntry]:
        """Give the objects below *prefix*, a thousand a request."""
        last = ""
        place = {"StartAfter": self._key(after)} if after else {}
        with self._doing("s3:ListBucket", prefix) as client:
            pages = client.get_paginator("list_objects_v2")
            for page in pages.paginate(**self._settings.for_any(), Prefix=self._key(prefix), **place):
                expect(page, "IsTruncated", self.where(prefix))
                for one in page.get("Contents", ()):
                    if one["Key"] <= last:
                        raise ConfigError(f"{self.where(prefix)}: keys are listed out of order: use another server")
                    last = one["Key"]
                    yield BlobEntry(self._own(last), one["Size"], _millis(one["LastModified"]))

    def delete(self, keys: Collection[str]) -> None:
        """Remove objects, a thousand a request; with all their versions where the bucket keeps those."""
        if self._versioned is None and keys:
            with self._doing("s3:GetBucketVersioning", "") as client:
                self._versioned = keeps_versions(client, self._settings)
        permission = "s3:DeleteObjectVersion" if self._versioned else "s3:DeleteObject"
        with self._doing(permission, min(keys, default="")) as client:
            whole = [self._key(key) for key in keys]
            failures = remove(client, self._settings, whole, versioned=bool(self._versioned))
        for first in failures:
            more = f"; so it is with {len(failures)} of {len(keys)} objects" if len(failures) > 1 else ""
            raise translate(self._what(permission, self._own(first.key)), 0, first.code, first.message + more)

    def now(self) -> int:
        """Give the Date of the newest answer, moved on; asks for one if none is fresh."""
        connection = self._open()
        with self._doing("s3:ListBucket", ""):
            date = connection.now() or connection.ask()
        if date is None:
            raise ConfigError(f"{self.where()} answers without a Date, which is needed: use another server")
        return date

    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        """Give the multipart uploads that were begun below *prefix* and not finished."""
        with self._doing("s3:ListBucketMultipartUploads", prefix) as client:
            pages = client.get_paginator("list_multipart_uploads")
            found = []
            for page in pages.paginate(**self._settings.for_any(), Prefix=self._key(prefix)):
                expect(page, "IsTruncated", self.where(prefix))
                found += [
                    Unfinished(self._own(one["Key"]), one["UploadId"], _millis(one["Initiated"]))
                    for one in page.get("Uploads", ())
                ]
            return found

    def abort(self, upload: Unfinished) -> None:
        """Drop an unfinished upload and its parts."""
        with self._doing("s3:AbortMultipartUpload", upload.key) as client, _unless(True, "NoSuchUpload", "404"):
            given = self._settings.for_any()
            client.abort_multipart_upload(**given, Key=self._key(upload.key), UploadId=upload.token)

    def where(self, key: str = "") -> str:
        """Name the bucket and *key*, and the server if it is not AWS."""
        at = f" at {self._settings.endpoint}" if self._settings.endpoint else ""
        return f"s3://{self._settings.bucket}/{self._key(key)}{at}"

    def close(self) -> None:
        """Let go of the client, which others may hold, and end the threads for parts."""
        with self._lock:
            connection, self._connection = self._connection, None
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(_CLOSE_TIMEOUT_S)
        if connection is not None:
            connection.close()

    @contextmanager
    def _doing(self, permission: str, key: str) -> Iterator[Any]:
        """Give the client for the block, and raise what it raises as ours."""
        connection = self._open()
        with translated(self._what(permission, key), connection.forget):
            yield connection.client

    def _what(self, permission: str, key: str) -> Doing:
        return Doing(permission, self.where(key), self._settings.bucket)

    def _open(self) -> Connection:
        opened = self._connection
        if opened is None:
            raise StoreClosedError(f"{self.where()} is closed: reopen the task")
        return opened

    def _parts_pool(self) -> TransferPool:
        with self._lock:
            self._open()
            if self._pool is None:
                self._pool = TransferPool(self._parts_at_once, 1)
            return self._pool

    def _key(self, key: str) -> str:
        return f"{self._settings.prefix}{key}"

    def _own(self, key: str) -> str:
        return key[len(self._settings.prefix) :]


@contextmanager
def _unless(fine: bool, *codes: str) -> Iterator[list[bool]]:
    """End the block quietly where the server answers one of *codes* and that is *fine*; the block notes what it did."""
    from botocore.exceptions import ClientError

    did: list[bool] = []
    try:
        yield did
    except ClientError as error:
        if not fine or code_of(error) not in codes:
            raise


def _millis(time: datetime) -> int:
    return int(time.timestamp() * 1_000)
