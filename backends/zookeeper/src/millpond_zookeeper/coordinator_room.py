"""One job's coordinator in the tree: who leads, and the record, which only a leader replaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from attrs import define, field
from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.protocol.states import KazooState

from millpond.coordinator.metadata import Leadership, StoredRecord
from millpond.errors import (
    ConfigError,
    FencedError,
    FormatError,
    MillpondError,
    StateCorruptError,
    StateNotFoundError,
    StoreClosedError,
    TransientError,
)
from millpond.local import job_folder
from millpond.records import RecordFolder
from millpond_zookeeper.connection import Connection
from millpond_zookeeper.coordinator_nodes import CoordinatorPaths, Wrapped, node_version, unwrap, version_text, wrap
from millpond_zookeeper.election import Election
from millpond_zookeeper.failures import LostAnswerError
from millpond_zookeeper.leadership import SessionLeadership
from millpond_zookeeper.rooms import JobRoom, shelves
from millpond_zookeeper.settings import ZooKeeperSettings
from millpond_zookeeper.shelf import Outside, Parts, Shelves

_ATTEMPTS = 64
_LONGEST_END_S = 5.0


@define(eq=False)
class CoordinatorRoom:
    """
    The part of the tree that is one coordinator's. Any thread may use it.

    Attributes:
        connection: The session.
        paths: The nodes.
        election: Who leads.
    """

    connection: Connection
    paths: CoordinatorPaths
    _job: JobRoom
    _shelves: Shelves
    election: Election = field(init=False)
    _leaderships: list[SessionLeadership] = field(factory=list, init=False)
    _seen: tuple[str, bytes] | None = field(default=None, init=False)  # a version, and what the node held then
    _closed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        """Listen to the session."""
        self.election = Election(self.connection, self.paths, self._refuse_closed)
        self.connection.on_state = self._hear

    @classmethod
    def of(cls, settings: ZooKeeperSettings, job: str, job_id: str, elsewhere: RecordFolder | None) -> CoordinatorRoom:
        """Give a job's; nothing is sent yet."""
        connection, paths = Connection(settings), CoordinatorPaths.of(settings.root, job, job_id)
        where = shelves(connection, paths.parts, f"{job_folder(job, job_id)}/coordinator")
        if elsewhere is not None:
            where = Shelves(Outside(elsewhere), (Parts(connection, paths.parts),), settings.max_node)
        return cls(connection, paths, JobRoom(connection, job, job_id), where)

    def probe(self) -> None:
        """Try what the place relies on."""
        self._job.probe()

    # Leading

    def lead(self, candidate: str, until: float) -> SessionLeadership:
        """Wait until *candidate* leads, to the moment *until* at most."""
        leadership = self.election.stand(candidate, until)
        self._leaderships = [each for each in self._leaderships if each.is_running()] + [leadership]
        if self._closed:
            leadership.resign()
            self._refuse_closed()
        self._sweep(leadership.epoch)
        return leadership

    def _sweep(self, epoch: int) -> None:
        """Remove large records that earlier leaders left; the next one tries again what fails."""
        with suppress(MillpondError, NoNodeError):
            self._shelves.sweep(epoch, lambda: [self.connection.get(self.paths.record, f"read {self.paths.record}")[0]])

    def _hear(self, state: str) -> None:
        if state == KazooState.LOST:
            for leadership in self._leaderships:
                leadership.lose("its session has ended")
        self.election.stir()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreClosedError("this metadata was closed: make a new one")

    def close(self) -> None:
        """End the session, and all that waits; idempotent."""
        self._closed = True
        self.election.stir()
        for leadership in self._leaderships:
            leadership.lose("its connection was closed")
        self.connection.close()
        for leadership in self._leaderships:
            leadership.join(_LONGEST_END_S)

    # The record

    def read(self) -> StoredRecord | None:
        """Give the record as it is now; None only when it is proven that there is none."""
        found = self._read()
        return None if found is None else StoredRecord(found[0].data, found[1])

    def _read(self, until: float | None = None) -> tuple[Wrapped, str] | None:
        """Give the record in its wrapping and its version."""
        last = None
        for _ in range(_ATTEMPTS):
            try:
                kept, state = self.connection.get(self.paths.record, f"read {self.paths.record}", until)
            except NoNodeError:
                self._prove_absent()
                return None
            if not kept and state.version == 0:
                return None
            with _naming(self.paths.record):
                try:
                    found = unwrap(self._shelves.get(kept)), version_text(state.version, state.mzxid)
                except StateNotFoundError as error:  # It was replaced while it was read, or its bytes are lost.
                    if last == state.version:
                        raise StateCorruptError(str(error)) from error
                    last = state.version
                    continue
            self._seen = found[1], kept
            return found
        raise TransientError(f"the record {self.paths.record} changes faster than it can be read")

    def _prove_absent(self) -> None:
        """Raise unless there never was a record here."""
        newest = self.election.newest()
        if newest is not None:
            raise StateCorruptError(
                f"the node {self.paths.record} is gone, though {newest.candidate!r} (epoch {newest.epoch}) led here: "
                f"restore it, or remove {self.paths.base} if it may be forgotten"
            )

    def write(self, leadership: Leadership, data: bytes, expected: str | None) -> str:
        """Replace the record of version *expected*; see ``CoordinatorMetadata.write``."""
        if not isinstance(leadership, SessionLeadership):
            raise ConfigError(f"a leadership of another place ({type(leadership).__name__}) cannot write here")
        version = node_version(expected)
        if version is None:
            raise ConfigError(f"the version {expected!r} is none of this place")
        leadership.check()
        wrapped = Wrapped(leadership.epoch, leadership.token, expected, data)
        kept = self._shelves.put(wrap(wrapped), leadership.epoch)
        seen, found = self._seen, self._replace(leadership, wrapped, kept, version)
        self._seen = (found, kept)
        if seen is not None and seen[0] == expected:
            self._drop(seen[1])
        return found

    def _drop(self, kept: bytes) -> None:
        """Remove what a replaced record led to; an election removes what is left."""
        with suppress(MillpondError):
            self._shelves.drop(kept)

    def _replace(self, leadership: SessionLeadership, wrapped: Wrapped, kept: bytes, version: int) -> str:
        """Put *kept* in place of the record of *version*, again until it is known to be there or not."""
        until, unknown = self.connection.deadline(), False

        def build(request: TransactionRequest) -> None:
            leadership.condition(request)
            request.set_data(self.paths.record, kept, version)

        while True:
            try:
                if not unknown:
                    leadership.check()
                state = self.connection.multi(build, "write the coordinator's record", until)[-1]
            except LostAnswerError:
                unknown = True
            except (BadVersionError, NoNodeError) as refusal:
                return self._refused(leadership, wrapped, unknown, refusal, until)
            else:
                return version_text(state.version, state.mzxid)

    def _find(self, wrapped: Wrapped, until: float) -> str | None:
        """Give the version of *wrapped* if it is what is there: then an answer was lost, and not the write."""
        found = self._read(until)
        return found[1] if found is not None and found[0] == wrapped else None

    def _refused(
        self, leadership: SessionLeadership, wrapped: Wrapped, unknown: bool, refusal: Exception, until: float
    ) -> str:
        """Give the version if the write was done by a request whose answer was lost; else raise what refused it."""
        if (found := self._find(wrapped, until)) is not None:
            return found
        newest = self.election.newest()
        if newest is not None and newest.token == leadership.token and isinstance(refusal, BadVersionError):
            raise TransientError(
                f"the record {self.paths.record} is not of version {wrapped.after or 'none'} any more: read it"
            ) from refusal
        leadership.lose("another one was elected" if newest is None or newest.token != leadership.token else "its "
                        "session has expired")  # fmt: skip
        if unknown:
            raise TransientError(
                f"{leadership.candidate!r} leads no more, and nobody knows whether its last record was written before "
                "that"
            ) from refusal
        raise FencedError(
            f"{leadership.candidate!r} (epoch {leadership.epoch}) leads no more: epoch "
            f"{newest.epoch if newest is not None else 'unknown'} is the newest; nothing was written"
        ) from refusal


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Put the node's path in front of what an error of the block says."""
    try:
        yield
    except (FormatError, StateCorruptError) as error:
        raise type(error)(f"the node {where} cannot be read: {error}") from error
