"""Trying what a store promises, with small objects that are removed again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from functools import partial
from threading import Barrier

from attrs import frozen

from millpond.blob.store import AccessDeniedError, BlobStore, BytesBody
from millpond.clock import Clock
from millpond.errors import ConfigError, MillpondError, StateNotFoundError, TransientError
from millpond.lanes import Workers

RACES = 8
"""How often two creations race: a store that checks and then writes loses most of the time, but not always."""

MOST_SKEW_MS = 10 * 60 * 1000
"""How far the machine's clock may be from the store's."""

_DEADLINE_S = 60.0
_PROBE_LIFE_MS = 24 * 3600 * 1000


@frozen
class Step:
    """
    One promise of a store, to be tried.

    Attributes:
        name: What is tried.
        attempt: Tries it; raises the error that says what, where, and the mend.
    """

    name: str
    attempt: Callable[[], None]


def probe_data(store: BlobStore, job: str, clock: Clock) -> None:
    """
    Try what a backend does below the job's prefix *job*: put, read, read a part, list, remove; and compare clocks.

    Raises:
        ConfigError: Something does not hold; the message says what, where, and the mend.
    """
    with probing(store, job) as prefix:
        for step in data_steps(store, prefix):
            step.attempt()
    compare_clocks(store, clock)


def probe_records(store: BlobStore, job: str, clock: Clock) -> None:
    """
    Try what a checkpoint manager does, and that of two creations of one key exactly one wins.

    Raises:
        ConfigError: Something does not hold; the message says what, where, and the mend.
    """
    with probing(store, job) as prefix:
        for step in record_steps(store, prefix):
            step.attempt()
    compare_clocks(store, clock)


def data_steps(store: BlobStore, prefix: str) -> list[Step]:
    """Give what a backend relies on, each to be tried below *prefix*, in this order."""
    steps = _object_steps(store, f"{prefix}object")
    return [*steps, _listing_step(store, prefix)] if store.capabilities.fresh_listing else steps


def record_steps(store: BlobStore, prefix: str) -> list[Step]:
    """Give what a checkpoint manager relies on, each to be tried below *prefix*, in this order."""

    def race() -> None:
        for number in range(RACES):
            _race(store, f"{prefix}race-{number}")

    steps = _object_steps(store, f"{prefix}object")
    return [*steps, _listing_step(store, prefix), Step(f"{RACES} races of two creations", race)]


@contextmanager
def probing(store: BlobStore, job: str) -> Iterator[str]:
    """
    Give a prefix for probes; what is below it afterwards is removed.

    Raises:
        ConfigError: A permission is missing, or what was removed is listed still.
    """
    _remove_abandoned(store, f"{job}.probe-")
    prefix = f"{job}.probe-{secrets.token_hex(8)}/"
    keys = [f"{prefix}object", *(f"{prefix}race-{number}" for number in range(RACES))]
    try:
        yield prefix
        store.delete(keys)
        if store.capabilities.fresh_listing and any(True for _ in store.list(prefix)):
            raise ConfigError(f"{store.where(prefix)}: objects that were removed are listed still: listings lag")
    except AccessDeniedError as error:
        raise ConfigError(f"{error}; grant it, or use another store") from error
    except BaseException:
        _remove_quietly(store, keys)
        raise


def _remove_abandoned(store: BlobStore, probes: str) -> None:
    """Remove what killed processes left of their probes a day ago or earlier; later is early enough."""
    with suppress(MillpondError):
        objects, uploads = list(store.list(probes)), list(store.unfinished(probes))
        if not objects and not uploads:
            return
        oldest_kept = store.now() - _PROBE_LIFE_MS
        if old := [entry.key for entry in objects if entry.millis < oldest_kept]:
            store.delete(old)
        for upload in uploads:
            if upload.millis < oldest_kept:
                store.abort(upload)


def _remove_quietly(store: BlobStore, keys: list[str]) -> None:
    try:
        store.delete(keys)
    except Exception:  # noqa: BLE001 - the first error is the one to tell; garbage collection finds what is left
        return


def _object_steps(store: BlobStore, key: str) -> list[Step]:
    body = secrets.token_bytes(256)

    def write() -> None:
        store.put(key, BytesBody(body))

    def read() -> None:
        if store.get(key) != body:
            raise ConfigError(
                f"{store.where(key)} does not hold what was put there: something in between changes content"
            )

    def read_part() -> None:
        if store.get(key, 16, 32) != body[16:48]:
            raise ConfigError(
                f"{store.where(key)}: a part was asked for, and something else came: ranged reads do not work"
            )

    def miss() -> None:
        try:
            store.get(f"{key}-absent")
        except StateNotFoundError:
            return
        raise ConfigError(f"{store.where(key)}-absent was never made, and can be read: use another store")

    return [
        Step("write an object", write),
        Step("read it", read),
        Step("read a part of it", read_part),
        Step("miss what is not there", miss),
    ]


def _listing_step(store: BlobStore, prefix: str) -> Step:
    return Step("list it", lambda: _try_listing(store, prefix))


def _try_listing(store: BlobStore, prefix: str) -> None:
    listed = [entry.key for entry in store.list(prefix)]
    if listed != [f"{prefix}object"]:
        raise ConfigError(
            f"{store.where(prefix)}: one object was written, and the listing shows {len(listed)}: listings lag or are "
            "cached; turn caches off, or use another store"
        )


def _race(store: BlobStore, key: str) -> None:
    start = Barrier(2)
    bodies = [secrets.token_bytes(64), secrets.token_bytes(64)]

    def create(body: bytes) -> bool:
        start.wait(_DEADLINE_S)
        return store.put(key, BytesBody(body), if_absent=True)

    workers = Workers("probe", 2)  # daemons: a store that hangs holds up nobody's exit
    attempts = [workers.submit(partial(create, body)) for body in bodies]
    hung = wait(attempts, _DEADLINE_S).not_done
    workers.close(0 if hung else _DEADLINE_S)
    if hung:
        raise TransientError(f"{store.where(key)} did not answer within {_DEADLINE_S:g} s: is its server reachable?")
    won = [attempt.result() for attempt in attempts]
    # None may seem to win: the SDK repeated a request whose answer was lost. Then a loser's content may not be there.
    held = store.get(key)
    if sum(won) > 1 or held not in bodies or (any(won) and held != bodies[won.index(True)]):
        raise ConfigError(
            f"{store.where(key)}: two creations of one key raced and {sum(won)} won: conditional writes are not "
            "honoured there, and two owners of a task could not be told apart; keep the records elsewhere "
            "(checkpoint.manager)"
        )


def compare_clocks(store: BlobStore, clock: Clock) -> None:
    """Raise ConfigError if this machine's clock and the store's are further apart than ``MOST_SKEW_MS``."""
    skew = clock.millis() - store.now()
    if abs(skew) > MOST_SKEW_MS:
        raise ConfigError(
            f"this machine's clock is {abs(skew) / 1000:.0f} s {'ahead of' if skew > 0 else 'behind'} that of "
            f"{store.where()}: set the clock (NTP)"
        )
