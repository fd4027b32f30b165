"""What happens in a trial: decided from its seed alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

from attrs import frozen

MOMENT = "any moment"
"""How the table names a death that was not at a point."""

_QUARANTINE = "local.quarantined"
_GARBAGE = "gc.before-removal"
_FROM_BACKENDS = ("restore.store-filled",)
_ONCE = (
    "restore.claimed",
    "restore.planned",
    "restore.before-cleanup",
    "records.before-claim",
    "records.claimed",
    _QUARANTINE,
)
_IN_A_BATCH = ("blob.before-removal", _GARBAGE)


@frozen(kw_only=True)
class Pace:
    """
    How fast the processes of a trial are, and where they may sleep.

    Attributes:
        longest_us: A death at any moment comes at most so many microseconds after its process's birth.
        sleeps: Beginnings of the names of points at which a process may sleep instead of dying.
        once: Points that a process passes only once, beyond those that are so everywhere.
        patience_s: How long a successor may be held up by a process that sleeps.
    """

    longest_us: int = 250_000
    sleeps: tuple[str, ...] = ("commit.", "restore.", "blob.", "rocksdb-local.")
    once: tuple[str, ...] = ()
    patience_s: float = 5.0


LOCAL = Pace()
"""Of a job that waits for no server, or for one that answers at once."""


@frozen
class Death:
    """
    How a process ends.

    Attributes:
        point: At this step; empty: at any moment.
        passes: How often it passes the step before.
        after_us: For any moment: how many microseconds after its birth.
        asleep: It does not die but sleeps, and wakes when another owner has committed.
    """

    point: str = ""
    passes: int = 0
    after_us: int = 0
    asleep: bool = False

    @property
    def name(self) -> str:
        """The table's word for it."""
        return self.point or MOMENT


@frozen(kw_only=True)
class Life:
    """
    One process of a trial.

    Attributes:
        records: How many records it processes.
        seed: Of when it commits.
        death: How it ends; None: well.
        wiped: The task's disk is empty when it begins.
        damaged: The newest local image of a store is damaged when it begins.
        collects: It collects garbage, and does not open the task.
        last: It goes on, compares, collects, looks for what is left, and leaks nothing.
    """

    records: int = 0
    seed: int = 0
    death: Death | None = None
    wiped: bool = False
    damaged: bool = False
    collects: bool = False
    last: bool = False


@frozen
class Story:
    """
    A whole trial.

    Attributes:
        seed: Its seed.
        engine: The engine of its stores.
        lives: Its processes, one after the other.
    """

    seed: int
    engine: str
    lives: Sequence[Life]


def checks(seed: int) -> bool:
    """Say whether the processes of *seed* try what their servers promise; those of the others believe it."""
    return seed % 4 == 0


def undoes_first(seed: int) -> bool:
    """Say whether the last process of *seed* commits before it does anything: what a dead one left is then undone."""
    return seed % 2 == 0


def story_of(seed: int, points: Sequence[str], engines: Sequence[str], pace: Pace = LOCAL) -> Story:
    """
    Give the story of *seed*.

    The first ``len(points)`` seeds have a death at each of *points* in turn, the first time that it is reached; then a
    third as many die at any moment; and so on, with other passes and circumstances.
    """
    chance = random.Random(seed)  # noqa: S311 - a trial is repeated by its seed
    place = seed % (len(points) + max(1, len(points) // 3))
    point = points[place] if place < len(points) else ""
    first = seed < len(points)
    main = _at_point(chance, point, pace, first=first) if point else [_dying(chance, _any_moment(chance, pace))]
    past = [_life(chance)] if _needs_past(point) or chance.random() < 0.6 else []
    more = [_dying(chance, _any_moment(chance, pace))] if chance.random() < 0.25 else []
    last = Life(records=chance.randrange(8, 20), seed=chance.getrandbits(32), wiped=chance.random() < 0.5, last=True)
    return Story(seed, chance.choice(list(engines)), (*past, *main, *more, last))


def _needs_past(point: str) -> bool:
    return point.startswith("restore") or point == _QUARANTINE


def _at_point(chance: random.Random, point: str, pace: Pace, *, first: bool) -> list[Life]:
    if point == _GARBAGE:
        left = _dying(chance, Death("commit.before-write", 0 if first else chance.randrange(2)))
        return [left, Life(death=Death(point), collects=True)]
    passes = 0 if first or point in (*_ONCE, *pace.once, *_IN_A_BATCH) else chance.randrange(3)
    asleep = point.startswith(pace.sleeps) and chance.random() < 0.2
    death = Death(point, min(passes, 1) if point.startswith("restore") else passes, asleep=asleep)
    wiped = point in _FROM_BACKENDS or (point.startswith("restore") and chance.random() < 0.5)
    return [_life(chance, death=death, wiped=wiped, damaged=point == _QUARANTINE)]


def _any_moment(chance: random.Random, pace: Pace) -> Death:
    return Death(after_us=chance.randrange(pace.longest_us))


def _dying(chance: random.Random, death: Death) -> Life:
    return _life(chance, death=death, wiped=chance.random() < 0.3)


def _life(chance: random.Random, *, death: Death | None = None, wiped: bool = False, damaged: bool = False) -> Life:
    records, seed = chance.randrange(30, 60), chance.getrandbits(32)
    return Life(records=records, seed=seed, death=death, wiped=wiped, damaged=damaged)
