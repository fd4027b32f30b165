"""
What is larger than a node: in parts, in nodes of their own, or in a folder outside; the node then holds a handle.

A handle is sealed as records are and names size and digest, so what it leads to is whole, or an error. What is put on
the shelf never changes, has a name that nobody else uses, and is complete before anything refers to it.
"""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

import msgspec
from attrs import frozen
from kazoo.exceptions import NodeExistsError, NoNodeError, NotEmptyError

from millpond.errors import FormatError, StateCorruptError, StateNotFoundError, TransientError
from millpond.formats.digest import digest_bytes
from millpond.formats.envelope import MAX_SIZE, seal, unseal
from millpond.records import RecordFolder
from millpond_zookeeper.connection import Connection

_MAGIC = "millpond-handle"
_VERSION = 1
_NAME = re.compile(r"([0-9]{1,19})-[0-9a-f]{32}")
_ATTEMPTS = 8


class _Handle(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    size: int
    digest: str


_DECODER = msgspec.json.Decoder(_Handle)


class Shelf(ABC):
    """Keeps large things under names. Any thread may use it."""

    kind: str
    """The word for it in a handle."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Put *data* there, durably; nothing else has that name."""

    @abstractmethod
    def read(self, name: str, size: int) -> bytes | None:
        """Give what is there, at most a little more than *size* bytes of it; None if nothing is."""

    @abstractmethod
    def names(self) -> Collection[str]:
        """Give the names of all things."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a thing; a missing one is fine."""


@frozen
class Parts(Shelf):
    """
    Pieces below a node, each smaller than a node may be.

    Attributes:
        connection: The session.
        path: The node above all things.
    """

    connection: Connection
    path: str
    kind = "parts"

    def put(self, name: str, data: bytes) -> None:
        """Make a node for each piece, one request each."""
        until = self.connection.deadline()
        base = f"{self.path}/{name}"
        self.connection.ensure(base, f"make {base}", until)
        size = self.connection.settings.max_node
        for number, start in enumerate(range(0, len(data), size)):
            self._put_piece(f"{base}/{number}", data[start : start + size], until)

    def _put_piece(self, path: str, piece: bytes, until: float) -> None:
        try:
            self.connection.read(lambda client: client.create_async(path, piece), f"write {path}", until)
        except NodeExistsError:
            return  # The name is ours alone, so this is the answer that was lost.

    def read(self, name: str, size: int) -> bytes | None:
        """Join the pieces."""
        until = self.connection.deadline()
        base, pieces, found = f"{self.path}/{name}", [], 0
        try:
            count = len(self.connection.children(base, f"list {base}", until))
            for number in range(count):
                piece, _ = self.connection.get(f"{base}/{number}", f"read {base}", until)
                pieces.append(piece)
                found += len(piece)
                if found > size:
                    break
        except NoNodeError:
            return None
        return b"".join(pieces)

    def names(self) -> Collection[str]:
        """List the nodes."""
        try:
            return self.connection.children(self.path, f"list {self.path}")
        except NoNodeError:
            return ()

    def delete(self, name: str) -> None:
        """Remove the node and its pieces."""
        base, until = f"{self.path}/{name}", self.connection.deadline()
        for _ in range(_ATTEMPTS):
            try:
                for piece in self.connection.children(base, f"list {base}", until):
                    self._remove(f"{base}/{piece}", until)
                return self._remove(base, until)
            except NoNodeError:
                return None
            except NotEmptyError:
                continue
        raise TransientError(f"the parts below {base} change faster than they can be removed")

    def _remove(self, path: str, until: float) -> None:
        try:
            self.connection.read(lambda client: client.delete_async(path), f"remove {path}", until)
        except NoNodeError:
            return


@frozen
class Outside(Shelf):
    """
    A folder that is no ZooKeeper's: shared files, or objects below a prefix.

    Attributes:
        folder: Where.
    """

    folder: RecordFolder
    kind = "outside"

    def put(self, name: str, data: bytes) -> None:
        """Create it there."""
        self.folder.create(name, data)

    def read(self, name: str, size: int) -> bytes | None:
        """Read it there."""
        return self.folder.read(name)

    def names(self) -> Collection[str]:
        """List the folder."""
        return self.folder.names()

    def delete(self, name: str) -> None:
        """Remove it there."""
        self.folder.delete([name])


@frozen
class Shelves:
    """
    Puts what is too large for a node on a shelf, and finds it again.

    Attributes:
        here: What new things are put on.
        others: What older handles may lead to as well, since a setting was changed.
        largest: The most bytes that a node gets.
    """

    here: Shelf
    others: tuple[Shelf, ...]
    largest: int

    def put(self, data: bytes, epoch: int) -> bytes:
        """Give what to keep in a node: *data* itself, or a handle to where it lies now."""
        if len(data) <= self.largest and not is_handle(data):
            return data
        name = f"{epoch}-{secrets.token_hex(16)}"
        self.here.put(name, data)
        handle = msgspec.json.encode(_Handle(name, len(data), digest_bytes(data)))
        return seal(_MAGIC, _VERSION, self.here.kind, handle)

    def get(self, kept: bytes) -> bytes:
        """
        Give what a node's data stand for.

        Raises:
            StateNotFoundError: A handle leads to nothing.
            StateCorruptError, FormatError: It leads to something else, or is no handle that this release reads.
        """
        if not is_handle(kept):
            return kept
        shelf, handle = self._parse(kept)
        data = shelf.read(handle.name, handle.size)
        if data is None:
            raise StateNotFoundError(f"it leads to {handle.name} ({shelf.kind}), which is gone")
        if len(data) != handle.size or digest_bytes(data) != handle.digest:
            raise StateCorruptError(f"it leads to {handle.name} ({shelf.kind}), which is not what was put there")
        return data

    def drop(self, kept: bytes) -> None:
        """Remove what a node's data lead to; nothing where they are no handle."""
        if is_handle(kept):
            shelf, handle = self._parse(kept)
            shelf.delete(handle.name)

    def sweep(self, before_epoch: int, all_kept: Callable[[], Collection[bytes]]) -> None:
        """Remove what earlier epochs put there, unless *all_kept*, asked if there is anything, leads to it."""
        old = [
            (shelf, name) for shelf in (self.here, *self.others) for name in shelf.names() if _is_of(name, before_epoch)
        ]
        used = {self._parse(data)[1].name for data in (all_kept() if old else ()) if is_handle(data)}
        for shelf, name in old:
            if name not in used:
                shelf.delete(name)

    def _parse(self, kept: bytes) -> tuple[Shelf, _Handle]:
        sealed = unseal(_MAGIC, _VERSION, kept)
        try:
            handle = _DECODER.decode(sealed.body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise FormatError(f"a handle that is not of version {_VERSION}: {error}") from error
        if _NAME.fullmatch(handle.name) is None or not 0 <= handle.size <= MAX_SIZE + 4096:
            raise FormatError(f"a handle to {handle.name!r} of {handle.size} bytes, which nobody makes")
        shelf = next((shelf for shelf in (self.here, *self.others) if shelf.kind == sealed.kind), None)
        if shelf is None:
            raise StateNotFoundError(f"it leads outside, to {handle.name}: set large to the folder that has it")
        return shelf, handle


def is_handle(data: bytes) -> bool:
    """Whether a node's data are a handle."""
    return data.startswith(f"{_MAGIC} ".encode("ascii"))


def _is_of(name: str, before_epoch: int) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and int(match[1]) < before_epoch
