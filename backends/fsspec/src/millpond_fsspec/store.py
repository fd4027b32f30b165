"""What all implementations share: keys and paths, errors, sizes that are verified."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar

from millpond.blob import BlobCapabilities, BlobEntry, BlobStore, Body
from millpond.errors import ConfigError, MillpondError, TransientError
from millpond_fsspec.failures import failure
from millpond_fsspec.place import Instances, Place

_BUGS = (AttributeError, NameError, AssertionError)
"""Nothing that an operator or a repetition could mend."""


class FsspecStore(BlobStore):
    """
    A root in a file system of fsspec. Any thread may call it, and a child process after a fork.

    A subclass knows one implementation: it writes whole objects or none, and says what it can promise.
    """

    capabilities: BlobCapabilities
    shared: ClassVar[bool] = True
    """One instance serves all threads."""
    permissions: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What each verb needs, in the words of those who grant it."""
    not_in_keys: ClassVar[frozenset[str]] = frozenset("~\\\0#?*[]{}:")
    """What an implementation would read as something else: a home, a pattern, a query; and what marks an upload."""

    def __init__(self, place: Place, capabilities: BlobCapabilities) -> None:
        """Keep what is given; nothing is opened yet."""
        self.place = place
        self.capabilities = capabilities
        self._instances = Instances(self._connect, self._disconnect, self.shared, self._is_alive)

    def put(self, key: str, body: Body, *, if_absent: bool = False) -> bool:
        """Make the object *key*, and see that it has the size of *body*."""
        self._check_key(key)
        with self._told("write", key), self._instances.use() as fs:
            return self._put(fs, key, body, if_absent=if_absent)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Give *length* bytes of the object *key* from *start* on."""
        self._check_key(key)
        if length is not None and length <= 0:
            length = 0
        with self._told("read", key), self._instances.use() as fs:
            return self._get(fs, key, start, length)

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobEntry]:
        """Give the objects below *prefix* after *after*, sorted by key, as they are now."""
        with self._told("list", prefix):
            yield from self._list(prefix, after)

    def delete(self, keys: Collection[str]) -> None:
        """Remove *keys*; missing ones are fine."""
        for key in keys:
            self._check_key(key)
        if keys:
            with self._told("remove", min(keys)), self._instances.use() as fs:
                self._delete(fs, keys)

    def now(self) -> int:
        """Give the store's clock in milliseconds since 1970."""
        with self._told("ask for the time of", ""), self._instances.use() as fs:
            return self._now(fs)

    def where(self, key: str = "") -> str:
        """Give the URL of *key*, without user, password and query."""
        return self.place.where(key)

    def close(self) -> None:
        """Let go of connections; idempotent."""
        self._instances.close()

    # What an implementation gives

    def _connect(self) -> Any:
        """Make an instance."""
        return self.place.make()

    def _disconnect(self, fs: Any) -> None:
        """Close an instance."""
        return None

    def _is_alive(self, fs: Any) -> bool:
        """Tell whether an idle instance can still be used; cheaply."""
        return True

    @abstractmethod
    def _put(self, fs: Any, key: str, body: Body, *, if_absent: bool) -> bool: ...

    @abstractmethod
    def _get(self, fs: Any, key: str, start: int, length: int | None) -> bytes: ...

    @abstractmethod
    def _list(self, prefix: str, after: str) -> Iterator[BlobEntry]: ...

    @abstractmethod
    def _delete(self, fs: Any, keys: Collection[str]) -> None: ...

    @abstractmethod
    def _now(self, fs: Any) -> int: ...

    # What an implementation uses

    def _check_key(self, key: str) -> None:
        """Refuse a key that could lead out of the root, or that the implementation would read as something else."""
        if not {"", ".", ".."}.isdisjoint(key.split("/")) or not self.not_in_keys.isdisjoint(key):
            raise ConfigError(f"{key[:200]!r} is no key of an object: it could lead out of its folder")

    @contextmanager
    def _told(self, verb: str, key: str) -> Iterator[None]:
        """Turn what the driver raises into one of our errors; chained, unless a traceback would show a secret."""
        try:
            yield
        except _BUGS:
            raise
        except Exception as found:
            refused = isinstance(found, ConfigError) and isinstance(found.__cause__, PermissionError)
            if isinstance(found, MillpondError) and not refused:
                raise
            error = found.__cause__ if refused and isinstance(found.__cause__, OSError) else found
            place = self.place
            needs = self.permissions.get(verb, f"the right to {verb} there")
            ours = failure(error, verb, place.where(key), place.hiding, needs=needs, root=place.shown)
            raise ours from (None if place.hiding.shows(error) else error)

    def _check_size(self, key: str, stored: int, wanted: int) -> None:
        if stored != wanted:
            raise TransientError(
                f"{self.where(key)}: {wanted:,} bytes were written and {stored:,} are there: they did not all arrive"
            )
