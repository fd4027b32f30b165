"""``abfs:``: Azure Blob Storage and Data Lake over adlfs and the SDK below it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from io import BytesIO
from types import MappingProxyType
from typing import Any, ClassVar

from millpond.blob import BlobEntry, Body
from millpond.errors import ConfigError, StateNotFoundError
from millpond_fsspec.failures import Kind, kind_of, status_of
from millpond_fsspec.reading import whole
from millpond_fsspec.remote import RemoteStore
from millpond_fsspec.walking import UNFINISHED

_PARALLEL = 4
_FIRST_BACKOFF_S = 1
_WHOLE = 8 << 20  # a larger body goes in blocks


class AzureStore(RemoteStore):
    """
    Blobs in a container.

    ``If-None-Match: *`` makes a creation exclusive. A large body goes in blocks, in parallel, and appears when the list
    of its blocks is written; blocks that nobody lists are removed by Azure after a week.
    """

    permissions: ClassVar[Mapping[str, str]] = MappingProxyType({
        "write": "the role Storage Blob Data Contributor, or a SAS with create and write",
        "read": "the role Storage Blob Data Reader, or a SAS with read",
        "list": "the role Storage Blob Data Reader, or a SAS with list",
        "remove": "the role Storage Blob Data Contributor, or a SAS with delete",
        "ask for the time of": "the role Storage Blob Data Reader, or a SAS with list",
    })  # fmt: skip

    def _connect(self) -> Any:
        fs = self.place.make()
        client = fs.service_client
        settings = getattr(client, "_config", None)
        if settings is not None and hasattr(settings, "max_single_put_size"):  # 64 MiB otherwise, all of it in memory
            settings.max_single_put_size = _WHOLE
        # adlfs passes no retry settings on, and the SDK's first repetition comes after 15 s: a commit would be late.
        for policy in getattr(getattr(client, "_pipeline", None), "_impl_policies", ()):
            if hasattr(policy, "initial_backoff"):
                policy.initial_backoff = _FIRST_BACKOFF_S
        return fs

    def _disconnect(self, fs: Any) -> None:
        self._wait(fs, fs.service_client.close())

    def _put(self, fs: Any, key: str, body: Body, *, if_absent: bool) -> bool:
        try:
            self._wait(fs, self._upload(fs, key, body, if_absent=if_absent), body.size)
        except Exception as error:
            if if_absent and _code(error) in ("BlobAlreadyExists", "ConditionNotMet"):
                return False
            raise
        return True

    async def _upload(self, fs: Any, key: str, body: Body, *, if_absent: bool) -> None:
        async with self._blob(fs, key) as blob:
            with whole(body) as stream:
                await blob.upload_blob(
                    stream if body.size > _WHOLE else BytesIO(stream.read()),
                    length=body.size,
                    overwrite=not if_absent,
                    max_concurrency=_PARALLEL,
                    **self._limits,
                )
            stored = await blob.get_blob_properties(**self._limits)
        self._check_size(key, stored.size, body.size)

    def _get(self, fs: Any, key: str, start: int, length: int | None) -> bytes:
        try:
            return self._wait(fs, self._download(fs, key, start, length), length or 0)
        except Exception as error:
            if status_of(error) == 416:
                return b""
            if _code(error) == "BlobNotFound":
                raise StateNotFoundError(f"there is no object {self.where(key)}") from None
            if kind_of(error) is Kind.MISSING:
                raise ConfigError(f"there is no container {self._container!r}: create it, or correct the URL") from None
            raise

    async def _download(self, fs: Any, key: str, start: int, length: int | None) -> bytes:
        async with self._blob(fs, key) as blob:
            if length == 0:
                await blob.get_blob_properties(**self._limits)
                return b""
            stream = await blob.download_blob(start, length, max_concurrency=1, **self._limits)
            return bytes(await stream.readall())

    def _list(self, prefix: str, after: str) -> Iterator[BlobEntry]:
        with self._instances.use() as fs:
            for page in self._pages(fs, self._listing(fs, prefix, after)):
                yield from (entry for each in page if (entry := self._entry(each)) and entry.key > after)

    async def _listing(self, fs: Any, prefix: str, after: str) -> AsyncIterator[list[Any]]:
        client = fs.service_client.get_container_client(self._container)
        start = {"start_from": self._name(after)} if after else {}
        found = client.list_blobs(name_starts_with=self._name(prefix) or None, **start)
        async for page in found.by_page():
            yield [each async for each in page]

    def _entry(self, blob: Any) -> BlobEntry | None:
        key = self.place.key(f"{self._container}/{blob.name}")
        folder = (blob.metadata or {}).get("hdi_isfolder") == "true" or blob.size is None
        if not key or key.endswith("/") or folder or UNFINISHED in key:
            return None
        made: datetime = blob.creation_time or blob.last_modified
        return BlobEntry(key, int(blob.size), int(made.timestamp() * 1000))

    async def _remove(self, fs: Any, key: str) -> None:
        async with self._blob(fs, key) as blob:
            await blob.delete_blob(delete_snapshots="include", **self._limits)

    def _now(self, fs: Any) -> int:
        return self._wait(fs, self._ask_time(fs))

    async def _ask_time(self, fs: Any) -> int:
        dates: list[str] = []
        client = fs.service_client.get_container_client(self._container)
        found = client.list_blobs(
            results_per_page=1, raw_response_hook=lambda said: dates.append(said.http_response.headers["Date"])
        )
        async for _ in found.by_page():
            break
        return int(parsedate_to_datetime(dates[-1]).timestamp() * 1000)

    def _blob(self, fs: Any, key: str) -> Any:
        return fs.service_client.get_blob_client(self._container, self._name(key))

    @property
    def _limits(self) -> Mapping[str, Any]:
        return {"connection_timeout": self.place.timeout_s, "read_timeout": self.place.timeout_s}

    @property
    def _container(self) -> str:
        return self.place.root.partition("/")[0]

    def _name(self, key: str) -> str:
        name = self.place.path(key).partition("/")[2]
        return name if key else f"{name}/" if name else ""


def _code(error: BaseException) -> str:
    """Give Azure's word for *error*."""
    return str(getattr(getattr(error, "error_code", ""), "value", getattr(error, "error_code", "")))
