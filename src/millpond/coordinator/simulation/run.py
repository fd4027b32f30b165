"""One simulated run: trouble for so many steps, then peace, in which the job has to come to rest and go on."""

from __future__ import annotations

from random import Random

from attrs import frozen

from millpond.coordinator.messages import Order
from millpond.coordinator.record import decode
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.simulation.coordinators import Coordinators
from millpond.coordinator.simulation.places import Place
from millpond.coordinator.simulation.tasks import Task
from millpond.coordinator.simulation.topology import Topology
from millpond.coordinator.simulation.verdict import BrokenPromiseError, Ledger
from millpond.coordinator.simulation.world import Trouble, World

_PEACE_S = 300.0


@frozen
class Outcome:
    """
    What happened in a run.

    Attributes:
        seed: From which everything followed.
        steps: Things that happened.
        virtual_s: Virtual seconds that passed.
        elections: Coordinators that were elected.
        births: Starts of tasks.
        attempts: Attempts at a job checkpoint that began.
        recorded: Those that became whole.
        restarts: Restores after which tasks processed again.
        acknowledged: The newest job checkpoint of which a task was told.
    """

    seed: int
    steps: int
    virtual_s: float
    elections: int
    births: int
    attempts: int
    recorded: int
    restarts: int
    acknowledged: str


def simulate(seed: int, steps: int, trouble: Trouble | None = None, layers: tuple[int, ...] = (2, 2, 2)) -> Outcome:
    """
    Run *steps* things that happen under *trouble*, then let peace come.

    Raises:
        BrokenPromiseError: A promise was broken, or the job did not go on in peace; the message names the seed.
    """
    topology = Topology(layers)
    world = World(Random(seed), trouble or Trouble())  # noqa: S311 - chance that can be repeated, no secret
    ledger = Ledger(topology)
    place = Place(world, ledger)
    tasks: dict[str, Task] = {}
    settings = CoordinatorSettings(
        job="simulated",
        members=topology.members,
        interval_s=2.0,
        timeout_s=20.0,
        restore_timeout_s=30.0,
        silence_s=5.0,
        resend_s=1.0,
        retain=2,
        allow_empty=True,
    )

    def reach(member: str, order: Order) -> None:
        world.carry(lambda: tasks[member].order(order))

    coordinators = Coordinators(world, place, settings, reach)
    for name in topology.members:
        tasks[name] = Task(name, world, topology, ledger, coordinators.report, tasks)
        tasks[name].be_born()
    coordinators.elect()
    coordinators.schedule()
    if world.trouble.dies_at:
        world.later(10.0, coordinators.elect)
    try:
        while world.steps < steps:
            world.step()
        _make_peace(world, coordinators, ledger)
    except AssertionError as error:
        raise BrokenPromiseError(f"seed {seed}, step {world.steps}, {world.now:.3f} s: {error}") from error
    return Outcome(
        seed,
        world.steps,
        world.now,
        coordinators.elected,
        sum(task.births for task in tasks.values()),
        ledger.attempts,
        ledger.completed,
        ledger.restarts,
        str(ledger.acknowledged),
    )


def _make_peace(world: World, coordinators: Coordinators, ledger: Ledger) -> None:
    """Let nothing go wrong any more; some job checkpoint has to become whole, and everybody to hear of it."""
    world.trouble = Trouble.none()
    for reign in coordinators.reigns:
        reign.over = True
    coordinators.elect()
    epoch = coordinators.place.epoch
    until = world.now + _PEACE_S
    while world.now < until:
        world.step()
        if ledger.acknowledged is not None and ledger.acknowledged.epoch >= epoch:
            data = coordinators.place.data
            assert data is not None
            assert decode(data).newest is not None
            return
    raise BrokenPromiseError(f"no job checkpoint became whole in {_PEACE_S:g} s of peace")
