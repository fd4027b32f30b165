"""What every bench has: a job of its own, a clock that can be turned, a pool for transfers, and an end."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from attrs import define, field, frozen

from millpond.errors import ConfigError, TransientError
from millpond.events import Event
from millpond.lanes import TransferPool, run_into
from millpond.spi import JobContext
from millpond.testing.kit.child import ChildRecipe
from millpond.testing.kit.contract import NotShownError
from millpond.testing.kit.door import SideDoor

T = TypeVar("T")

DEADLINE_S = 60.0
"""How long any one call of a plugin may take, in seconds."""


@frozen(kw_only=True)
class Profile:
    """
    The honest limits of a plugin that is not as fast, as large or as complete as others.

    Attributes:
        deviations: Ids of cases that are known to fail, each with its reason; they count against the level.
        large_value: Bytes of the largest value that is tried.
        many: How many entries "many" are.
        rounds: How often a race is run.
    """

    deviations: Mapping[str, str] = field(factory=dict)
    large_value: int = 4 << 20
    many: int = 20_000
    rounds: int = 20

    @classmethod
    def of(cls, plugin: object) -> Profile:
        """
        Give the limits that a plugin ships with its class: its ``honest_limits``, a mapping of this class's fields.

        Raises:
            ConfigError: They are not that.
        """
        limits = getattr(plugin, "honest_limits", {})
        try:
            profile = cls(**limits)
        except TypeError as error:
            raise ConfigError(f"{plugin!r}: honest_limits is not as a Profile's fields are: {error}") from error
        if any(not reason for reason in profile.deviations.values()):
            raise ConfigError(f"{plugin!r}: honest_limits names a deviation without a reason")
        return profile


@define
class TurnedClock:
    """The machine's clock, plus what a case has turned it by, in seconds. Any thread."""

    wall_s: float = 0.0
    ahead_s: float = 0.0

    def turn(self, seconds: float) -> None:
        """Let *seconds* pass at once."""
        self.wall_s += seconds
        self.ahead_s += seconds

    def set_back(self, seconds: float) -> None:
        """Let the wall clock go back; the monotonic one does not."""
        self.wall_s -= seconds

    def millis(self) -> int:
        """Give the wall clock."""
        return int((time.time() + self.wall_s) * 1000)

    def monotonic(self) -> float:
        """Give seconds that never go back."""
        return time.monotonic() + self.ahead_s


class Bench:
    """
    One case's own world. The case's thread uses it, and closes it in the end.

    Attributes:
        folder: The case's own.
        profile: The plugin's limits.
        clock: The job's.
        job: The job's name, which no other case has.
        violations: What the plugin did that it must not do, noted while it did it.
        door: The way under the plugin's feet.
        child: How another process makes this world.
    """

    child: ChildRecipe | None = None

    def __init__(self, folder: Path, profile: Profile, door: SideDoor | None = None, job: str = "") -> None:
        """Make an empty world in *folder*."""
        self.folder = folder
        self.profile = profile
        self.clock = TurnedClock()
        self.job = job or f"kit-{secrets.token_hex(4)}"
        self.violations: list[str] = []
        self.events: list[Event] = []
        self.door = door
        self._transfers = TransferPool(4, 64 << 20)
        self._closers: list[Callable[[], object]] = []

    def job_context(self, job: str | None = None, job_id: str = "1") -> JobContext:
        """Give the context of this case's job, or of one with another name."""
        return JobContext(
            job=self.job if job is None else job,
            job_id=job_id,
            layout=None,
            listener=self._take,
            clock=self.clock,
            transfers=self._transfers,
        )

    def _take(self, event: Event) -> None:
        self.events.append(event)

    def side_door(self) -> SideDoor:
        """Give the side door; NotShownError if the author gave none."""
        if self.door is None:
            raise NotShownError("there is no side door")
        return self.door

    def other_process(self) -> ChildRecipe:
        """Give what starts another process in this world; NotShownError where there is no way."""
        if self.child is None:
            raise NotShownError("there is no way to make the plugin in another process")
        return self.child

    def at_end(self, close: Callable[[], object]) -> None:
        """Call *close* when the case has ended; the last one first."""
        self._closers.append(close)

    def close(self) -> None:
        """Close everything that the case opened; the first error is raised when all are closed."""
        errors = []
        while self._closers:
            try:
                self._closers.pop()()
            except Exception as error:  # noqa: BLE001 - raised below, when all are closed
                errors.append(error)
        self._transfers.close(5)
        if errors:
            raise errors[0]


def on_worker(call: Callable[[], T]) -> T:
    """Do *call* on a thread of its own, as the core's workers do; TransientError when it does not end."""
    return at_once([call])[0]


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Do all of *calls* at the same time, each on its own thread; the first error in order is raised."""
    futures = settle(calls)
    for future in futures:
        if (error := future.exception()) is not None:
            raise error
    return [future.result() for future in futures]


def settle(calls: Iterable[Callable[[], T]]) -> list[Future[T]]:
    """Do all of *calls* at the same time, and give their Futures when all have ended."""
    futures: list[Future[T]] = []
    threads = []
    for call in calls:
        future: Future[T] = Future()
        futures.append(future)
        threads.append(threading.Thread(target=run_into, args=(future, call), name="kit-worker", daemon=True))
    for thread in threads:
        thread.start()
    end = time.monotonic() + DEADLINE_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            raise TransientError(f"a call did not end within {DEADLINE_S:g} s")
    return futures
