"""
How a standby knows that the leader is gone: a lock that dies with its process, or a lease that is renewed.

Neither is what keeps an old leader from writing; that is the numbers' work (:mod:`millpond.coordinator.numbered`). They
only say when to take over, and let the leader know in time that somebody may have done so.
"""

from __future__ import annotations

import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from attrs import define, field
from filelock import FileLock, Timeout

from millpond.clock import Clock, SystemClock
from millpond.errors import ConfigError, FencedError, MillpondError, TransientError
from millpond.local import explained, make_folders
from millpond.records import RecordFolder

_LOOK_S = 0.05


class WakefulClock(SystemClock):
    """The machine's clock, whose monotonic seconds go on while the machine sleeps, where the system can tell."""

    def monotonic(self) -> float:
        """Give seconds from an arbitrary start, those of a suspension included."""
        boot = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if boot is None else time.clock_gettime(boot)


class Hold(ABC):
    """What a leader holds while it lives. Any thread."""

    @abstractmethod
    def check(self) -> None:
        """Raise FencedError once somebody else may lead."""

    @abstractmethod
    def release(self) -> None:
        """Let go, so that a standby need not wait; idempotent."""


class Vigil(ABC):
    """How one place's leaders show that they live, and how others wait for their end."""

    @abstractmethod
    def wait(self, newest: Callable[[], int], timeout_s: float, ended: threading.Event) -> tuple[int, Hold]:
        """
        Wait until no leader lives; give the number that *newest* had then, and what the next leader holds.

        The next leader is whoever creates the number after it.

        Raises:
            TransientError: *timeout_s* seconds passed, or *ended* was set.
        """


@define
class _HeldLock(Hold):
    _lock: FileLock
    _released: bool = field(default=False, init=False)

    def check(self) -> None:
        """Return while the kernel keeps the lock for this process."""
        if self._released:
            raise FencedError("this leadership was given back: stand for election anew")

    def release(self) -> None:
        """Let the next one have it."""
        self._released = True
        self._lock.release()


@define
class LockVigil(Vigil):
    """
    A file lock: takeover at once when the leader's process ends, however it ends. For processes of one machine.

    Attributes:
        path: The lock file; its presence means nothing.
    """

    path: Path

    def wait(self, newest: Callable[[], int], timeout_s: float, ended: threading.Event) -> tuple[int, Hold]:
        """Wait for the lock."""
        clock = SystemClock()
        deadline = clock.monotonic() + timeout_s
        make_folders(self.path.parent)
        lock = FileLock(self.path, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)
        while True:
            with explained("lock", self.path):
                try:
                    lock.acquire(timeout=0)
                    break
                except (Timeout, RuntimeError):  # the second is filelock's word for a lock of this very process
                    pass
            if ended.wait(_LOOK_S) or clock.monotonic() >= deadline:
                raise TransientError(f"another coordinator holds {self.path}: wait for its end, or stop it")
        try:
            return newest(), _HeldLock(lock)
        except BaseException:
            lock.release()
            raise


class _Lease(Hold):
    """A lease that a thread of its own renews, by creating a new beat and removing the old one."""

    def __init__(self, folder: RecordFolder, lease_s: float, clock: Clock) -> None:
        self._folder = folder
        self._lease_s = lease_s
        self._clock = clock
        self._until = clock.monotonic() + lease_s
        self._name = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, stale: Collection[str]) -> None:
        """Show life for the first time, before the election; go on doing so; remove the *stale* signs of the dead."""
        self._beat()
        with suppress(MillpondError):  # they are old: nobody waits for them long
            self._folder.delete(stale)
        self._thread = threading.Thread(target=self._run, name="millpond-coordinator-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Return while the lease runs, by our own clock, from before the last renewal that succeeded."""
        if self._ended.is_set():
            raise FencedError("this leadership was given back: stand for election anew")
        if self._clock.monotonic() >= self._until:
            raise FencedError(
                f"this coordinator could not renew its lease for {self._lease_s:g} s, so another one may lead: stand "
                f"for election anew"
            )

    def release(self) -> None:
        """Stop showing life, and remove the last sign of it."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(self._lease_s)
        with suppress(MillpondError):  # a standby then waits for the lease to run out
            self._folder.delete([self._name])

    def _run(self) -> None:
        while not self._ended.wait(self._lease_s / 4):
            if self._clock.monotonic() >= self._until:
                return  # lost for good: another may lead, and a late beat would only keep others waiting
            with suppress(MillpondError):  # tried again until the lease is over, and then check() says so
                self._beat()

    def _beat(self) -> None:
        begun = self._clock.monotonic()
        name = f"{self._folder.now_millis()}-{secrets.token_hex(8)}"
        if not self._folder.create(name, b""):
            return
        self._until, last, self._name = begun + self._lease_s, self._name, name
        if last:
            self._folder.delete([last])


@define
class LeaseVigil(Vigil):
    """
    A lease: for coordinators on several machines, in any place that can keep records.

    A standby takes over when nothing has changed for a whole lease, by its own monotonic clock, so no two clocks are
    ever compared. Only a sign of life that is older than ten leases by the place's clock is not waited for.

    Attributes:
        folder: Where the signs of life are.
        lease_s: How long a leader is believed to live after its last sign.
    """

    folder: RecordFolder
    lease_s: float
    clock: Clock = field(factory=WakefulClock)

    def __attrs_post_init__(self) -> None:
        """Refuse a lease that cannot be renewed in time."""
        if not self.lease_s > 0:
            raise ConfigError(f"a coordinator's lease has to be over 0 seconds, and is {self.lease_s!r}")

    def wait(self, newest: Callable[[], int], timeout_s: float, ended: threading.Event) -> tuple[int, Hold]:
        """Wait until the leader has given no sign of life for a lease, or has resigned."""
        deadline = self.clock.monotonic() + timeout_s
        seen = self._signs(newest)
        since = self.clock.monotonic()
        while not self._is_over(seen[1], since):
            if ended.wait(min(self.lease_s / 8, 1.0)) or self.clock.monotonic() >= deadline:
                raise TransientError("another coordinator leads: wait for its end, or stop it")
            now = self._signs(newest)
            if now != seen:
                seen, since = now, self.clock.monotonic()
        lease = _Lease(self.folder, self.lease_s, self.clock)
        lease.begin(seen[1])
        return seen[0], lease

    def _signs(self, newest: Callable[[], int]) -> tuple[int, frozenset[str]]:
        # A candidate shows life and then takes the next number. Whoever looks at the number first and then finds no
        # life has seen a number that no election follows yet.
        number = newest()
        return number, frozenset(self.folder.names())

    def _is_over(self, beats: frozenset[str], since: float) -> bool:
        if not beats or self.clock.monotonic() - since >= self.lease_s:
            return True
        oldest_believed = self.folder.now_millis() - 10_000 * self.lease_s
        return all(
            name.partition("-")[0].isdecimal() and int(name.partition("-")[0]) < oldest_believed for name in beats
        )
