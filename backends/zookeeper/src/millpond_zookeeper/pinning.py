"""A task's pins, as the folder that a pin board writes on: copies of records, made only while their record is there."""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen
from kazoo.exceptions import NodeExistsError, NoNodeError

from millpond.records import NamedFolder
from millpond_zookeeper.connection import Connection
from millpond_zookeeper.failures import LostAnswerError
from millpond_zookeeper.shelf import Shelves


@frozen
class PinFolder(NamedFolder):
    """
    The nodes below a task's ``pins``.

    Attributes:
        connection: The session.
        shelves: Where large records lie; a pin of one is a copy of its handle.
        path: The node above the pins.
        only_while: A node that has to be there when a pin is made; None: no condition.
    """

    connection: Connection
    shelves: Shelves
    path: str
    only_while: str | None = None

    def names(self) -> list[str]:
        """Give all names."""
        try:
            return self.connection.children(self.path, f"list {self.path}")
        except NoNodeError:
            return []

    def create(self, name: str, data: bytes) -> bool:
        """
        Put *data* (a record, or its handle) under *name* unless something is there.

        Raises:
            NoNodeError: The node ``only_while`` is not there any more.
        """
        path, only_while = f"{self.path}/{name}", self.only_while

        def build(request: object) -> None:
            if only_while is not None:
                request.check(only_while, -1)  # type: ignore[attr-defined]
            request.create(path, data)  # type: ignore[attr-defined]

        until = self.connection.deadline()
        while True:
            try:
                self.connection.multi(build, f"make {path}", until)
            except NodeExistsError:
                return False  # Also where the answer was lost: whoever looks finds the same pin.
            except LostAnswerError:
                continue  # Until no connection is there in time.
            return True

    def read(self, name: str) -> bytes | None:
        """Give the record under *name*; None if nothing is."""
        kept = self.kept(name)
        return None if kept is None else self.shelves.get(kept)

    def kept(self, name: str) -> bytes | None:
        """Give what the node itself holds."""
        path = f"{self.path}/{name}"
        try:
            return self.connection.get(path, f"read {path}")[0]
        except NoNodeError:
            return None

    def delete(self, names: Collection[str]) -> None:
        """Remove *names*."""
        for name in names:
            path = f"{self.path}/{name}"
            try:
                self.connection.read(lambda client, path=path: client.delete_async(path), f"remove {path}")  # type: ignore[misc]
            except NoNodeError:
                continue

    def where(self, name: str) -> str:
        """Give the node's path."""
        return f"{self.path}/{name}"
