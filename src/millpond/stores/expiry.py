"""Time to live: a stored value begins with the time of its expiry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from millpond.clock import Clock
from millpond.errors import ConfigError, FormatError
from millpond.stores.merge import Item
from millpond.stores.scan import close_iterator

_STAMP = 8
_MILLISECOND = timedelta(milliseconds=1)


class Expiry:
    """
    Stamps values with their end and hides those that are over.

    The stamp is the wall clock at the put plus the time to live, in milliseconds since 1970: eight bytes, big-endian. A
    value is over from that very millisecond on.
    """

    def __init__(self, store: str, ttl: timedelta, clock: Clock) -> None:
        """Let the values of *store* live for *ttl*, at least a millisecond."""
        if ttl < _MILLISECOND:
            raise ConfigError(f"store {store!r}: a time to live of {ttl} is under a millisecond")
        self._store = store
        self._millis = ttl // _MILLISECOND
        self._clock = clock

    def stamped(self, data: bytes) -> bytes:
        """Give *data* behind the stamp of a value that is put now."""
        return (self._clock.millis() + self._millis).to_bytes(_STAMP, "big") + data

    def live(self, data: bytes) -> bytes | None:
        """Give the value in *data* without its stamp, or None when it is over."""
        return data[_STAMP:] if self._clock.millis() < self._end_of(data) else None

    def living(self, items: Iterator[Item]) -> Iterator[Item]:
        """Give those of *items* that live now, at the time of the call, without their stamps."""
        return self._living(items, self._clock.millis())

    def _living(self, items: Iterator[Item], now: int) -> Iterator[Item]:
        try:
            for key, data in items:
                if now < self._end_of(data):
                    yield key, data[_STAMP:]
        finally:
            close_iterator(items)

    def _end_of(self, data: bytes) -> int:
        if len(data) < _STAMP:
            raise FormatError(
                f"store {self._store!r}: a value of {len(data)} bytes has no expiry, so it was written without a time "
                "to live"
            )
        return int.from_bytes(data[:_STAMP], "big")
