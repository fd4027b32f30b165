"""``gs:``: Google Cloud Storage over gcsfs, by its JSON interface."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from io import BytesIO
from types import MappingProxyType
from typing import Any, ClassVar

from millpond.blob import BlobEntry, Body
from millpond.errors import ConfigError
from millpond_fsspec.failures import status_of
from millpond_fsspec.reading import whole
from millpond_fsspec.remote import RemoteStore
from millpond_fsspec.walking import UNFINISHED

_CHUNK = 8 << 20  # a multiple of 256 KiB, as resumable uploads want
_HEADERS = {"Content-Type": "application/octet-stream"}

_BOUNDARY = secrets.token_hex(16)  # which no object holds


class _Kept(BytesIO):
    """Bytes that are sent piece by piece, and again if need be: the client would close them after the first time."""

    def close(self) -> None:
        """Stay open."""


class GcsStore(RemoteStore):
    """
    Objects in a bucket.

    ``ifGenerationMatch=0`` makes a creation exclusive. A large body goes by a resumable upload, in one stream, whose
    object appears when it is whole; one that was broken off is cancelled, and forgotten by Google after a week.
    """

    permissions: ClassVar[Mapping[str, str]] = MappingProxyType({
        "write": "storage.objects.create (and .delete to replace)",
        "read": "storage.objects.get",
        "list": "storage.objects.list",
        "remove": "storage.objects.delete",
        "ask for the time of": "storage.objects.list",
    })  # fmt: skip

    def _connect(self) -> Any:
        from aiohttp import ClientTimeout

        session = dict(self.place.options.get("session_kwargs") or {})  # type: ignore[call-overload]
        session.setdefault(
            "timeout", ClientTimeout(total=None, sock_connect=self.place.timeout_s, sock_read=self.place.timeout_s)
        )
        return self.place.make(session_kwargs=session, consistency="size")

    def _disconnect(self, fs: Any) -> None:
        if fs.session is not None:
            asyncio.run_coroutine_threadsafe(fs.session.close(), fs.loop).result(self.place.timeout_s)

    def _put(self, fs: Any, key: str, body: Body, *, if_absent: bool) -> bool:
        mode = "create" if if_absent else "overwrite"
        # Each kind of upload honours the condition; only this one was seen to do so in a race, on the emulator too.
        upload = self._upload_whole if if_absent or body.size <= _CHUNK else self._upload_in_chunks
        try:
            stored = self._wait(fs, upload(fs, key, body, mode), body.size)
        except FileExistsError:
            if not if_absent:
                raise
            return False
        self._check_size(key, int(stored["size"]), body.size)
        return True

    async def _upload_whole(self, fs: Any, key: str, body: Body, mode: str) -> Any:
        with whole(body) as stream:
            data = _related({"name": self._split(key)[1]}, stream.read())
        headers = {"Content-Type": f'multipart/related; boundary="{_BOUNDARY}"'}
        _, said = await self._post(fs, "multipart", mode, data=data, headers=headers)
        return json.loads(said)

    async def _upload_in_chunks(self, fs: Any, key: str, body: Body, mode: str) -> Any:
        headers, said = await self._post(fs, "resumable", mode, name=self._split(key)[1], headers=_HEADERS)
        session = str(headers["Location"])
        try:
            with whole(body) as stream:
                for offset in range(0, body.size, _CHUNK):
                    piece = await asyncio.to_thread(stream.read, _CHUNK)
                    said = await self._send(fs, session, piece, offset, body.size)
        except BaseException:
            with suppress(Exception):  # Google forgets it after a week
                await self._call(fs, "DELETE", session.replace("&ifGenerationMatch=0", ""))
            raise
        return json.loads(said)

    async def _send(self, fs: Any, session: str, piece: bytes, offset: int, total: int) -> Any:
        """Send *piece*, and again what Google says it did not keep of it."""
        while True:
            last = offset + len(piece) - 1
            place = {"Content-Range": f"bytes {offset}-{last}/{total}", "Content-Length": str(len(piece))}
            headers, said = await self._call(fs, "POST", session, data=_Kept(piece), headers={**_HEADERS, **place})
            kept = last if said else int(headers.get("Range", f"-{offset - 1}").rpartition("-")[2])
            if kept >= last:
                return said
            piece, offset = piece[kept + 1 - offset :], kept + 1

    async def _post(self, fs: Any, kind: str, mode: str, **rest: Any) -> Any:
        url = f"{fs.base.partition('/storage/v1/')[0]}/upload/storage/v1/b/{self._bucket}/o"
        only_new = {"ifGenerationMatch": "0"} if mode == "create" else {}
        return await self._call(fs, "POST", url, uploadType=kind, **only_new, **rest)

    async def _call(self, fs: Any, method: str, path: str, *parts: str, **rest: Any) -> Any:
        """Do one request by gcsfs, which signs it and repeats it when that may help."""
        return await fs._call(method, path, *parts, **rest)  # noqa: SLF001 - it has no public name that can be awaited

    def _get(self, fs: Any, key: str, start: int, length: int | None) -> bytes:
        if length == 0:  # a range of nothing cannot be asked for; whether the object is there can
            return self._get(fs, key, 0, 1)[:0]
        end = None if length is None else start + length
        try:
            work = fs._cat_file(self.place.path(key), start or None, end)  # noqa: SLF001 - the awaitable one
            return bytes(self._wait(fs, work, length or 0))
        except FileNotFoundError:
            self._find_bucket(fs)
            raise
        except Exception as error:
            if status_of(error) == 416:
                return b""
            raise

    def _find_bucket(self, fs: Any) -> None:
        """Tell a missing bucket from a missing object: listing it raises."""
        try:
            self._wait(fs, self._page(fs, maxResults=1))
        except FileNotFoundError:
            raise _missing(self._bucket) from None

    def _list(self, prefix: str, after: str) -> Iterator[BlobEntry]:
        with self._instances.use() as fs:
            try:
                for page in self._pages(fs, self._listing(fs, prefix, after)):
                    yield from (entry for item in page if (entry := self._entry(item)) and entry.key > after)
            except FileNotFoundError:
                raise _missing(self._bucket) from None

    async def _listing(self, fs: Any, prefix: str, after: str) -> AsyncIterator[Any]:
        asked = {"prefix": self._split(prefix)[1]}
        if after:
            asked["startOffset"] = self._split(after)[1]
        while True:
            page = await self._page(fs, **asked)
            yield page.get("items", [])
            if not page.get("nextPageToken"):
                return
            asked["pageToken"] = page["nextPageToken"]

    async def _page(self, fs: Any, **parameters: object) -> Any:
        return await self._call(fs, "GET", "b/{}/o", self._bucket, json_out=True, **parameters)

    def _entry(self, item: Mapping[str, Any]) -> BlobEntry | None:
        key = self.place.key(f"{self._bucket}/{item['name']}")
        if not key or key.endswith("/") or UNFINISHED in key:
            return None
        made = datetime.fromisoformat(item.get("timeCreated") or item["updated"])
        return BlobEntry(key, int(item["size"]), int(made.timestamp() * 1000))

    async def _remove(self, fs: Any, key: str) -> None:
        await self._call(fs, "DELETE", "b/{}/o/{}", *self._split(key))

    def _now(self, fs: Any) -> int:
        """Give the time of Google's answer, to the second."""
        headers, _ = self._wait(fs, self._call(fs, "GET", "b/{}/o", self._bucket, maxResults=1))
        return int(parsedate_to_datetime(headers["Date"]).timestamp() * 1000)

    @property
    def _bucket(self) -> str:
        return self.place.root.partition("/")[0]

    def _split(self, key: str) -> tuple[str, str]:
        """Give the bucket and the object's name."""
        bucket, _, name = self.place.path(key).partition("/")
        return bucket, name if key else f"{name}/" if name else ""


def _related(metadata: Mapping[str, str], data: bytes) -> _Kept:
    """Give the body of an upload in one request: the metadata, then the data."""
    head = f"--{_BOUNDARY}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(metadata)}\r\n"
    head += f"--{_BOUNDARY}\r\nContent-Type: {_HEADERS['Content-Type']}\r\n\r\n"
    return _Kept(b"".join((head.encode(), data, f"\r\n--{_BOUNDARY}--".encode())))


def _missing(bucket: str) -> ConfigError:
    return ConfigError(f"there is no bucket {bucket!r}: create it, or correct the URL")
