"""A coordinator in the simulated world: the real state machine, driven; it dies, and another may lead beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define, field

from millpond.coordinator import record as record_format
from millpond.coordinator.decisions import Broadcast, Decision, Fail, Send, Write
from millpond.coordinator.machine import CoordinatorMachine
from millpond.coordinator.messages import Begin, Order, Report
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.simulation.places import Place
from millpond.coordinator.simulation.verdict import BrokenPromiseError
from millpond.coordinator.simulation.world import World

_ASK_AGAIN_S = 1.0


@define(eq=False)
class Reign:
    """
    One leadership.

    Attributes:
        world: Time and chance.
        place: Where the record is.
        settings: The operator's.
        reach: Gives an order to a member, over the network.
        over: It is dead, or knows that it was replaced.
        dies_at: It dies in the middle of this one of its decisions, counted from 1; 0: by chance only.
        machine: Its state machine, once the record was read.
    """

    world: World
    place: Place
    settings: CoordinatorSettings
    reach: Callable[[str, Order], None]
    epoch: int
    over: bool = False
    dies_at: int = 0
    machine: CoordinatorMachine | None = None
    _version: int = 0
    _decided: int = 0
    _writing: bytes | None = field(default=None, init=False)

    def begin(self) -> None:
        """Read the record until there is an answer."""
        if self.over or self.machine is not None:
            return
        self.place.read(self._was_read)
        self.world.later(_ASK_AGAIN_S, self.begin)

    def _was_read(self, version: int, data: bytes | None) -> None:
        if self.over or self.machine is not None or (data is not None and self._is_later(data)):
            return
        self._version = version
        record = None if data is None else record_format.decode(data)
        self.machine = CoordinatorMachine(self.settings, self.epoch, record, self.world.now)
        self._tick()

    def _is_later(self, data: bytes) -> bool:
        newest = record_format.decode(data).newest
        return newest is not None and newest.id.epoch >= self.epoch

    def _tick(self) -> None:
        if not self.over and self.machine is not None:
            self._do(self.machine.tick(self.world.now))
            self.world.later(self.machine.next_look(self.world.now), self._tick)

    def report(self, report: Report) -> None:
        """Take a report off the network."""
        if not self.over and self.machine is not None:
            self._do(self.machine.report(report, self.world.now))

    def _do(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self._decided += 1
            if self._decided == self.dies_at:
                self.over = True
                return
            match decision:
                case Send(member, order):
                    self.reach(member, order)
                case Broadcast(order):
                    if isinstance(order, Begin):
                        self.place.ledger.attempt_began(order.attempt)
                    for member in self.settings.members:
                        self.reach(member, order)
                case Write(record):
                    self._writing = record_format.encode(record)
                    self._write()
                case Fail(error):
                    raise BrokenPromiseError(f"the coordinator gave up: {error}")
                case _:
                    pass

    def _write(self) -> None:
        """Ask for the write until it is known to have happened; nothing else can be known of it."""
        data = self._writing
        if self.over or data is None:
            return
        self.place.write(
            self.epoch, data, self._version, lambda outcome, version: self._answered(data, outcome, version)
        )
        self.world.later(_ASK_AGAIN_S, lambda: self._write() if self._writing is data else None)

    def _answered(self, data: bytes, outcome: str, version: int) -> None:
        if self.over or self._writing is not data:
            return
        if outcome == "fenced":
            self.over = True
        elif outcome == "done" and self.machine is not None:
            self._writing, self._version = None, version
            self._do(self.machine.written(self.world.now))


@define
class Coordinators:
    """All coordinators of the job: at each turn one dies, or another is elected while it lives on without knowing."""

    world: World
    place: Place
    settings: CoordinatorSettings
    reach: Callable[[str, Order], None]
    reigns: list[Reign] = field(factory=list, init=False)
    elected: int = 0

    def elect(self) -> None:
        """Let a new coordinator be elected, now."""
        self.elected += 1
        dies_at = self.world.trouble.dies_at if self.elected == 1 else 0
        reign = Reign(self.world, self.place, self.settings, self.reach, self.place.elect(), dies_at=dies_at)
        self.reigns = [*(one for one in self.reigns[-2:] if not one.over), reign]
        reign.begin()

    def turn(self) -> None:
        """Let fate have its way with whoever leads, and come again."""
        for reign in self.reigns:
            if self.world.chance(0.5):
                reign.over = True
        self.world.later(self.world.delay(0.5), self.elect)
        self.schedule()

    def schedule(self) -> None:
        """Say when fate comes again."""
        self.world.later(self.world.random.expovariate(1 / self.world.trouble.coordinator_life_s), self.turn)

    def report(self, report: Report) -> None:
        """Carry a report to every coordinator that thinks that it leads."""
        for reign in self.reigns:
            self.world.carry(lambda reign=reign: reign.report(report))  # type: ignore[misc]
