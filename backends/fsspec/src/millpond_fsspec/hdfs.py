"""``webhdfs:``: HDFS over its REST interface, since fsspec's own writes are neither exclusive nor whole."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import quote

from millpond.blob import BlobEntry, Body, Unfinished
from millpond.errors import TransientError
from millpond.lanes import TransferPool
from millpond_fsspec.reading import COPY_SIZE, whole
from millpond_fsspec.store import FsspecStore
from millpond_fsspec.walking import UNFINISHED, Child, unfinished, walk

_DELETERS = 8
_CLOSE_S = 5.0
_OVERWRITE, _KEEP = "OVERWRITE", "NONE"
_STATUS = {
    "FileNotFoundException": 404,
    "AccessControlException": 403,
    "SecurityException": 403,
    "AuthenticationException": 401,
    "InvalidToken": 401,
    "IllegalArgumentException": 400,
    "UnsupportedOperationException": 400,
    "InvalidPathException": 400,
    "ParentNotDirectoryException": 400,
    "FSLimitException.PathComponentTooLongException": 400,
}


class HdfsError(Exception):
    """
    HDFS refused.

    Attributes:
        exception: The Java class's name.
        status_code: What HTTP would say; HDFS says 403 for much that will pass, such as safe mode or a standby node.
    """

    def __init__(self, exception: str, message: str) -> None:
        super().__init__(f"{exception}: {message}")
        self.exception = exception
        # A key below a file is refused as if by a permission, and is only not there.
        self.status_code = 404 if "is not a directory" in message else _STATUS.get(exception, 503)


class HdfsStore(FsspecStore):
    """
    Files in HDFS. Sessions, authentication and proxies are fsspec's; each operation is one of WebHDFS.

    A new object is a whole temporary file that is renamed: atomic in the namenode, and refused there if the name is
    taken and must not be.
    """

    permissions: ClassVar[Mapping[str, str]] = MappingProxyType({
        "write": "write and execute on that folder",
        "read": "read on that file",
        "list": "read and execute on that folder",
        "remove": "write and execute on that folder",
    })  # fmt: skip

    # Each operation escapes the path by itself, and a namenode takes all names but those with a colon.
    not_in_keys: ClassVar[frozenset[str]] = frozenset("~\0:")

    def _connect(self) -> Any:
        from requests.adapters import HTTPAdapter

        fs, timeout_s = self.place.make(), self.place.timeout_s

        class Bounded(HTTPAdapter):
            """Waits so long for a connection, and for each piece of an answer."""

            def send(self, *args: Any, **kwargs: Any) -> Any:
                return super().send(*args, **{**kwargs, "timeout": timeout_s})

        for scheme in ("http://", "https://"):
            fs.session.mount(scheme, Bounded(pool_maxsize=64))
        return fs

    def _disconnect(self, fs: Any) -> None:
        fs.session.close()

    def _put(self, fs: Any, key: str, body: Body, *, if_absent: bool) -> bool:
        token = f"{key}{UNFINISHED}{secrets.token_hex(12)}"
        try:
            self._create(fs, token, body)
            stored = _json(self._call(fs, "get", "GETFILESTATUS", token))["FileStatus"]["length"]
            self._check_size(key, stored, body.size)
            if self._rename(fs, token, key, _KEEP if if_absent else _OVERWRITE):
                return True
        except BaseException:
            with suppress(Exception):  # what cannot be removed now is found by `unfinished`
                self._remove(fs, token)
            raise
        self._remove(fs, token)
        return False

    def _create(self, fs: Any, token: str, body: Body) -> None:
        """Write a new file, and the folders above it: the namenode says to which datanode."""
        with whole(body) as stream:
            # A small body is read before HDFS is asked for anything, so that one that breaks leaves nothing there.
            data = stream if body.size > COPY_SIZE else stream.read()
            place = self._call(fs, "put", "CREATE", token, overwrite="false").headers["Location"]
            place = fs._apply_proxy(place)  # noqa: SLF001 - it has no public name
            answer = fs.session.put(place, data=data, headers={"content-type": "application/octet-stream"})
        _raise_for(answer)

    def _rename(self, fs: Any, token: str, key: str, option: str) -> bool:
        """Give the file at *token* its name; False if that is taken and *option* keeps it."""
        try:
            self._call(fs, "put", "RENAME", token, destination=self.place.path(key), renameoptions=option)
        except HdfsError as error:
            if option == _KEEP and error.exception == "FileAlreadyExistsException":
                return False
            raise
        return True

    def _get(self, fs: Any, key: str, start: int, length: int | None) -> bytes:
        if length == 0:
            self._size(fs, key)
            return b""
        try:
            return self._open(fs, key, start, length)
        except HdfsError as error:
            # An offset beyond the end is refused, and so is that of an empty file.
            if error.status_code == 404 or start < self._size(fs, key):
                raise
            return b""

    def _open(self, fs: Any, key: str, start: int, length: int | None) -> bytes:
        wanted = {} if length is None else {"length": length}
        answer = self._call(fs, "get", "OPEN", key, offset=start, **wanted)
        if "Location" in answer.headers:
            answer = fs.session.get(fs._apply_proxy(answer.headers["Location"]))  # noqa: SLF001 - it has no public name
            _raise_for(answer)
        return bytes(answer.content)

    def _size(self, fs: Any, key: str) -> int:
        return int(_json(self._call(fs, "get", "GETFILESTATUS", key))["FileStatus"]["length"])

    def _list(self, prefix: str, after: str) -> Iterator[BlobEntry]:
        return walk(self._children, prefix, after)

    def _children(self, folder: str) -> Iterable[Child]:
        try:
            with self._instances.use() as fs:
                found = _json(self._call(fs, "get", "LISTSTATUS", folder.rstrip("/")))
        except HdfsError as error:
            if error.status_code == 404:
                return []
            raise
        return [
            Child(each["pathSuffix"], each["type"] == "DIRECTORY", each["length"], each["modificationTime"])
            for each in found["FileStatuses"]["FileStatus"]
            if each["pathSuffix"]
        ]

    def _delete(self, fs: Any, keys: Collection[str]) -> None:
        if len(keys) == 1:
            self._remove(fs, *keys)
            return
        pool = TransferPool(min(_DELETERS, len(keys)), 1)  # of daemons: a server that hangs holds up nobody's exit
        try:
            pool.map(lambda key: self._remove(fs, key), sorted(keys))
        finally:
            pool.close(_CLOSE_S)

    def _remove(self, fs: Any, key: str) -> None:
        try:
            self._call(fs, "delete", "DELETE", key, recursive="false")
        except HdfsError as error:
            if error.status_code != 404:
                raise

    def _now(self, fs: Any) -> int:
        """Give the namenode's time, which is also what it stamps on files; to the second."""
        answer = self._call(fs, "get", "GETHOMEDIRECTORY", None)
        return int(parsedate_to_datetime(answer.headers["Date"]).timestamp() * 1000)

    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        """Give what killed writers left."""
        with self._told("list", prefix):
            return [Unfinished(key, entry.key, entry.millis) for entry, key in unfinished(self._children, prefix)]

    def abort(self, upload: Unfinished) -> None:
        """Remove it."""
        with self._told("remove", upload.token), self._instances.use() as fs:
            self._remove(fs, upload.token)

    def _call(self, fs: Any, method: str, op: str, key: str | None, **parameters: object) -> Any:
        """Do one WebHDFS operation, without following its redirection."""
        path = "/" if key is None else self.place.path(key)
        url = fs._apply_proxy(fs.url + quote(path, safe="/"))  # noqa: SLF001
        answer = fs.session.request(
            method.upper(), url, params={"op": op, **parameters, **fs.pars}, allow_redirects=False
        )
        _raise_for(answer)
        return answer


def _raise_for(answer: Any) -> None:
    """Raise what HDFS says in its answer."""
    if answer.status_code < 400:
        return
    try:
        said = answer.json()["RemoteException"]
        exception, message = str(said["exception"]), str(said["message"])
    except (ValueError, KeyError, TypeError):
        answer.raise_for_status()
        return
    raise HdfsError(exception, message.partition("\n")[0])


def _json(answer: Any) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise TransientError("WebHDFS answered with something that is no JSON: is there a proxy in between?") from None
