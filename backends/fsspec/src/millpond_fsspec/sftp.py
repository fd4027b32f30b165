"""``sftp:``: files over SSH. Nothing in the protocol creates a name exclusively, so no records are kept there."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from stat import S_ISDIR, S_ISREG
from types import MappingProxyType
from typing import Any, ClassVar

from millpond.blob import BlobEntry, Body, BrokenBodyError, Unfinished
from millpond.errors import ConfigError
from millpond_fsspec.reading import COPY_SIZE, whole
from millpond_fsspec.store import FsspecStore
from millpond_fsspec.walking import UNFINISHED, Child, unfinished, walk

_WINDOW = 64  # requests of 32 KiB that are on their way at once
_END_S = 5.0  # for a connection's thread to end


class SftpStore(FsspecStore):
    """
    Files on a host that runs an SSH server.

    A new object is a whole temporary file that ``posix-rename`` puts in its place; the server is asked to sync it.
    A connection serves one thread at a time, since paramiko may give one thread's answer to nobody.
    """

    shared: ClassVar[bool] = False
    permissions: ClassVar[Mapping[str, str]] = MappingProxyType({
        "write": "to write in that folder (w, x)",
        "read": "to read that file (r)",
        "list": "to read that folder (r, x)",
        "remove": "to write in that folder (w, x)",
    })  # fmt: skip

    def _connect(self) -> Any:
        limit_s = self.place.timeout_s
        waits = dict.fromkeys(("timeout", "banner_timeout", "auth_timeout", "channel_timeout"), limit_s)
        fs = self.place.make(**{**waits, **self.place.options})
        fs.ftp.get_channel().settimeout(limit_s)
        return fs

    def _disconnect(self, fs: Any) -> None:
        transport = fs.client.get_transport()
        fs.client.close()
        if transport is not None:
            transport.join(_END_S)

    def _is_alive(self, fs: Any) -> bool:
        transport = fs.client.get_transport()
        return transport is not None and bool(transport.is_active())

    def _put(self, fs: Any, key: str, body: Body, *, if_absent: bool) -> bool:
        if if_absent:
            raise ConfigError(f"cannot create {self.where(key)} exclusively: {self.capabilities.reason}")
        path = self.place.path(key)
        temporary = f"{path}{UNFINISHED}{secrets.token_hex(12)}"
        self._make_folders(fs, path.rpartition("/")[0])
        try:
            self._check_size(key, _write(fs, temporary, body), body.size)
            fs.ftp.posix_rename(temporary, path)
        except BaseException:
            with suppress(Exception):  # what cannot be removed now is found by `unfinished`
                fs.ftp.remove(temporary)
            raise
        return True

    def _make_folders(self, fs: Any, folder: str) -> None:
        """Make what is missing of *folder*; another may make it at the same time."""
        try:
            fs.ftp.stat(folder)
        except FileNotFoundError:
            self._make_folders(fs, folder.rpartition("/")[0] or "/")
            try:
                fs.ftp.mkdir(folder)
            except OSError:
                fs.ftp.stat(folder)

    def _get(self, fs: Any, key: str, start: int, length: int | None) -> bytes:
        with fs.ftp.open(self.place.path(key), "rb") as file:
            facts = file.stat()
            if S_ISDIR(facts.st_mode):  # it can be opened, and not read
                raise FileNotFoundError(key)
            size = facts.st_size or 0
            end = size if length is None else min(size, start + length)
            if start >= end:
                return b""
            data = b"".join(file.readv([(start, end - start)], max_concurrent_prefetch_requests=_WINDOW))
        if len(data) != end - start:
            raise BrokenBodyError(f"{self.where(key)}: {end - start:,} bytes were asked for and {len(data):,} came")
        return data

    def _list(self, prefix: str, after: str) -> Iterator[BlobEntry]:
        return walk(self._children, prefix, after)

    def _children(self, folder: str) -> Iterable[Child]:
        with self._instances.use() as fs:
            try:
                found = fs.ftp.listdir_attr(self.place.path(folder.rstrip("/")))
            except FileNotFoundError:
                return []
        return [
            Child(each.filename, S_ISDIR(each.st_mode), each.st_size or 0, int(each.st_mtime or 0) * 1000)
            for each in found
            if S_ISDIR(each.st_mode) or S_ISREG(each.st_mode)
        ]

    def _delete(self, fs: Any, keys: Collection[str]) -> None:
        for key in sorted(keys):
            with suppress(FileNotFoundError):
                fs.ftp.remove(self.place.path(key))

    def _now(self, fs: Any) -> int:
        """Give the time that the server's file system stamps on a new file, to the second."""
        path = self.place.path(f".new-{secrets.token_hex(12)}")
        self._make_folders(fs, self.place.root or "/")
        try:
            with fs.ftp.open(path, "wb") as file:
                return int(file.stat().st_mtime or 0) * 1000
        finally:
            fs.ftp.remove(path)

    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        """Give what killed writers left."""
        with self._told("list", prefix):
            return [Unfinished(key, entry.key, entry.millis) for entry, key in unfinished(self._children, prefix)]

    def abort(self, upload: Unfinished) -> None:
        """Remove it."""
        with self._told("remove", upload.token), self._instances.use() as fs:
            self._delete(fs, [upload.token])


def _write(fs: Any, path: str, body: Body) -> int:
    """Write a file, have it synced where the server can, and give its size there."""
    with fs.ftp.open(path, "wb") as file, whole(body) as stream:
        file.set_pipelined(True)
        while piece := stream.read(COPY_SIZE):
            file.write(piece)
            _drain(fs, file)
        _sync(fs, file)
        return int(file.stat().st_size or 0)


def _drain(fs: Any, file: Any) -> None:
    """Read the answer to each write that was sent ahead; paramiko's own `put` never looks at them."""
    file.flush()
    sent = file._reqs  # noqa: SLF001 - nothing public waits for them and raises
    while sent:
        fs.ftp._read_response(sent.popleft())  # noqa: SLF001


def _sync(fs: Any, file: Any) -> None:
    """Ask for a sync by OpenSSH's extension; a server without it keeps its own counsel."""
    from paramiko.sftp import CMD_EXTENDED  # type: ignore[import-untyped]

    try:
        fs.ftp._request(CMD_EXTENDED, "fsync@openssh.com", file.handle)  # noqa: SLF001 - it has no public name
    except OSError as error:
        if "unsupported" not in str(error).lower():
            raise
