"""
State by location: what is too large for the coordinator's record lies in an object store, and the record points to it.

::

    <prefix><member>/<attempt>-<random>      one member's state of one attempt; never changed
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection

from attrs import define, frozen

from millpond.blob.store import BlobStore, BytesBody
from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.state import InlineState, LocatedState, NoState, State
from millpond.errors import ConfigError, StateCorruptError, StateNotFoundError
from millpond.formats.digest import algorithm_of, digest_bytes
from millpond.local import escape_name, unescape_name

INLINE_LIMIT = 4096
"""A state up to so many bytes goes into the record itself."""
MAX_STATE = 1 << 30


class StateShelf(ABC):
    """Keeps states that are too large for the record. Any thread."""

    @abstractmethod
    def put(self, member: str, attempt: JobCheckpointId, data: bytes) -> LocatedState:
        """Keep *data*, durably, and say where."""

    @abstractmethod
    def get(self, state: LocatedState) -> bytes:
        """Give it back, verified; StateNotFoundError or StateCorruptError."""

    @abstractmethod
    def clean(self, member: str, retained: Collection[JobCheckpointId], before: JobCheckpointId) -> None:
        """Remove the member's states of attempts older than *before* that are not *retained*."""


@define
class BlobShelf(StateShelf):
    """
    A shelf in an object store; the caller closes that.

    Attributes:
        store: The store.
        prefix: What all keys begin with, up to a ``/``; one job's.
    """

    store: BlobStore
    prefix: str = "shelf/"

    def __attrs_post_init__(self) -> None:
        """Check the prefix."""
        if not self.prefix.endswith("/") or ".." in self.prefix.split("/"):
            raise ConfigError(f"a shelf's prefix is a folder and ends with '/': {self.prefix!r}")

    def put(self, member: str, attempt: JobCheckpointId, data: bytes) -> LocatedState:
        """Put it as an object of its own."""
        if len(data) > MAX_STATE:
            raise ConfigError(f"a state of {len(data):,} bytes is over the limit of {MAX_STATE:,}: keep it in a task")
        location = f"{escape_name(member)}/{attempt}-{secrets.token_hex(8)}"
        self.store.put(self.prefix + location, BytesBody(data))
        return LocatedState(location, len(data), digest_bytes(data))

    def get(self, state: LocatedState) -> bytes:
        """Get the object; nothing outside the shelf is ever read."""
        member, slash, name = state.location.partition("/")
        if not slash or "/" in name or _attempt_of(name) is None or not _is_escaped(member):
            raise StateCorruptError(f"not a place on this shelf: {state.location!r}")
        if state.size > MAX_STATE:
            raise StateCorruptError(
                f"{state.location} says it has {state.size:,} bytes, over the limit of {MAX_STATE:,}"
            )
        data = self.store.get(self.prefix + state.location, 0, state.size + 1)
        if len(data) != state.size or digest_bytes(data, algorithm_of(state.digest)) != state.digest:
            raise StateCorruptError(f"{self.store.where(self.prefix + state.location)} is not what was saved")
        return data

    def clean(self, member: str, retained: Collection[JobCheckpointId], before: JobCheckpointId) -> None:
        """List and delete."""
        folder = f"{self.prefix}{escape_name(member)}/"
        doomed = []
        for entry in self.store.list(folder):
            attempt = _attempt_of(entry.key.removeprefix(folder))
            if attempt is not None and attempt < before and attempt not in retained:
                doomed.append(entry.key)
        if doomed:
            self.store.delete(doomed)


def _attempt_of(name: str) -> JobCheckpointId | None:
    try:
        return JobCheckpointId.parse(name.rpartition("-")[0])
    except ValueError:
        return None


def _is_escaped(member: str) -> bool:
    try:
        return escape_name(unescape_name(member)) == member
    except (ValueError, ConfigError):
        return False


@frozen
class Placement:
    """
    Where a member's bytes go: into the record up to *limit*, else onto the *shelf*.

    Attributes:
        member: The member.
        shelf: For what is larger; None: nothing may be.
        limit: In bytes.
    """

    member: str
    shelf: StateShelf | None = None
    limit: int = INLINE_LIMIT

    def put(self, attempt: JobCheckpointId, data: bytes) -> State:
        """Keep *data*; ConfigError if it is too large for the record and there is no shelf."""
        if len(data) <= self.limit:
            return InlineState(data)
        if self.shelf is None:
            raise ConfigError(
                f"member {self.member!r} saves {len(data):,} bytes, and {self.limit:,} fit into the coordinator's "
                f"record: give it a shelf for state by location"
            )
        return self.shelf.put(self.member, attempt, data)

    def get(self, state: State) -> bytes:
        """Give what was put."""
        match state:
            case InlineState(data):
                return data
            case LocatedState() if self.shelf is not None:
                return self.shelf.get(state)
            case LocatedState():
                raise StateNotFoundError(f"member {self.member!r} has state by location, and no shelf is given")
            case NoState():
                raise StateNotFoundError(f"member {self.member!r} has saved no state")
            case _:
                raise StateNotFoundError(f"member {self.member!r} has saved the checkpoint of a task, not bytes")

    def clean(self, retained: Collection[JobCheckpointId], before: JobCheckpointId) -> None:
        """Remove what no retained job checkpoint needs."""
        if self.shelf is not None:
            self.shelf.clean(self.member, retained, before)
