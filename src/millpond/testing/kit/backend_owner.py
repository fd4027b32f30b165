"""One claim of one task, and what the core does with a state backend under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from attrs import define, field, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Markers
from millpond.spi import Capabilities, StateBackendFactory, StoreSpec, TaskBackupManager, TaskContext
from millpond.testing.kit.bench import on_worker
from millpond.testing.kit.contract import expect, expect_equal
from millpond.testing.kit.snapshots import Content, KitSnapshot, StoreState

State = Mapping[str, Content]
"""Store to all of its entries."""
Writes = Mapping[str, Mapping[bytes, bytes | None]]
"""Store to what is put (a value) and deleted (None) in it."""

TASK = "Partition 0"
STORE = "delays"


@frozen
class Place:
    """
    Whose state it is.

    Attributes:
        job: The job's name.
        task: The task's.
        backend: The key of the backend's markers.
        job_id: The job's id.
    """

    job: str
    task: str = TASK
    backend: str = "main"
    job_id: str = "1"


@frozen
class Upload:
    """
    A commit whose upload is done and which is not published.

    Attributes:
        id: Its id.
        markers: What the upload gave.
        state: All stores as they were.
        read: How many records the upload read.
    """

    id: CheckpointId
    markers: Markers
    state: State
    read: int


class World(Protocol):
    """
    What an owner needs of the case's world.

    Attributes:
        folder: The case's own.
        violations: What the plugin did that it must not do, noted while it did it.
        published: The checkpoints of each place, newest first.
        states: What each published checkpoint holds.
    """

    folder: Path
    violations: list[str]
    published: dict[Place, list[Checkpoint]]
    states: dict[tuple[Place, CheckpointId], State]

    @property
    def capabilities(self) -> Capabilities:
        """What the backend declares."""
        ...

    def next_id(self) -> CheckpointId:
        """Give an id that is greater than all before."""
        ...

    def context(self, place: Place, claim: Claim | None) -> TaskContext:
        """Give what a backend may know of its task."""
        ...

    def restore(
        self, markers: Markers, checkpoint: Checkpoint, place: Place, claim: Claim | None = None
    ) -> dict[str, dict[bytes, bytes]]:
        """Restore all of *markers* at once, with a new factory, and give what the stores then hold."""
        ...


@define(eq=False)
class Owner:
    """
    One claim of one task, and what the core does with the backend under it.

    Attributes:
        state: All stores as they are.
        last: The checkpoint that the next one builds on.
        manager: The backend's.
    """

    bench: World
    factory: StateBackendFactory
    place: Place
    claim: Claim
    stores: tuple[str, ...]
    state: dict[str, dict[bytes, bytes]] = field(factory=dict)
    last: Checkpoint | None = None
    manager: TaskBackupManager = field(init=False)
    pending: dict[str, dict[bytes, bytes | None]] = field(factory=dict)
    unsent: set[str] = field(factory=set)
    given_up: set[str] = field(factory=set)
    _images: dict[str, Path] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        context = self.bench.context(self.place, self.claim)
        self.manager = self.factory.backup_manager(context, [StoreSpec(name, "kit") for name in self.stores])

    def begin(self, last: Checkpoint | None) -> None:
        """Restore *last*, compare, and begin."""
        self.last = last
        self.state = {name: {} for name in self.stores}
        if last is not None:
            markers = {s: m for s, m in last.markers.get(self.place.backend, {}).items() if s in self.stores}
            self.state |= self.bench.restore(markers, last, self.place, self.claim)
            wanted = self.bench.states.get((self.place, last.id), self.state)
            for store in markers:
                expect_equal(wanted[store], self.state[store], f"store {store!r}, restored by its next owner")
        again = self.manager.init(last)
        expect(set(again) <= set(self.stores), f"init() names {sorted(again)}; the stores are {list(self.stores)}")
        self.unsent = set(again)

    def snapshot(
        self,
        writes: Writes,
        *,
        id: CheckpointId | None = None,
        based: bool = True,
        give_up_at: int | None = None,
        fail_at: int | None = None,
    ) -> KitSnapshot:
        """Write *writes*, and give the snapshot of the dirty stores; without *based* the base is not at hand."""
        for store, changes in writes.items():
            self.pending.setdefault(store, {}).update(changes)
            merged = {**self.state[store], **changes}
            self.state[store] = {key: value for key, value in merged.items() if value is not None}
        published = {} if self.last is None else self.last.markers.get(self.place.backend, {})
        dirty = [s for s in self.stores if s in self.pending or s in self.unsent or s not in published]
        return KitSnapshot(
            id=id or self.bench.next_id(),
            states={name: self._state(name, published if based else {}) for name in dirty},
            facets=self.bench.capabilities.facets,
            writer=self.claim.writer,
            folder=self.bench.folder / "images",
            violations=self.bench.violations,
            give_up_at=give_up_at,
            fail_at=fail_at,
        )

    def _state(self, store: str, published: Markers) -> StoreState:
        base = (self.last.id, published[store]) if self.last is not None and store in published else None
        return StoreState(dict(self.state[store]), dict(self.pending.get(store, {})), base, self._images.get(store))

    def send(self, snapshot: KitSnapshot) -> Upload:
        """Upload *snapshot* on a worker, and check the markers."""
        notes = self.manager.snapshot(snapshot.id)
        try:
            markers = on_worker(lambda: self.manager.upload(snapshot, notes))
        finally:
            snapshot.ended = True
        expect(isinstance(markers, Mapping), f"upload() gives {type(markers).__name__}, not a mapping")
        expect(
            set(markers) == set(snapshot.stores),
            f"upload() gives markers for {sorted(markers)}; the dirty stores are {sorted(snapshot.stores)}",
        )
        expect(all(type(m) is str for m in markers.values()), f"a marker is no text: {dict(markers)!r:.200}")
        self._images.update(snapshot.images)
        state = {name: dict(content) for name, content in self.state.items()}
        return Upload(snapshot.id, dict(markers), state, snapshot.read)

    def upload(self, writes: Writes, *, id: CheckpointId | None = None, based: bool = True) -> Upload:
        """Write *writes* and upload them."""
        return self.send(self.snapshot(writes, id=id, based=based))

    def publish(self, upload: Upload) -> Checkpoint:
        """Publish what was uploaded last."""
        before = {} if self.last is None else self.last.markers.get(self.place.backend, {})
        carried = {store: marker for store, marker in before.items() if store in self.stores}
        checkpoint = Checkpoint(
            upload.id,
            markers={self.place.backend: {**carried, **upload.markers}},
            claim=self.claim,
            parent=None if self.last is None else self.last.id,
        )
        self.bench.states[self.place, upload.id] = upload.state
        self.bench.published.setdefault(self.place, []).insert(0, checkpoint)
        self.last = checkpoint
        self.pending.clear()
        self.unsent.clear()
        return checkpoint

    def commit(self, writes: Writes, *, retain: int | None = None) -> Checkpoint:
        """Upload and publish *writes*; with *retain* also drop older checkpoints and clean up."""
        checkpoint = self.publish(self.upload(writes))
        if retain is not None:
            del self.bench.published[self.place][retain:]
            self.cleanup()
        return checkpoint

    def abandon(self, id: CheckpointId) -> None:
        """Give the commit *id* up."""
        on_worker(lambda: self.manager.abandon(id))

    def cleanup(self, retained: Sequence[Checkpoint] | None = None) -> None:
        """Clean up, with what is published or with *retained*."""
        kept = self.bench.published.get(self.place, []) if retained is None else retained
        on_worker(lambda: self.manager.cleanup(tuple(kept)))

    def close(self) -> None:
        """Close the manager, twice."""
        self.manager.close()
        on_worker(self.manager.close)


def numbered(number: int, *, size: int = 20) -> dict[bytes, bytes | None]:
    """Give what commit *number* writes to a store: a new key, an old one changed, and one from before deleted."""
    written: dict[bytes, bytes | None] = {
        b"last": b"%d" % number,
        b"k%04d" % number: b"%d:" % number + bytes(number * 7 % 256 for _ in range(size)),
    }
    if number % 3 == 2:
        written[b"k%04d" % (number - 1)] = None
    return written
