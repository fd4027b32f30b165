"""The block cache and the write-buffer budget that all RocksDB stores of a process share."""

from __future__ import annotations

import logging
import os
import threading
from operator import itemgetter
from typing import Protocol
from weakref import WeakSet

from attrs import field, frozen
from rocksdict import Cache, WriteBufferManager

from millpond.errors import MillpondError
from millpond_rocksdb.settings import RocksDBSettings

log = logging.getLogger("millpond.rocksdb")

_lock = threading.Lock()
_made: dict[int, Shared] = {}
"""By process: what a fork inherits is of no use to it."""


_EMPTY = 16 << 10
"""Bytes up to which a write buffer is not worth a file."""


class Member(Protocol):
    """A store that has a write buffer."""

    def buffered(self) -> int:
        """Give the bytes in its write buffer; 0 once it is closed."""
        ...

    def flush(self) -> None:
        """Turn its write buffer into a file; nothing once it is closed."""
        ...


@frozen(eq=False)
class Shared:
    """
    One cache, one budget of write buffers, and the databases that use them.

    RocksDB's own manager flushes the database that is written to, however small its write buffer is, and lets writers
    outrun the flushes. So :meth:`make_room` flushes the largest buffer, whosesoever it is, before the manager acts. The
    manager must never stall a writer: the driver writes with the interpreter held.

    Attributes:
        cache: Holds blocks, and is charged for write buffers.
        manager: Counts the write buffers of all stores.
        cache_size: In bytes.
        write_buffer_memory: In bytes.
    """

    cache: Cache
    manager: WriteBufferManager
    cache_size: int
    write_buffer_memory: int
    _members: WeakSet[Member] = field(factory=WeakSet)
    _flushing: threading.Lock = field(factory=threading.Lock)

    def add(self, member: Member) -> None:
        """Count *member* among those that may be flushed for the others, for as long as it lives."""
        with _lock:
            self._members.add(member)

    def make_room(self, writer: Member) -> None:
        """
        Flush the largest write buffers until there is room for *writer*; other threads run meanwhile.

        One that cannot be flushed is passed over: its owner learns it from its own next flush.

        Raises:
            TransientError: *writer* itself cannot be flushed, e.g. because the disk is full.
        """
        limit = self.write_buffer_memory * 3 // 4
        if self.manager.get_usage() <= limit:
            return
        with self._flushing:
            passed: set[Member] = set()
            while self.manager.get_usage() > limit and (largest := self._largest(passed)):
                try:
                    largest.flush()
                except MillpondError:
                    if largest is writer:
                        raise
                    passed.add(largest)

    def _largest(self, passed: set[Member]) -> Member | None:
        """Give the member with the largest write buffer that is worth a file; None if there is none."""
        with _lock:
            members = [member for member in self._members if member not in passed]
        size, largest = max(((member.buffered(), member) for member in members), key=itemgetter(0), default=(0, None))
        return largest if size > _EMPTY else None


def shared(settings: RocksDBSettings) -> Shared:
    """Give the process's cache and manager; the first call's *settings* size them. From any thread."""
    with _lock:
        made = _made.get(os.getpid())
        if made is None:
            made = _made[os.getpid()] = _make(settings)
        elif (made.cache_size, made.write_buffer_memory) != (settings.cache_size, settings.write_buffer_memory):
            log.warning(
                "this process already has a RocksDB cache of %d bytes with %d for write buffers: "
                "the job's %d and %d are not followed",
                made.cache_size,
                made.write_buffer_memory,
                settings.cache_size,
                settings.write_buffer_memory,
            )
        return made


def _make(settings: RocksDBSettings) -> Shared:
    cache = Cache(settings.cache_size)
    manager = WriteBufferManager.new_write_buffer_manager_with_cache(settings.write_buffer_memory, False, cache)
    return Shared(cache, manager, settings.cache_size, settings.write_buffer_memory)
