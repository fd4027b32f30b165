"""A world for one state backend: owners that commit as the core does, and a dict for each checkpoint."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Markers
from millpond.local import escape_name
from millpond.spi import Capabilities, Facet, StateBackendFactory, StoreSpec, TaskContext
from millpond.testing.kit.backend_owner import STORE, TASK, Owner, Place, State
from millpond.testing.kit.bench import Bench, Profile, at_once
from millpond.testing.kit.contract import expect_equal
from millpond.testing.kit.door import SideDoor
from millpond.testing.kit.targets import KitTarget


class BackendBench(Bench):
    """
    One case's world.

    Attributes:
        factory: What the author's suite made.
        published: The checkpoints of each place, newest first.
        states: What each published checkpoint holds.
        epoch: Of the newest claim.
    """

    def __init__(
        self,
        folder: Path,
        profile: Profile,
        door: SideDoor | None,
        make: Callable[[], StateBackendFactory],
        job: str = "",
    ) -> None:
        """Make the world of one case; *make* gives a new factory that finds what earlier ones left."""
        super().__init__(folder, profile, door, job)
        self.make = make
        self.factory = make()
        self.published: dict[Place, list[Checkpoint]] = {}
        self.states: dict[tuple[Place, CheckpointId], State] = {}
        self.epoch = 0
        self._millis = count(self.clock.millis())

    @property
    def capabilities(self) -> Capabilities:
        """What the backend declares."""
        return self.factory.capabilities

    @property
    def reads_folders(self) -> bool:
        """Whether it reads images as folders only: then nothing can go wrong in the middle of a store."""
        return self.capabilities.facets == Facet.DIRECTORY

    def place(self, job: str | None = None, task: str = TASK, backend: str = "main", job_id: str = "1") -> Place:
        """Name whose state it is; by default the case's job and its only task."""
        return Place(self.job if job is None else job, task, backend, job_id)

    def next_id(self) -> CheckpointId:
        """Give an id that is greater than all before."""
        return CheckpointId(next(self._millis), secrets.randbelow(1_000_000))

    def next_epoch(self) -> int:
        """Give the epoch of a new claim."""
        self.epoch += 1
        return self.epoch

    def context(self, place: Place, claim: Claim | None) -> TaskContext:
        """Give what a backend may know of its task."""
        own = self.folder / "state" / escape_name(place.job) / escape_name(place.task)
        return TaskContext(
            job=self.job_context(place.job, place.job_id),
            task=place.task,
            claim=claim,
            backend=place.backend,
            directory=own / "backends" / escape_name(place.backend),
            scratch=own / "scratch" / escape_name(place.backend),
        )

    def owner(
        self,
        stores: Sequence[str] = (STORE,),
        *,
        place: Place | None = None,
        at: Checkpoint | None = None,
        factory: StateBackendFactory | None = None,
    ) -> Owner:
        """
        Claim a task and restore it, as ``open_task`` does: the manager is made, all is restored, then ``init``.

        *at* is an older checkpoint to go back to. What is restored is compared with what was committed.
        """
        place = place or self.place()
        claim = Claim(place.task, self.next_epoch(), secrets.token_hex(16))
        owner = Owner(self, factory or self.make(), place, claim, tuple(stores))
        self.at_end(owner.close)
        owner.begin(at or next(iter(self.published.get(place, ())), None))
        return owner

    def expect_restored(self, checkpoint: Checkpoint, place: Place | None = None) -> None:
        """Restore *checkpoint* as a reader, and compare it with what was committed."""
        place = place or self.place()
        found = self.restore(checkpoint.markers.get(place.backend, {}), checkpoint, place)
        wanted = self.states[place, checkpoint.id]
        for store in found:
            expect_equal(wanted[store], found[store], f"checkpoint {checkpoint.id}, restored, store {store!r}")

    def restore(
        self, markers: Markers, checkpoint: Checkpoint, place: Place, claim: Claim | None = None
    ) -> dict[str, dict[bytes, bytes]]:
        """Restore all of *markers* at once, with a new factory, and give what the stores then hold."""
        targets = {store: self.target(store, marker) for store, marker in markers.items()}
        self.restore_into(list(targets.values()), checkpoint, place, claim)
        return {store: target.content() for store, target in targets.items()}

    def restore_into(
        self, targets: Sequence[KitTarget], checkpoint: Checkpoint, place: Place, claim: Claim | None = None
    ) -> None:
        """Let a restore manager of its own fill *targets*."""
        specs = [StoreSpec(target.store, "kit") for target in targets]
        manager = self.make().restore_manager(self.context(place, claim), specs)
        try:
            manager.init(checkpoint)
            at_once([partial(manager.restore, target) for target in targets])
        finally:
            manager.close()
            manager.close()

    def target(self, store: str, marker: str, *, interrupt_at: int | None = None) -> KitTarget:
        """Make an empty place to restore to."""
        directory = self.folder / "restored" / secrets.token_hex(8)
        return KitTarget(store, marker, directory, interrupt_at=interrupt_at)

    def files(self) -> Collection[str]:
        """Give the names of what the backend keeps."""
        return set(self.side_door().names())
