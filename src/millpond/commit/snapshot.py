"""A commit's dirty stores, as one backend reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from attrs import define

from millpond.checkpoint import CheckpointId
from millpond.commit.attempt import Attempt
from millpond.commit.stores import CommittedStore
from millpond.errors import ConfigError
from millpond.spi import Change, Facet, FileEntry, Snapshot
from millpond.stores.images import entries, opened


@define(eq=False, slots=False)
class CommitSnapshot(Snapshot):
    """
    The snapshot of one attempt for one backend.

    Attributes:
        attempt: The attempt, with its images sealed.
        backend: The backend's marker key.
        facets: What the backend declares: nothing else is prepared.
        committed: The stores of the task.
        published: Gives the last published id if it has this backend's marker of a store.
        scratch: Where images are opened.
        algorithm: Of digests.
        wanted: Raises once the commit is given up.
    """

    attempt: Attempt
    backend: str
    facets: Facet
    stores: Sequence[str]
    committed: Mapping[str, CommittedStore]
    scratch: Path
    algorithm: str
    wanted: Callable[[], None]

    @property
    def id(self) -> CheckpointId:  # type: ignore[override]
        """The id of the checkpoint that this will be."""
        return self.attempt.id

    def base(self, store: str) -> tuple[CheckpointId, str] | None:
        """Give the last published id with this backend's marker, and that marker."""
        committed = self._store(store)
        held = None if committed.hosted else committed.backed.get(self.backend)
        return None if held is None else (held.id, held.marker)

    def changes(self, store: str) -> Iterator[Change]:
        """Give the changes since the base; without one, every live key."""
        self._declared(Facet.CHANGES)
        committed = self._store(store)
        held = committed.backed.get(self.backend)
        if held is None:
            return self._items(store)
        return committed.buffered.changes(held.mark, self.attempt.marks[store])

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Give the values of *keys* in this snapshot."""
        self._declared(Facet.ITEMS)
        committed = self._store(store)
        image = self.attempt.images[store]
        with opened(image.path, committed.engine, committed.spec, self.scratch) as database:
            return database.get_many(keys)

    def directory(self, store: str) -> Sequence[FileEntry]:
        """Give the files of the store's image, its MANIFEST among them."""
        self._declared(Facet.DIRECTORY)
        self._store(store)
        return entries(self.attempt.images[store], self.algorithm)

    def items(self, store: str) -> Iterator[tuple[bytes, bytes]]:
        """Give every live key and its value, sorted."""
        self._declared(Facet.ITEMS)
        return self._items(store)

    def check(self) -> None:
        """Raise once this commit is given up."""
        self.wanted()

    def _items(self, store: str) -> Iterator[tuple[bytes, bytes]]:
        committed = self._store(store)
        image = self.attempt.images[store]
        database_of = opened(image.path, committed.engine, committed.spec, self.scratch)
        with database_of as database, closing(database.scan(None, None, False)) as found:  # type: ignore[type-var]
            yield from found

    def _store(self, store: str) -> CommittedStore:
        if store not in self.stores:
            raise ConfigError(f"backend {self.backend} asked for store {store!r}, which is not dirty or not its own")
        return self.committed[store]

    def _declared(self, facet: Facet) -> None:
        if facet not in self.facets:
            raise ConfigError(
                f"backend {self.backend} reads {facet.name} of a snapshot, which its capabilities do not declare"
            )
