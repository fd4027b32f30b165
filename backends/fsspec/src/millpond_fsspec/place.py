"""Where a file system is, and its open instances: made once, never across a fork, never with a cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

from attrs import define, field, frozen

from millpond_fsspec.hiding import Hiding

BYTES_PER_SECOND = 256 * 1024
"""What a link has to carry at least; below it a request is over time."""


@frozen
class Place:
    """
    A root in a file system.

    Attributes:
        shown: Its URL for messages.
        root: Its path in the file system's own words, without a slash at the end.
        cls: The implementation.
        options: What an instance is made with.
        hiding: Keeps the secrets among them out of messages.
        timeout_s: How long one request may take, in seconds, and a second more for each 256 KiB that it moves.
    """

    shown: str
    root: str
    cls: type[Any]
    options: Mapping[str, object]
    hiding: Hiding
    timeout_s: float

    def path(self, key: str) -> str:
        """Give the path of *key*; the root itself for an empty one."""
        return f"{self.root}/{key}" if key else self.root

    def key(self, path: str) -> str | None:
        """Give the key of *path*; None if it is not below the root."""
        head = f"{self.root}/"
        path = path if path.startswith("/") or not head.startswith("/") else f"/{path}"
        return path[len(head) :] if path.startswith(head) else None

    def where(self, key: str = "") -> str:
        """Give a text for messages."""
        return f"{self.shown}/{key}" if key else self.shown

    def deadline_s(self, size: int = 0) -> float:
        """Give the seconds within which *size* bytes must have moved."""
        return self.timeout_s + size / BYTES_PER_SECOND

    def make(self, **more: object) -> Any:
        """Make an instance that caches nothing and is shared with nobody."""
        fs = self.cls(skip_instance_cache=True, **{**self.options, **more})
        listings = getattr(fs, "dircache", None)
        if listings is not None and hasattr(listings, "use_listings_cache"):
            listings.use_listings_cache = False
        return fs


@define
class Instances:
    """
    The open instances of one file system.

    ``shared``: one for all threads; else each is used by one thread at a time, and as many are made as are needed at
    once. An instance whose use failed is not used again. After a fork the child makes its own.
    """

    _make: Callable[[], Any]
    _close: Callable[[Any], None]
    shared: bool
    _alive: Callable[[Any], bool] = lambda _: True
    _idle: list[Any] = field(factory=list, init=False)
    _lock: Lock = field(factory=Lock, init=False)
    _pid: int = field(factory=os.getpid, init=False)

    @contextmanager
    def use(self) -> Iterator[Any]:
        """Give an instance for the block."""
        if os.getpid() != self._pid:  # a lock that another thread of the parent held is never freed in the child
            self._idle, self._lock, self._pid = [], Lock(), os.getpid()
        instance = self._take()
        try:
            yield instance
        except BaseException:
            if not self.shared:
                self._drop(instance)
            raise
        if not self.shared:
            with self._lock:
                self._idle.append(instance)

    def close(self) -> None:
        """Close all that are idle; idempotent."""
        with self._lock:
            idle, self._idle = self._idle, []
        if os.getpid() == self._pid:
            for instance in idle:
                self._drop(instance)

    def _take(self) -> Any:
        """Give one that is open, or open one; a shared one is opened once."""
        with self._lock:
            if self.shared:
                if not self._idle:
                    self._idle.append(self._make())
                return self._idle[0]
            while self._idle:
                instance = self._idle.pop()
                if self._alive(instance):
                    return instance
                self._drop(instance)
        return self._make()

    def _drop(self, instance: Any) -> None:
        with suppress(Exception):  # it is broken, or its server is gone
            self._close(instance)
