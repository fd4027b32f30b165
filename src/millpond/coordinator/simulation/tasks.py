"""A task in the simulated world: the real member protocol and the real alignment, with counters for a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define, field

from millpond.coordinator.alignment import Aligned, BarrierAligner, Overflowed
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.messages import Left, Order, Report
from millpond.coordinator.protocol import Commit, Drop, End, MemberProtocol, RestoreTo, Run, Save, Say, Step
from millpond.coordinator.simulation.topology import Topology
from millpond.coordinator.simulation.verdict import Ledger
from millpond.coordinator.simulation.world import World
from millpond.coordinator.state import TaskState

_BEAT_S = 1.0
_WORK_S = 0.2
_HELD = 12


@define(eq=False)
class Life:
    """
    One start of one task, until it dies.

    Attributes:
        protocol: The real one.
        dead: Whatever comes now is lost.
        state: What it has counted.
        transaction: After which restore it has this state; its channels belong to that.
    """

    protocol: MemberProtocol
    dead: bool = False
    state: dict[str, int] = field(factory=dict)
    transaction: TransactionId | None = None
    aligner: BarrierAligner | None = None


@define(eq=False)
class Task:
    """One task; it is born again whenever it has died."""

    name: str
    world: World
    topology: Topology
    ledger: Ledger
    report: Callable[[Report], None]
    peers: dict[str, Task]
    life: Life = field(init=False)
    births: int = 0
    _tickets: int = 0
    _clear: dict[tuple[str, TransactionId], float] = field(factory=dict)

    def be_born(self) -> None:
        """Start, with nothing."""
        self.births += 1
        place = self.topology.members[self.name]
        life = self.life = Life(MemberProtocol(self.name, f"{self.name}#{self.births}", place))
        self.report(life.protocol.join())
        self._beat(life)
        self._work(life)
        if self.world.trouble.task_life_s < 1e9:
            self.world.later(self.world.random.expovariate(1 / self.world.trouble.task_life_s), lambda: self._die(life))

    def _die(self, life: Life) -> None:
        if self.world.trouble.task_life_s > 1e9:
            return
        life.dead = True
        if self.world.chance(0.3):  # somebody saw it
            self.report(Left(member=self.name, incarnation=life.protocol.incarnation))
        self.world.later(self.world.delay(1.0), self.be_born)

    def _beat(self, life: Life) -> None:
        if not life.dead:
            self.report(life.protocol.beat())
            self.world.later(_BEAT_S, lambda: self._beat(life))

    # ---------------------------------------------------------------------------------------------------------- orders

    def order(self, order: Order) -> None:
        """Take an order off the network."""
        if not self.life.dead:
            self._do(self.life, self.life.protocol.order(order))

    def _do(self, life: Life, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case Say(report):
                    self.report(report)
                case RestoreTo():
                    life.transaction = life.aligner = None
                    self.world.later(self.world.delay(0.3), lambda step=step: self._restore(life, step))  # type: ignore[misc]
                case Run(transaction):
                    self.ledger.ran(self.name, transaction)
                case Save(attempt):
                    if not self.topology.upstream[self.name]:
                        self._save(life, attempt)
                case Drop(attempt, _):
                    if life.aligner is not None:
                        life.aligner.abandon(attempt)
                        self._process(life)
                case Commit(attempt, _):
                    self.ledger.was_told(attempt)
                case End(_, replaced):
                    assert replaced
                    self._die(life)

    def _restore(self, life: Life, step: RestoreTo) -> None:
        if life.dead or life.protocol.restoring != step.transaction:
            return
        ticket = step.state.checkpoint if isinstance(step.state, TaskState) else None
        if ticket in self.ledger.damaged:
            self._do(life, life.protocol.unrestorable(step.transaction, "damaged", damaged=True))
            return
        if self.world.chance(self.world.trouble.decline):
            self._do(life, life.protocol.unrestorable(step.transaction, "not now", damaged=False))
            return
        life.state = dict(self.ledger.saved[ticket][2]) if ticket is not None else {}
        life.transaction = step.transaction
        if upstream := self.topology.upstream[self.name]:
            life.aligner = BarrierAligner(upstream, _HELD)
        self.ledger.restored(self.name, step.transaction, step.checkpoint, ticket)
        self._do(life, life.protocol.restored(step.transaction))

    # ------------------------------------------------------------------------------------------------------- processing

    def _work(self, life: Life) -> None:
        """A source sends some records."""
        if life.dead or self.topology.upstream[self.name]:
            return
        if life.protocol.running is not None and life.protocol.running == life.transaction:
            for _ in range(self.world.random.randrange(4)):
                self._emit(life)
        self.world.later(self.world.delay(_WORK_S), lambda: self._work(life))

    def _emit(self, life: Life) -> None:
        downstream = self.topology.downstream[self.name]
        if downstream:
            receiver = self.world.random.choice(downstream)
            life.state[f"to {receiver}"] = life.state.get(f"to {receiver}", 0) + 1
            self._send(life, receiver, None)

    def _send(self, life: Life, receiver: str, attempt: JobCheckpointId | None) -> None:
        """Send a record or a barrier on a channel that keeps its order, and breaks with either end's restore."""
        transaction = life.transaction
        assert transaction is not None
        at = max(self.world.now + self.world.delay(0.05), self._clear.get((receiver, transaction), 0.0))
        self._clear = {key: when for key, when in self._clear.items() if key[1] == transaction}
        self._clear[receiver, transaction] = at
        peer = self.peers[receiver]
        self.world.later(at - self.world.now, lambda: peer.receive(self.name, transaction, attempt))

    def receive(self, sender: str, transaction: TransactionId, attempt: JobCheckpointId | None) -> None:
        """Take a record or a barrier off a channel; one of another restore is lost with its channel."""
        life = self.life
        if life.dead or life.transaction != transaction or life.aligner is None:
            return
        channel = life.aligner.channel(sender)
        if attempt is None:
            channel.put((sender,), 1)
        else:
            channel.barrier(attempt)
        self._process(life)

    def _process(self, life: Life) -> None:
        aligner = life.aligner
        while aligner is not None and (item := aligner.take()) is not None:
            match item:
                case Aligned(attempt=attempt):
                    self._save(life, attempt)
                case Overflowed(attempt=attempt):
                    self._do(life, life.protocol.declined(attempt, "too much is held"))
                case (sender,):
                    life.state[f"from {sender}"] = life.state.get(f"from {sender}", 0) + 1
                    self._emit(life)

    def _save(self, life: Life, attempt: JobCheckpointId) -> None:
        """Freeze the state, send the barrier on, and report when the state is durable."""
        if life.protocol.running != life.transaction or not life.protocol.begin_saving(attempt):
            return
        state = dict(life.state)
        for receiver in self.topology.downstream[self.name]:
            self._send(life, receiver, attempt)
        if self.world.chance(self.world.trouble.decline):
            self._do(life, life.protocol.declined(attempt, "the disk is full"))
        else:
            self.world.later(self.world.delay(0.1), lambda: self._saved(life, attempt, state))

    def _saved(self, life: Life, attempt: JobCheckpointId, state: dict[str, int]) -> None:
        """The state is durable, even if the task dies before anybody hears of it."""
        self._tickets += 1
        ticket = f"{self.name}:{self._tickets}"
        self.ledger.saved[ticket] = (self.name, attempt, state)
        if self.world.chance(self.world.trouble.damage):
            self.ledger.damaged.add(ticket)
        if not life.dead:
            self._do(life, life.protocol.saved(attempt, TaskState(ticket)))
