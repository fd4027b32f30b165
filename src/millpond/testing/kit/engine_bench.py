"""A world for one store engine: databases in folders, clones of images, a dict to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

from millpond.local import clone_image
from millpond.spi import BATCH, StoreEngine
from millpond.testing.kit.bench import Bench, Profile
from millpond.testing.kit.contract import expect_equal

Make = Callable[[Path, bool], StoreEngine]


class EngineBench(Bench):
    """One case's world."""

    def __init__(self, folder: Path, profile: Profile, make: Make) -> None:
        """Make the world of one case; *make* opens the database in a folder, for reading only or not."""
        super().__init__(folder, profile)
        self._make = make
        self._numbers = count()

    def fresh(self) -> Path:
        """Give an empty folder."""
        made = self.path()
        made.mkdir()
        return made

    def path(self) -> Path:
        """Give a path at which nothing is, in a folder that is there."""
        return self.folder / f"db-{next(self._numbers)}"

    def open(self, directory: Path | None = None, *, read_only: bool = False) -> StoreEngine:
        """Open a database, by default a new one; it is closed twice in the end."""
        made = self._make(self.fresh() if directory is None else directory, read_only)
        self.at_end(made.close)
        self.at_end(made.close)
        return made

    def clone(self, image: Path, engine: StoreEngine) -> Path:
        """Clone an image as the core does: immutable files are linked, transient ones left behind, others copied."""
        place = self.path()
        clone_image(image, place, immutable=type(engine).immutable, transient=type(engine).transient)
        return place

    def image(self, engine: StoreEngine) -> Path:
        """Make an image."""
        place = self.path()
        engine.checkpoint(place)
        return place

    def filled(self, content: Mapping[bytes, bytes]) -> StoreEngine:
        """Give a new database that holds *content*."""
        engine = self.open()
        apply(engine, content)
        return engine


def apply(engine: StoreEngine, writes: Mapping[bytes, bytes | None]) -> None:
    """Apply *writes* as the core does: sorted, in batches."""
    changes = sorted(writes.items())
    for at in range(0, len(changes), BATCH):
        engine.apply(changes[at : at + BATCH])


def expect_content(content: Mapping[bytes, bytes], engine: StoreEngine, what: str) -> None:
    """See that *engine* holds exactly *content*: by a scan in both directions, by get and by get_many."""
    wanted = sorted(content.items())
    found = list(engine.scan(None, None, False))
    expect_equal(dict(wanted), dict(found), what)
    expect_equal(wanted, found, f"{what}: the order of a scan")
    expect_equal(wanted[::-1], list(engine.scan(None, None, True)), f"{what}: the order of a scan in reverse")
    keys: Sequence[bytes] = [key for key, _ in wanted][:: max(1, len(wanted) // 50)]
    for key in keys:
        expect_equal(content[key], engine.get(key), f"{what}: get({key!r:.60})")
    expect_equal([content[key] for key in keys], engine.get_many(keys), f"{what}: get_many")
