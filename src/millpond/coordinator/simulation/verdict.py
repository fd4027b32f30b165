"""The ledger outside the job: what was promised to whom, and whether each restart keeps it."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field

from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.record import JobCheckpoint, JobRecord
from millpond.coordinator.simulation.topology import Topology
from millpond.coordinator.state import TaskState


class BrokenPromiseError(AssertionError):
    """Something happened that must never happen."""


@define
class Ledger:
    """
    Sees everything that matters, and raises BrokenPromiseError.

    Attributes:
        topology: Who sends to whom.
        saved: Ticket to who saved it, under which attempt, and the state.
        acknowledged: The newest job checkpoint that some task was told to be complete.
        damaged: Tickets that cannot be read back.
        retained: The job checkpoints that the record names now.
    """

    topology: Topology
    saved: dict[str, tuple[str, JobCheckpointId, Mapping[str, int]]] = field(factory=dict)
    acknowledged: JobCheckpointId | None = None
    damaged: set[str] = field(factory=set)
    retained: tuple[JobCheckpointId, ...] = ()
    _tickets: dict[JobCheckpointId, set[str]] = field(factory=dict)
    _restored: dict[TransactionId, dict[str, JobCheckpointId | None]] = field(factory=dict)
    _attempts: set[JobCheckpointId] = field(factory=set)
    _ran: set[TransactionId] = field(factory=set)

    @property
    def attempts(self) -> int:
        """How many attempts began."""
        return len(self._attempts)

    @property
    def completed(self) -> int:
        """How many job checkpoints were recorded."""
        return len(self._tickets)

    @property
    def restarts(self) -> int:
        """How many restores ended in tasks that process."""
        return len(self._ran)

    def attempt_began(self, attempt: JobCheckpointId) -> None:
        """No two attempts share a number."""
        if attempt in self._attempts:
            raise BrokenPromiseError(f"attempt {attempt} began twice")
        self._attempts.add(attempt)

    def recorded(self, record: JobRecord) -> None:
        """The record was replaced."""
        self.retained = record.ids
        for checkpoint in record.checkpoints:
            self._check(checkpoint)

    def _check(self, checkpoint: JobCheckpoint) -> None:
        """A job checkpoint holds every member's state of one attempt, and they fit together to the last record."""
        if checkpoint.id in self._tickets:
            return
        self._tickets[checkpoint.id] = set()
        if set(checkpoint.members) != set(self.topology.members):
            raise BrokenPromiseError(f"{checkpoint.id} has the members {sorted(checkpoint.members)}")
        states = {}
        for member, part in checkpoint.members.items():
            assert isinstance(part.state, TaskState)
            owner, attempt, states[member] = self.saved[part.state.checkpoint]
            self._tickets[checkpoint.id].add(part.state.checkpoint)
            if owner != member or attempt != checkpoint.id:
                raise BrokenPromiseError(f"{checkpoint.id} has for {member} what {owner} saved under {attempt}")
        if problem := self.topology.misfit(states):
            raise BrokenPromiseError(f"{checkpoint.id} is no cut: {problem}")

    def was_told(self, checkpoint: JobCheckpointId) -> None:
        """Somebody was told that *checkpoint* is complete."""
        if self.acknowledged is None or checkpoint > self.acknowledged:
            self.acknowledged = checkpoint

    def restored(
        self, member: str, transaction: TransactionId, checkpoint: JobCheckpointId | None, ticket: str | None
    ) -> None:
        """A member is where the restore *transaction* told it to go."""
        owner, attempt, _ = self.saved[ticket] if ticket is not None else (member, None, None)
        if owner != member or attempt != checkpoint:
            raise BrokenPromiseError(
                f"restore {transaction} gave {member} what {owner} saved under {attempt}, not {checkpoint}"
            )
        self._restored.setdefault(transaction, {})[member] = checkpoint

    def ran(self, member: str, transaction: TransactionId) -> None:
        """A member processes again: all are at one job checkpoint, and none before an acknowledged one."""
        places = self._restored.get(transaction, {})
        if set(places) != set(self.topology.members) or len(set(places.values())) != 1:
            raise BrokenPromiseError(f"restore {transaction} mixes {places}")
        self._ran.add(transaction)
        checkpoint = places[member]
        if any(self._is_whole(later) for later in self._acknowledged_after(checkpoint)):
            raise BrokenPromiseError(f"restore {transaction} went back to {checkpoint}, before {self.acknowledged}")

    def _acknowledged_after(self, checkpoint: JobCheckpointId | None) -> list[JobCheckpointId]:
        """Give the retained ones after *checkpoint*, up to the newest of which somebody was told."""
        newest = self.acknowledged
        if newest is None:
            return []
        return [id for id in self.retained if id <= newest and (checkpoint is None or checkpoint < id)]

    def _is_whole(self, checkpoint: JobCheckpointId) -> bool:
        """Whether every state of *checkpoint* can be read back."""
        return not self._tickets[checkpoint] & self.damaged
