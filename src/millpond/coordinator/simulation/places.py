"""The metadata of the simulated world: a record, its version, and an epoch; answers get lost."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from millpond.coordinator import record as record_format
from millpond.coordinator.simulation.verdict import Ledger
from millpond.coordinator.simulation.world import World


@define
class Place:
    """
    Keeps the record.

    Attributes:
        world: Time and chance.
        ledger: Checks each record that is written.
        epoch: Of the newest leadership.
        version: Of the record.
        data: The record.
    """

    world: World
    ledger: Ledger
    epoch: int = 0
    version: int = 0
    data: bytes | None = None

    def elect(self) -> int:
        """Give a new epoch; every earlier one is refused from now on."""
        self.epoch += 1
        return self.epoch

    def read(self, answer: Callable[[int, bytes | None], None]) -> None:
        """Answer with version and record, some time later, if at all."""
        self.world.carry(lambda: self.world.carry(self._answer(answer)))

    def _answer(self, answer: Callable[[int, bytes | None], None]) -> Callable[[], None]:
        version, data = self.version, self.data
        return lambda: answer(version, data)

    def write(self, epoch: int, data: bytes, expected: int, answer: Callable[[str, int], None]) -> None:
        """Compare and set, some time later, once, twice or never; answer ``done``, ``fenced`` or ``other``, perhaps."""
        self.world.carry(lambda: self._write(epoch, data, expected, answer))

    def _write(self, epoch: int, data: bytes, expected: int, answer: Callable[[str, int], None]) -> None:
        if epoch != self.epoch:
            outcome = "fenced"
        elif self.version == expected:
            self.version, self.data, outcome = self.version + 1, data, "done"
            self.ledger.recorded(record_format.decode(data))
        else:
            outcome = "done" if self.data == data else "other"
        version = self.version
        if not self.world.chance(self.world.trouble.answer_loss):
            self.world.carry(lambda: answer(outcome, version))
