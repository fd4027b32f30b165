"""The engine's settings for a whole job."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attrs import field, frozen

from millpond.errors import ConfigError
from millpond.spi import Size
from millpond_rocksdb.options import MIB, problems
from millpond_rocksdb.sizes import parse_size


def _size(value: object) -> Size:
    try:
        return Size(parse_size(value))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _frozen_options(options: Mapping[str, object]) -> Mapping[str, object]:
    return MappingProxyType(dict(options))


@frozen(kw_only=True)
class RocksDBSettings:
    """
    What all RocksDB stores of a process share, and what they have in common.

    The first store that a process opens fixes ``cache_size`` and ``write_buffer_memory`` for its life; another job's
    differing values are logged and not followed.

    Attributes:
        cache_size: Bytes of the one block cache; indexes, filters and write buffers are charged to it. A number, or
            text such as ``"256MiB"``.
        write_buffer_memory: Bytes that the write buffers of all stores may take together, within ``cache_size``.
        options: RocksDB options for every store of the job; a store's own options win.
    """

    cache_size: Size = field(default=Size(192 * MIB), converter=_size)
    write_buffer_memory: Size = field(default=Size(64 * MIB), converter=_size)
    options: Mapping[str, object] = field(factory=dict, converter=_frozen_options)

    @cache_size.validator
    def _check_cache(self, _attribute: object, size: int) -> None:
        if size < MIB:
            raise ConfigError(f"cache_size is {size} bytes: at least 1 MiB is needed")

    @write_buffer_memory.validator
    def _check_buffers(self, _attribute: object, size: int) -> None:
        if not MIB <= size <= self.cache_size:
            raise ConfigError(
                f"write_buffer_memory is {size} bytes: it is a part of cache_size ({self.cache_size}), at least 1 MiB"
            )

    @options.validator
    def _check_options(self, _attribute: object, options: Mapping[str, object]) -> None:
        found = list(problems(options))
        if found:
            raise ConfigError(" ".join(found))
