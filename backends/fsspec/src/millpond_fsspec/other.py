"""Whatever else fsspec opens: objects are kept there with care, records never."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, ClassVar

from millpond.blob import BlobEntry, Body
from millpond.errors import ConfigError, TransientError
from millpond_fsspec.reading import COPY_SIZE, whole
from millpond_fsspec.store import FsspecStore
from millpond_fsspec.walking import UNFINISHED, Child, walk

_TIMES = ("mtime", "modified", "last_modified", "LastModified", "updated", "created", "creation_time", "timeCreated")


class OtherStore(FsspecStore):
    """
    An implementation that nobody has tried with Millpond.

    Where it has a move of its own, an object is written under another name and moved, and the move is looked at, since
    some do nothing and say nothing. Elsewhere it is written in place, and a reader finds a short one by its digest.
    """

    shared: ClassVar[bool] = False

    def _put(self, fs: Any, key: str, body: Body, *, if_absent: bool) -> bool:
        if if_absent:
            raise ConfigError(f"cannot create {self.where(key)} exclusively: {self.capabilities.reason}")
        path = self.place.path(key)
        with suppress(NotImplementedError):
            fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        if _moves(fs):
            self._write_and_move(fs, key, path, body)
        else:
            self._write(fs, key, path, body)
        return True

    def _write_and_move(self, fs: Any, key: str, path: str, body: Body) -> None:
        temporary = f"{path}{UNFINISHED}{secrets.token_hex(12)}"
        self._write(fs, key, temporary, body)
        try:
            fs.mv(temporary, path)
            fs.invalidate_cache()
            if fs.exists(temporary):
                raise TransientError(f"{self.where(key)}: a move to it did nothing and said nothing")
            self._check_size(key, int(fs.info(path)["size"]), body.size)
        except BaseException:
            with suppress(Exception):
                fs.rm_file(temporary)
            raise

    def _write(self, fs: Any, key: str, path: str, body: Body) -> None:
        file = fs.open(path, "wb")
        try:
            with whole(body) as stream:
                while piece := stream.read(COPY_SIZE):
                    file.write(piece)
            file.close()
            fs.invalidate_cache()
            self._check_size(key, int(fs.info(path)["size"]), body.size)
        except BaseException:
            _give_up(fs, file, path)
            raise

    def _get(self, fs: Any, key: str, start: int, length: int | None) -> bytes:
        path = self.place.path(key)
        size = int(fs.info(path)["size"])
        end = size if length is None else min(size, start + length)
        return bytes(fs.cat_file(path, start, end)) if start < end else b""

    def _list(self, prefix: str, after: str) -> Iterator[BlobEntry]:
        return walk(self._children, prefix, after)

    def _children(self, folder: str) -> Iterable[Child]:
        with self._instances.use() as fs:
            fs.invalidate_cache()
            try:
                found = fs.ls(self.place.path(folder.rstrip("/")), detail=True)
            except FileNotFoundError:
                return []
        return [
            Child(each["name"].rstrip("/").rpartition("/")[2], each["type"] == "directory", *self._facts(each))
            for each in found
            if each["type"] in ("file", "directory")
        ]

    def _facts(self, info: dict[str, Any]) -> tuple[int, int]:
        """Give size and time; a folder needs none."""
        return (0, 0) if info["type"] == "directory" else (int(info["size"] or 0), self._millis(info))

    def _millis(self, info: dict[str, Any]) -> int:
        for name in _TIMES:
            if (millis := _as_millis(info.get(name))) is not None:
                return millis
        raise ConfigError(f"{self.where()}: {self.place.cls.__name__} does not say when a file was made: use another")

    def _delete(self, fs: Any, keys: Collection[str]) -> None:
        for key in sorted(keys):
            with suppress(FileNotFoundError):
                fs.rm_file(self.place.path(key))

    def _now(self, fs: Any) -> int:
        """Give the time of a file that was just written."""
        path = self.place.path(f"now{UNFINISHED}{secrets.token_hex(12)}")
        with suppress(NotImplementedError):
            fs.makedirs(self.place.root, exist_ok=True)
        fs.pipe_file(path, b"now")
        try:
            fs.invalidate_cache()
            return self._millis(fs.info(path))
        finally:
            fs.rm_file(path)


def _moves(fs: Any) -> bool:
    """Tell whether the implementation has a move of its own; fsspec's is a copy and a removal."""
    from fsspec import AbstractFileSystem  # type: ignore[import-untyped]

    return type(fs).mv is not AbstractFileSystem.mv


def _give_up(fs: Any, file: Any, path: str) -> None:
    """Let go of a broken write: closing it would publish what is there so far, and so would its finaliser."""
    with suppress(Exception):
        file.discard()
    file.closed = True
    with suppress(Exception):
        fs.rm_file(path)


def _as_millis(value: object) -> int | None:
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    if isinstance(value, str):
        try:
            return _as_millis(datetime.fromisoformat(value))
        except ValueError:
            return None
    return int(value * 1000) if isinstance(value, int | float) and not isinstance(value, bool) else None
