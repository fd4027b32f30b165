"""The role of an object store: what a driver implements, in under a hundred lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from attrs import frozen

from millpond.errors import ConfigError, TransientError


class Body(ABC):
    """
    What an object will hold; it can be read again from its start, as a retried request must.

    Attributes:
        size: In bytes.
    """

    size: int

    @abstractmethod
    def open(self) -> BinaryIO:
        """Give a new stream over the whole of it; the caller closes it. Any thread."""


@frozen
class BytesBody(Body):
    """A body in memory."""

    data: bytes

    @property
    def size(self) -> int:  # type: ignore[override]
        """In bytes."""
        return len(self.data)

    def open(self) -> BinaryIO:
        """Give a new stream over it."""
        return BytesIO(self.data)


@frozen
class FileBody(Body):
    """A body in a file that does not change."""

    path: Path
    size: int

    def open(self) -> BinaryIO:
        """Give a new stream over it."""
        return self.path.open("rb")


@frozen
class BlobEntry:
    """
    One object in a listing.

    Attributes:
        key: Its whole key.
        size: In bytes.
        millis: When it was made, by the store's clock, in milliseconds since 1970.
    """

    key: str
    size: int
    millis: int


@frozen
class Unfinished:
    """
    A multipart upload that nobody has finished.

    Attributes:
        key: The key that it was meant for.
        token: What the driver needs to abort it.
        millis: When it was begun, by the store's clock.
    """

    key: str
    token: str
    millis: int


@frozen(kw_only=True)
class BlobCapabilities:
    """
    What a store really promises. Declared by the driver, and tried by ``validate_resources``.

    Attributes:
        conditional_put: ``put(if_absent=True)`` has exactly one winner. Without it there is no checkpoint manager.
        fresh_listing: A listing shows every object whose ``put`` has returned, and none whose ``delete`` has.
        max_object_bytes: The largest object; None: no limit.
        reason: Why a capability is missing, and what to use instead; for the error.
    """

    conditional_put: bool = True
    fresh_listing: bool = True
    max_object_bytes: int | None = None
    reason: str = ""


class AccessDeniedError(ConfigError):
    """The store refused; the message names the permission, the key and the store."""


class BrokenBodyError(TransientError):
    """A body broke off while it was read: whoever read it may ask for the rest."""


class BlobStore(ABC):
    """
    An object store, or a file system that behaves as one, below one root that the driver was given.

    Keys are relative to that root: non-empty parts of letters, digits and ``! - _ . + % @ ( )`` with ``/`` between
    them, no part is ``.`` or ``..``, and no key is a folder of another. Any thread may call; every call ends in bounded
    time. Errors: StateNotFoundError for an object that is not there, TransientError for what may go away,
    AccessDeniedError with the permission that is missing, ConfigError for what the operator has to correct. Retries of
    the driver's SDK are the only ones: nobody above repeats a request, but for a body that broke while it was read.
    """

    capabilities: BlobCapabilities

    @abstractmethod
    def put(self, key: str, body: Body, *, if_absent: bool = False) -> bool:
        """
        Make the object *key*, whole or not at all; durable when it returns True.

        With *if_absent*, False says that it exists already, be it by our own request whose answer was lost. A large
        body goes in parts, in parallel, and a lost part is sent again alone; a failed upload leaves nothing but, at
        worst, something that ``unfinished`` lists.
        """

    @abstractmethod
    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """
        Give *length* bytes from *start* on, fewer only at the object's end; None: all.

        Raises:
            StateNotFoundError: There is no such object.
            BrokenBodyError: The body broke off.
            TransientError: Any other fault that may go away.
        """

    @abstractmethod
    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobEntry]:
        """Give the objects whose key begins with *prefix* and is greater than *after*, sorted by key; never cached."""

    @abstractmethod
    def delete(self, keys: Collection[str]) -> None:
        """Remove objects, many with one request where the store can; missing ones are fine."""

    @abstractmethod
    def now(self) -> int:
        """Give the store's clock in milliseconds since 1970."""

    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        """Give the uploads below *prefix* that were begun and not finished."""
        return ()

    def abort(self, upload: Unfinished) -> None:
        """Drop an unfinished upload; a missing one is fine."""
        return None

    def where(self, key: str = "") -> str:
        """Give a text for messages: the store and *key* as an operator knows them; never a secret."""
        return key

    def close(self) -> None:
        """Let go of connections; idempotent."""
        return None
