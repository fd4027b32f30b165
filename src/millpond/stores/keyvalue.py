"""The store that a host holds: a map of keys to values, encoded over a buffered store of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Any, Generic, NoReturn, TypeVar, overload

from millpond.clock import Clock, SystemClock
from millpond.errors import FormatError
from millpond.stores.buffer import BufferedStore
from millpond.stores.expiry import Expiry
from millpond.stores.refusals import RecordTooLargeError, cannot_store, is_none, shortened
from millpond.stores.scan import close_iterator
from millpond.stores.serdes import BYTES, Serde, name_of

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class KeyValueStore(Generic[K, V]):
    """
    A durable map. One thread at a time writes; others may read.

    Keys and values are encoded at once: what cannot be stored raises TypeError or ValueError, names the store, and
    changes nothing. A value that was read is a copy: put it back to change it. Every method raises StoreClosedError
    once the store is closed or has failed; writing raises TransientError when the write buffer stays full.
    There is no ``len()`` and no iteration: both would cost a scan that one does not see.
    """

    def __init__(
        self,
        store: BufferedStore,
        key: Serde,
        value: Serde,
        *,
        ttl: timedelta | None = None,
        clock: Clock | None = None,
    ) -> None:
        """
        Encode over *store* by the serdes *key* and *value*.

        Args:
            store: Holds the bytes.
            key: Encodes keys; their bytes give the order of scans.
            value: Encodes values.
            ttl: How long a value lives after its put; at least a millisecond. None: until it is deleted. The stored
                value then begins with its expiry: milliseconds since 1970 in eight bytes, big-endian.
            clock: Tells when a value expires.
        """
        self._store = store
        self._encode_key = _encoder(store.name, "key", key)
        self._decode_key = _decoder(store.name, "key", key)
        self._encode_value = _encoder(store.name, "value", value)
        self._decode_value = _decoder(store.name, "value", value)
        self._expiry = None if ttl is None else Expiry(store.name, ttl, clock or SystemClock())
        self._swept: bytes | None = None
        if ttl is None and key is BYTES and value is BYTES:
            self._pass_through()

    def _pass_through(self) -> None:
        """Spare a store of bytes a call on every access: the buffered store does all that there is to do."""
        self.get = self._store.get  # type: ignore[method-assign,assignment]
        self.put = self._store.put  # type: ignore[method-assign,assignment]
        self.delete = self._store.delete  # type: ignore[method-assign,assignment]
        self.scan = self._store.scan  # type: ignore[method-assign,assignment]

    @property
    def name(self) -> str:
        """Give the store's name."""
        return self._store.name

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """Give the value of *key*, or *default*."""
        data = self._store.get(self._encode_key(key))
        if data is not None and self._expiry is not None:
            data = self._expiry.live(data)
        return default if data is None else self._decode_value(data)

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """Give the values of those of *keys* that are there; cheaper than as many ``get``."""
        wanted = list(keys)
        found = self._store.get_many([self._encode_key(key) for key in wanted])
        if self._expiry is not None:
            found = [None if data is None else self._expiry.live(data) for data in found]
        return {key: self._decode_value(data) for key, data in zip(wanted, found, strict=True) if data is not None}

    def put(self, key: K, value: V) -> None:
        """
        Set *key* to *value*.

        Raises:
            TypeError, ValueError: One of them cannot be stored.
            RecordTooLargeError: They are too large for one of the store's backends.
        """
        encoded, data = self._encode_key(key), self._encode_value(value)
        if self._expiry is not None:
            data = self._expiry.stamped(data)
        try:
            self._store.put(encoded, data)
        except RecordTooLargeError as error:  # name the key as the caller knows it
            raise RecordTooLargeError(error.store, key, error.size, error.limit) from None

    def delete(self, key: K) -> None:
        """Remove *key*; a missing one is fine."""
        self._store.delete(self._encode_key(key))

    def scan(self, start: K | None = None, stop: K | None = None, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """
        Give the entries from *start* (inclusive) to *stop* (exclusive), sorted by the keys' bytes, or in reverse.

        Shows the store as it was when this was called. The iterator has ``close()``.
        """
        low = None if start is None else self._encode_key(start)
        high = None if stop is None else self._encode_key(stop)
        items = self._store.scan(low, high, reverse)
        if self._expiry is not None:
            items = self._expiry.living(items)
        return _decoded(items, self._decode_key, self._decode_value)

    def sweep(self, limit: int = 1_000) -> int:
        """
        Look at *limit* more stored values in turn, and delete those that have expired; give how many.

        The deletes are ordinary changes, so this belongs to the thread that writes. A call after the last value begins
        again with the first. A store without a time to live has nothing to sweep.
        """
        if self._expiry is None:
            return 0
        seen = list(islice(self._store.scan(self._swept), limit + 1))
        self._swept = seen[limit][0] if len(seen) > limit else None
        expired = [key for key, data in seen[:limit] if self._expiry.live(data) is None]
        for key in expired:
            self._store.delete(key)
        return len(expired)

    def __getitem__(self, key: K) -> V:
        """Give the value of *key*; KeyError when it is missing."""
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        """Set *key* to *value*, as ``put`` does."""
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        """Remove *key*; KeyError when it is missing. ``delete`` does not look, and is cheaper."""
        if key not in self:
            raise KeyError(key)
        self.delete(key)

    def __contains__(self, key: K) -> bool:
        """Say whether *key* has a value."""
        data = self._store.get(self._encode_key(key))
        return data is not None and (self._expiry is None or self._expiry.live(data) is not None)

    def __bool__(self) -> bool:
        """Give True: whether it is empty is not asked this way."""
        return True

    def __len__(self) -> NoReturn:
        """Refuse: nobody knows without a scan."""
        raise TypeError(f"store {self.name!r} has no len(): count a scan() if you must")

    def __iter__(self) -> NoReturn:
        """Refuse: iterating over everything should be seen in the code."""
        raise TypeError(f"store {self.name!r} is not iterable: use scan()")

    def __repr__(self) -> str:
        return f"<KeyValueStore {self.name!r}>"


def _decoded(
    items: Iterator[tuple[bytes, bytes]], decode_key: Callable[[bytes], Any], decode_value: Callable[[bytes], Any]
) -> Iterator[tuple[Any, Any]]:
    try:
        for key, data in items:
            yield decode_key(key), decode_value(data)
    finally:
        close_iterator(items)


def _encoder(store: str, side: str, serde: Serde) -> Callable[[Any], bytes]:
    """Give *serde*'s ``encode`` with errors that name the store, the side and the value."""
    encode, name = serde.encode, name_of(serde)

    def encoded(value: Any) -> bytes:
        if value is None:
            raise is_none(store, side)
        try:
            data = encode(value)
        except Exception as error:
            raise cannot_store(store, side, name, value, error) from error
        if data.__class__ is not bytes:
            raise TypeError(f"store {store!r}: serde {name!r} gave {shortened(data)} for a {side}, and not bytes")
        return data

    return encoded


def _decoder(store: str, side: str, serde: Serde) -> Callable[[bytes], Any]:
    """Give *serde*'s ``decode`` with errors that name the store and the side."""
    decode, name = serde.decode, name_of(serde)

    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except Exception as error:
            raise FormatError(
                f"store {store!r}: the stored {side} {shortened(data)} cannot be read by serde {name!r}, so another "
                f"one wrote it ({type(error).__name__}: {error}): configure that one"
            ) from error

    return decoded
