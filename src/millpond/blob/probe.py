"""Trying what a store promises, with small objects that are removed again."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

from millpond.blob.store import AccessDeniedError, BlobStore, BytesBody
from millpond.clock import Clock
from millpond.errors import ConfigError, StateNotFoundError

RACES = 8
"""How often two creations race: a store that checks and then writes loses most of the time, but not always."""

MOST_SKEW_MS = 10 * 60 * 1000
"""How far the machine's clock may be from the store's."""

_DEADLINE_S = 60.0


def probe_data(store: BlobStore, job: str, clock: Clock) -> None:
    """
    Try what a backend does below the job's prefix *job*: put, read, read a part, list, remove; and compare clocks.

    Raises:
        ConfigError: Something does not hold; the message says what, where, and the mend.
    """
    with _probing(store, job) as prefix:
        _try_object(store, f"{prefix}object")
        if store.capabilities.fresh_listing:
            _try_listing(store, prefix)
    _compare_clocks(store, clock)


def probe_records(store: BlobStore, job: str, clock: Clock) -> None:
    """
    Try what a checkpoint manager does, and that of two creations of one key exactly one wins.

    Raises:
        ConfigError: Something does not hold; the message says what, where, and the mend.
    """
    with _probing(store, job) as prefix:
        _try_object(store, f"{prefix}object")
        _try_listing(store, prefix)
        for number in range(RACES):
            _race(store, f"{prefix}race-{number}")
    _compare_clocks(store, clock)


@contextmanager
def _probing(store: BlobStore, job: str) -> Iterator[str]:
    """Give a prefix for probes; what is below it afterwards is removed."""
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


def _remove_quietly(store: BlobStore, keys: list[str]) -> None:
    try:
        store.delete(keys)
    except Exception:  # noqa: BLE001 - the first error is the one to tell; garbage collection finds what is left
        return


def _try_object(store: BlobStore, key: str) -> None:
    body = secrets.token_bytes(256)
    store.put(key, BytesBody(body))
    if store.get(key) != body:
        raise ConfigError(f"{store.where(key)} does not hold what was put there: something in between changes content")
    if store.get(key, 16, 32) != body[16:48]:
        raise ConfigError(
            f"{store.where(key)}: a part was asked for, and something else came: ranged reads do not work"
        )
    try:
        store.get(f"{key}-absent")
    except StateNotFoundError:
        return
    raise ConfigError(f"{store.where(key)}-absent was never made, and can be read: use another store")


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

    with ThreadPoolExecutor(2) as pool:
        attempts = [pool.submit(create, body) for body in bodies]
        won = [attempt.result(_DEADLINE_S) for attempt in attempts]
    # None may seem to win: the SDK repeated a request whose answer was lost. Then a loser's content may not be there.
    held = store.get(key)
    if sum(won) > 1 or held not in bodies or (any(won) and held != bodies[won.index(True)]):
        raise ConfigError(
            f"{store.where(key)}: two creations of one key raced and {sum(won)} won: conditional writes are not "
            "honoured there, and two owners of a task could not be told apart; keep the records elsewhere "
            "(checkpoint.manager)"
        )


def _compare_clocks(store: BlobStore, clock: Clock) -> None:
    skew = clock.millis() - store.now()
    if abs(skew) > MOST_SKEW_MS:
        raise ConfigError(
            f"this machine's clock is {abs(skew) / 1000:.0f} s {'ahead of' if skew > 0 else 'behind'} that of "
            f"{store.where()}: set the clock (NTP)"
        )
