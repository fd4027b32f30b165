"""``memory:``: objects in this process, for tests and trials."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from threading import Lock
from typing import Any

from millpond.blob import BlobEntry, Body
from millpond_fsspec.reading import whole
from millpond_fsspec.store import FsspecStore

_lock = Lock()
"""fsspec looks and then writes, and hands one stream to all readers: each verb holds this."""


class MemoryStore(FsspecStore):
    """Objects that die with the process. fsspec keeps them for the whole process, whoever opens the URL."""

    def _put(self, fs: Any, key: str, body: Body, *, if_absent: bool) -> bool:
        with whole(body) as stream:
            data = stream.read()
        path = self.place.path(key)
        with _lock:
            if if_absent and path in fs.store:
                return False
            fs.pipe_file(path, data)
            self._check_size(key, len(fs.store[path].getbuffer()), body.size)
        return True

    def _get(self, fs: Any, key: str, start: int, length: int | None) -> bytes:
        with _lock:
            held = fs.store.get(self.place.path(key))
            if held is None:
                raise FileNotFoundError(key)
            with held.getbuffer() as view:
                return bytes(view[start : None if length is None else start + length])

    def _list(self, prefix: str, after: str) -> Iterator[BlobEntry]:
        with self._instances.use() as fs, _lock:
            found = [
                BlobEntry(key, len(held.getvalue()), int(held.created.timestamp() * 1000))
                for path, held in fs.store.items()
                if (key := self.place.key(path)) is not None and key.startswith(prefix) and key > after
            ]
        return iter(sorted(found, key=lambda entry: entry.key))

    def _delete(self, fs: Any, keys: Collection[str]) -> None:
        with _lock:
            for key in keys:
                fs.store.pop(self.place.path(key), None)

    def _now(self, fs: Any) -> int:
        return time.time_ns() // 1_000_000
