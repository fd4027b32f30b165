"""A world for one checkpoint manager, and checkpoints to write."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Layout, SystemStreamPartition
from millpond.spi import CheckpointManager, JobContext, ManagerCapabilities, VersionPolicy
from millpond.testing.kit.bench import Bench, Profile
from millpond.testing.kit.contract import expect_equal
from millpond.testing.kit.door import SideDoor

TASK = "Partition 0"
Make = Callable[[JobContext, VersionPolicy], CheckpointManager]


class ManagerBench(Bench):
    """
    One case's world.

    Attributes:
        first: A manager of the case's job.
    """

    def __init__(self, folder: Path, profile: Profile, door: SideDoor | None, make: Make, job: str = "") -> None:
        """Make the world of one case; *make* gives a new manager that finds what earlier ones left."""
        super().__init__(folder, profile, door, job)
        self._make = make
        self._millis = count(self.clock.millis())
        self.first = self.manager()
        self.first.create_resources()

    def manager(
        self, job: str | None = None, job_id: str = "1", versions: VersionPolicy | None = None
    ) -> CheckpointManager:
        """Make a manager, as another process would; it is closed twice in the end."""
        made = self._make(self.job_context(job, job_id), versions or self.versions())
        self.at_end(made.close)
        self.at_end(made.close)
        return made

    def versions(self) -> VersionPolicy:
        """Give the versions to write and read: the newest that is declared."""
        can = self.capabilities.versions if hasattr(self, "first") else frozenset({2})
        newest = max(can)
        return VersionPolicy(write=(newest,), read=(newest,))

    @property
    def capabilities(self) -> ManagerCapabilities:
        """What the manager declares."""
        return self.first.capabilities

    def next_id(self) -> CheckpointId:
        """Give an id that is greater than all before."""
        return CheckpointId(next(self._millis), secrets.randbelow(1_000_000))

    def checkpoint(self, claim: Claim, parent: Checkpoint | None = None, /, **fields: object) -> Checkpoint:
        """Make a small checkpoint, whose offset is its id."""
        id = self.next_id()
        made: dict[str, object] = {
            "offsets": {SystemStreamPartition("kafka", "flights", 0): str(id)},
            "markers": {"main": {"delays": f"{id}-{claim.writer}"}},
            "claim": claim,
            "parent": None if parent is None else parent.id,
            "images": {"delays": f"{id}-{claim.writer}"},
        }
        return Checkpoint(id, **{**made, **fields})  # type: ignore[arg-type]

    def write(
        self,
        claim: Claim,
        after: Checkpoint | None = None,
        manager: CheckpointManager | None = None,
        **fields: object,
    ) -> Checkpoint:
        """Write a small checkpoint after *after*, and give it."""
        made = self.checkpoint(claim, after, **fields)
        (manager or self.first).write(claim, made, after=None if after is None else after.id)
        return made

    def written(self, count: int, task: str = TASK) -> tuple[Claim, list[Checkpoint]]:
        """Claim *task* and write *count* checkpoints; oldest first."""
        claim = self.first.claim(task)
        made: list[Checkpoint] = []
        for _ in range(count):
            made.append(self.write(claim, made[-1] if made else None))
        return claim, made

    def expect_last(
        self, wanted: Checkpoint | None, manager: CheckpointManager | None = None, task: str = TASK
    ) -> None:
        """See that *wanted* is what read_last gives, to this manager and to a new one."""
        for each in (manager or self.first, self.manager()):
            expect_same(wanted, each.read_last(task), "read_last")


def expect_same(wanted: Checkpoint | None, found: Checkpoint | None, what: str) -> None:
    """See that two checkpoints are the same, field by field."""
    if wanted is None or found is None:
        expect_equal(wanted, found, what)
        return
    for name in ("id", "claim", "parent", "layout"):
        expect_equal(getattr(wanted, name), getattr(found, name), f"{what}: the {name} of checkpoint {wanted.id}")
    expect_equal(wanted.offsets, found.offsets, f"{what}: the offsets of checkpoint {wanted.id}")
    expect_equal(wanted.images, found.images, f"{what}: the images of checkpoint {wanted.id}")
    expect_equal(
        {store: dict(said) for store, said in wanted.properties.items()},
        {store: dict(said) for store, said in found.properties.items()},
        f"{what}: the properties of checkpoint {wanted.id}",
    )
    expect_equal(_flat(wanted.markers), _flat(found.markers), f"{what}: the markers of checkpoint {wanted.id}")


def _flat(markers: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], str]:
    return {(backend, store): marker for backend, each in markers.items() for store, marker in each.items()}


def rich_fields(claim: Claim) -> dict[str, object]:
    """Give fields that are hard to keep: dots, unicode, empty texts, many stores, a layout, a parent."""
    return {
        "offsets": {
            SystemStreamPartition("kafka", "a.b.c", 0): "17",
            SystemStreamPartition("kafka", "ä ö", 3): "",
            SystemStreamPartition("ka-fka", "x", 12, 5): "offset/with, [brackets]",
            SystemStreamPartition("s", 'q"u\\o', 1): "\u2028",
        },
        "markers": {
            "main": {f"store {n}": f"marker-{n}" for n in range(50)},
            "ma.in": {"a.b": "", "ä": "m;a;r;k", "x/y": "\n"},
            "empty": {"s": "0"},
        },
        "parent": CheckpointId(1, 2),
        "layout": Layout(("Partition 0", "Partition 1/é"), "default"),
        "images": {f"store {n}": f"1-{n}-{claim.writer}" for n in range(50)},
        "properties": {f"store {n}": {"rule": str(n % 3), "ä": ""} for n in range(50)},
    }
