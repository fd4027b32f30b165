"""A coordinator's machine with everybody's part played by the test, for the tests of its decisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.coordinator.decisions import Broadcast, Decision, Send, Tell, Write
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.machine import CoordinatorMachine
from millpond.coordinator.messages import (
    Begin,
    Joined,
    Restore,
    Restored,
    Saved,
    Start,
)
from millpond.coordinator.protocol import MemberProtocol
from millpond.coordinator.record import JobCheckpoint, JobRecord
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.standing import Phase
from millpond.coordinator.state import MemberState, Place, TaskState

SPOUTS = {f"spout-{n}": Place("spout", n, 10) for n in range(10)}
BOLTS = {f"bolt-{n}": Place("bolt", n, 40) for n in range(40)}
TOPOLOGY = {**SPOUTS, **BOLTS}  # 2 spouts of 5 and 4 bolts of 10, as in Heron's own tests
PAIR = {"a": Place("a"), "b": Place("b")}


class Rig:
    """A machine, and everybody's part played by the test."""

    def __init__(
        self, members: dict[str, Place] = PAIR, record: JobRecord | None = None, epoch: int = 1, **said: Any
    ) -> None:
        self.now = 100.0
        self.settings = CoordinatorSettings(
            job="job", members=members, **{"interval_s": 10.0, "timeout_s": 60.0, "silence_s": 1e6, **said}
        )
        self.machine = CoordinatorMachine(self.settings, epoch, record, self.now)
        self.record = record
        self.out: list[Decision] = []
        self.starts = dict.fromkeys(members, 1)

    def do(self, decisions: Iterable[Decision]) -> list[Decision]:
        """Note what was decided, and write what is to be written at once."""
        given = list(decisions)
        self.out += given
        return given

    def tick(self, seconds: float = 0.0) -> list[Decision]:
        self.now += seconds
        return self.do(self.machine.tick(self.now))

    def say(self, kind: type, member: str, **fields: Any) -> list[Decision]:
        incarnation = fields.pop("incarnation", f"{member}#{self.starts.get(member, 1)}")
        return self.do(self.machine.report(kind(member=member, incarnation=incarnation, **fields), self.now))

    def write(self) -> list[Decision]:
        """Let the record that was decided on become durable."""
        self.record = [d for d in self.out if isinstance(d, Write)][-1].record
        return self.do(self.machine.written(self.now))

    def join_all(self) -> None:
        for member, place in self.settings.members.items():
            self.say(Joined, member, place=place)

    @property
    def transaction(self) -> TransactionId:
        return [d.order.transaction for d in self.out if isinstance(d, Send) and isinstance(d.order, Restore)][-1]

    @property
    def attempt(self) -> JobCheckpointId:
        return self.orders(Begin)[-1].attempt

    def orders(self, kind: type, decisions: list[Decision] | None = None) -> list[Any]:
        found = self.out if decisions is None else decisions
        return [d.order for d in found if isinstance(d, Send | Broadcast) and isinstance(d.order, kind)]

    def told(self, kind: type) -> list[Any]:
        return [d.event for d in self.out if isinstance(d, Tell) and isinstance(d.event, kind)]

    def restore_all(self) -> None:
        transaction = self.transaction
        for member in self.settings.members:
            self.say(Restored, member, transaction=transaction)
        self.write()

    def run(self) -> None:
        """Come to where all members process."""
        self.join_all()
        self.restore_all()
        assert self.machine.phase is Phase.RUNNING

    def save(self, member: str, attempt: JobCheckpointId | None = None, **fields: Any) -> list[Decision]:
        fields = {"transaction": self.machine.running or TransactionId(0, 0), **fields}
        attempt = attempt or self.attempt
        return self.say(Saved, member, attempt=attempt, state=TaskState(f"{member}@{attempt}"), **fields)

    def checkpoint(self) -> JobCheckpointId:
        """Make a whole job checkpoint."""
        self.tick(self.settings.interval_s)
        for member in self.settings.members:
            self.save(member)
        self.write()
        return self.machine.record.ids[0]


def ids(*numbers: int) -> tuple[JobCheckpointId, ...]:
    return tuple(JobCheckpointId(1, number) for number in numbers)


def recorded(*numbers: int, members: dict[str, Place] = PAIR) -> JobRecord:
    """Give a record with some job checkpoints of epoch 1, newest first."""
    checkpoints = tuple(
        JobCheckpoint(id, 0, {name: MemberState(place, TaskState(f"{name}@{id}")) for name, place in members.items()})
        for id in ids(*numbers)
    )
    return JobRecord("job", "1", checkpoints)


def member() -> MemberProtocol:
    protocol = MemberProtocol("a", "a#1", PAIR["a"])
    protocol.order(restore(1))
    protocol.restored(TransactionId(1, 1))
    protocol.order(Start(epoch=1, transaction=TransactionId(1, 1)))
    assert protocol.running == TransactionId(1, 1)
    return protocol


def restore(number: int, epoch: int = 1, checkpoint: JobCheckpointId | None = None) -> Restore:
    return Restore(
        epoch=epoch,
        incarnation="a#1",
        transaction=TransactionId(epoch, number),
        checkpoint=checkpoint,
        state=None,
        retained=(),
    )


def begin(number: int, transaction: int = 1) -> Begin:
    return Begin(epoch=1, transaction=TransactionId(1, transaction), attempt=JobCheckpointId(1, number))
