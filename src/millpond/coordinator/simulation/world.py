"""Virtual time, chance, and a network that loses, doubles, delays and reorders."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

from attrs import define, field, frozen


@frozen(kw_only=True)
class Trouble:
    """
    How bad the world is; chances are per message or per try, times are virtual seconds.

    Attributes:
        loss: A message is lost.
        doubling: A message comes twice.
        delay_s: The mean of its exponential delay, so messages overtake one another.
        stall: A message, or a save, takes fifty times as long.
        task_life_s: The mean life of a task.
        coordinator_life_s: The mean time to the death of a coordinator, or to another one's election beside it.
        answer_loss: The answer to a write of the record is lost, whether it happened or not.
        decline: A task cannot save.
        damage: A saved state cannot be read back.
        dies_at: The first coordinator dies at this one of its decisions, counted from 1; 0: by chance only.
    """

    loss: float = 0.05
    doubling: float = 0.05
    delay_s: float = 0.05
    stall: float = 0.01
    task_life_s: float = 60.0
    coordinator_life_s: float = 40.0
    answer_loss: float = 0.2
    decline: float = 0.02
    damage: float = 0.0
    dies_at: int = 0

    @classmethod
    def none(cls) -> Trouble:
        """Give a world in which nothing goes wrong."""
        return cls(
            loss=0.0,
            doubling=0.0,
            stall=0.0,
            task_life_s=1e12,
            coordinator_life_s=1e12,
            answer_loss=0.0,
            decline=0.0,
        )


@define
class World:
    """
    Time and chance.

    Attributes:
        random: All chance comes from here.
        trouble: How bad it is; may change while time passes.
        now: Virtual seconds.
        steps: Things that have happened.
    """

    random: Random
    trouble: Trouble
    now: float = 0.0
    steps: int = 0
    _queue: list[tuple[float, int, Callable[[], None]]] = field(factory=list)
    _numbers: int = 0

    def later(self, delay_s: float, happening: Callable[[], None]) -> None:
        """Let *happening* come to pass after *delay_s* seconds."""
        self._numbers += 1
        heapq.heappush(self._queue, (self.now + delay_s, self._numbers, happening))

    def step(self) -> None:
        """Let the next thing happen."""
        self.now, _, happening = heapq.heappop(self._queue)
        self.steps += 1
        happening()

    def chance(self, probability: float) -> bool:
        """Say yes with *probability*."""
        return probability > 0 and self.random.random() < probability

    def delay(self, mean_s: float) -> float:
        """Give an exponential time around *mean_s*, now and then fifty times as long."""
        return self.random.expovariate(1 / mean_s) * (50 if self.chance(self.trouble.stall) else 1)

    def carry(self, deliver: Callable[[], None]) -> None:
        """Carry one message over the network."""
        if self.chance(self.trouble.loss):
            return
        self.later(self.delay(self.trouble.delay_s), deliver)
        if self.chance(self.trouble.doubling):
            self.later(self.delay(self.trouble.delay_s), deliver)
