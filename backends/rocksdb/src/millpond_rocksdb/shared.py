"""The block cache and the write-buffer manager that all RocksDB stores of a process share."""

from __future__ import annotations

import logging
import os
import threading

from attrs import frozen
from rocksdict import Cache, WriteBufferManager

from millpond_rocksdb.settings import RocksDBSettings

log = logging.getLogger("millpond.rocksdb")

_lock = threading.Lock()
_made: dict[int, Shared] = {}
"""By process: what a fork inherits is of no use to it."""


@frozen
class Shared:
    """
    One cache and one manager.

    Attributes:
        cache: Holds blocks, and is charged for write buffers.
        manager: Flushes whichever store is written to, once all stores' write buffers are too large together.
        cache_size: In bytes.
        write_buffer_memory: In bytes.
    """

    cache: Cache
    manager: WriteBufferManager
    cache_size: int
    write_buffer_memory: int


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
    # never stall a writer: over the budget, the store that is written to is flushed
    manager = WriteBufferManager.new_write_buffer_manager_with_cache(settings.write_buffer_memory, False, cache)
    return Shared(cache, manager, settings.cache_size, settings.write_buffer_memory)
