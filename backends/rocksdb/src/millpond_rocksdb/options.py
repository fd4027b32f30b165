"""
RocksDB's options in RocksDB's own words: which there are, what they take, and what is wrong with given ones.

Nothing here loads the driver: an option knows the name of its setter, and :mod:`millpond_rocksdb.database` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from itertools import pairwise
from typing import TypeGuard

from attrs import frozen

from millpond_rocksdb.sizes import is_whole, parse_size

KIB = 1 << 10
MIB = 1 << 20

COMPRESSIONS = ("none", "snappy", "zlib", "bz2", "lz4", "lz4hc", "zstd")
COMPACTION_STYLES = ("level", "universal")
STOP_STYLES = ("similar", "total")
INDEX_TYPES = ("binary_search", "two_level_index_search")


class Part(Enum):
    """Which of the driver's objects an option is set on."""

    DATABASE = "database"
    TABLE = "table"
    UNIVERSAL = "universal"


@frozen
class Option:
    """
    One option.

    Attributes:
        name: As RocksDB writes it.
        parse: From what the configuration holds to what the setter takes; raises ValueError with the reason.
        expected: What it takes, in words.
        part: The driver's object that has it.
        setter: The method (of UNIVERSAL: the attribute) that sets it.
    """

    name: str
    parse: Callable[[object], object]
    expected: str
    part: Part
    setter: str


def _whole(least: int, most: int = (1 << 31) - 1, also: Sequence[int] = ()) -> Callable[[object], object]:
    def parse(value: object) -> int:
        if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
            value = int(value)
        if not is_whole(value):
            raise ValueError(f"expected a whole number, not {value!r}")
        if value not in also and not least <= value <= most:
            raise ValueError(f"{value} is out of range")
        return value

    return parse


def _size(least: int) -> Callable[[object], object]:
    def parse(value: object) -> int:
        size = parse_size(value)
        if size < least:
            raise ValueError(f"{value!r} is too small")
        return size

    return parse


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"expected true or false, not {value!r}")


def _number(least: float, most: float) -> Callable[[object], object]:
    def parse(value: object) -> float:
        if not _is_number(value):
            raise ValueError(f"expected a number, not {value!r}")
        number = float(value)
        if not least <= number <= most:
            raise ValueError(f"{value!r} is out of range")
        return number

    return parse


def _is_number(value: object) -> TypeGuard[int | float | str]:
    return isinstance(value, (int, float, str)) and not isinstance(value, bool)


def _choice(choices: Sequence[str]) -> Callable[[object], object]:
    def parse(value: object) -> str:
        if value == "fifo" and "universal" in choices:
            raise ValueError("'fifo' drops old records, and a state store may not lose any")
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{value!r} is none of them")
        return value

    return parse


def _database(name: str, parse: Callable[[object], object], expected: str, setter: str = "") -> Option:
    return Option(name, parse, expected, Part.DATABASE, setter or f"set_{name}")


def _table(name: str, parse: Callable[[object], object], expected: str, setter: str = "") -> Option:
    return Option(name, parse, expected, Part.TABLE, setter or f"set_{name}")


def _universal(name: str, parse: Callable[[object], object], expected: str) -> Option:
    return Option(f"universal_{name}", parse, expected, Part.UNIVERSAL, name)


def _sized(name: str, least: int = 0, setter: str = "") -> Option:
    return _database(name, _size(least), f"a size of at least {least} bytes" if least else "a size", setter)


def _counted(name: str, least: int, most: int = (1 << 31) - 1, setter: str = "") -> Option:
    limit = f"from {least} to {most}" if most < 1 << 30 else f"of at least {least}"
    return _database(name, _whole(least, most), f"a whole number {limit}", setter)


def _flagged(name: str, setter: str = "") -> Option:
    return _database(name, _flag, "true or false", setter)


_COMPRESSION = "one of " + ", ".join(COMPRESSIONS)

_ALL = (
    # memory and writing
    _sized("write_buffer_size", 64 * KIB),
    _counted("max_write_buffer_number", 2, 1000),
    _counted("min_write_buffer_number_to_merge", 1, 1000),
    _sized("arena_block_size", 4 * KIB),
    _database(
        "memtable_prefix_bloom_size_ratio",
        _number(0, 0.25),
        "a number from 0 to 0.25",
        "set_memtable_prefix_bloom_ratio",
    ),
    _flagged("memtable_whole_key_filtering"),
    # files and compaction
    _database("compression", _choice(COMPRESSIONS), _COMPRESSION, "set_compression_type"),
    _database("bottommost_compression", _choice(COMPRESSIONS), _COMPRESSION, "set_bottommost_compression_type"),
    _database("compaction_style", _choice(COMPACTION_STYLES), "level or universal"),
    _flagged("disable_auto_compactions"),
    _counted("level0_file_num_compaction_trigger", 1, setter="set_level_zero_file_num_compaction_trigger"),
    _counted("level0_slowdown_writes_trigger", 1, setter="set_level_zero_slowdown_writes_trigger"),
    _counted("level0_stop_writes_trigger", 1, setter="set_level_zero_stop_writes_trigger"),
    _counted("num_levels", 3, 20),
    _sized("target_file_size_base", 64 * KIB),
    _counted("target_file_size_multiplier", 1, 1000),
    _sized("max_bytes_for_level_base", 64 * KIB),
    _database("max_bytes_for_level_multiplier", _number(1, 1000), "a number from 1 to 1000"),
    _flagged("level_compaction_dynamic_level_bytes"),
    _sized("max_compaction_bytes", 64 * KIB),
    _sized("soft_pending_compaction_bytes_limit"),
    _sized("hard_pending_compaction_bytes_limit"),
    _flagged("optimize_filters_for_hits"),
    _universal("size_ratio", _whole(0, 10_000), "a whole number of percent"),
    _universal("min_merge_width", _whole(2, 10_000), "a whole number from 2 to 10000"),
    _universal("max_merge_width", _whole(2), "a whole number of at least 2"),
    _universal("max_size_amplification_percent", _whole(1, 100_000), "a whole number of percent"),
    _universal("compression_size_percent", _whole(0, 100, also=(-1,)), "a whole number from 0 to 100, or -1 for all"),
    _universal("stop_style", _choice(STOP_STYLES), "similar or total"),
    # large values in files of their own
    _flagged("enable_blob_files"),
    _sized("min_blob_size"),
    _sized("blob_file_size", 64 * KIB),
    _database("blob_compression_type", _choice(COMPRESSIONS), _COMPRESSION),
    _flagged("enable_blob_garbage_collection", "set_enable_blob_gc"),
    _database("blob_garbage_collection_age_cutoff", _number(0, 1), "a number from 0 to 1", "set_blob_gc_age_cutoff"),
    _database(
        "blob_garbage_collection_force_threshold", _number(0, 1), "a number from 0 to 1", "set_blob_gc_force_threshold"
    ),
    # blocks
    _table("block_size", _size(512), "a size of at least 512 bytes"),
    _table("bloom_bits", _number(0, 100), "bits a key, from 0 (no filter) to 100", "set_bloom_filter"),
    _table("block_restart_interval", _whole(1, 1024), "a whole number from 1 to 1024"),
    _table("metadata_block_size", _size(512), "a size of at least 512 bytes"),
    _table("format_version", _whole(5, 6), "5 or 6"),
    _table("cache_index_and_filter_blocks", _flag, "true or false"),
    _table("pin_l0_filter_and_index_blocks_in_cache", _flag, "true or false"),
    _table("pin_top_level_index_and_filter", _flag, "true or false"),
    _table("index_type", _choice(INDEX_TYPES), "binary_search or two_level_index_search"),
    _table("partition_filters", _flag, "true or false"),
    # the process and the machine
    _database("max_open_files", _whole(20, also=(-1,)), "a whole number of at least 20, or -1 for all"),
    _counted("table_cache_numshardbits", 0, 19, setter="set_table_cache_num_shard_bits"),
    _counted("max_file_opening_threads", 1, 1024),
    _counted("max_background_jobs", 1, 1024),
    _counted("max_subcompactions", 1, 1024),
    _sized("bytes_per_sync"),
    _sized("compaction_readahead_size"),
    _sized("writable_file_max_buffer_size", 4 * KIB),
    _flagged("use_direct_reads"),
    _flagged("use_direct_io_for_flush_and_compaction"),
    _flagged("skip_stats_update_on_db_open"),
    _counted("stats_dump_period_sec", 0),
    _counted("stats_persist_period_sec", 0),
    _counted("keep_log_file_num", 1),
    _sized("max_log_file_size"),
    _sized("max_manifest_file_size", 64 * KIB),
    _sized("manifest_preallocation_size"),
    _database("delete_obsolete_files_period_micros", _whole(0, 1 << 62), "a whole number of microseconds"),
)

OPTIONS: Mapping[str, Option] = {option.name: option for option in _ALL}
"""All options by name."""

DEFAULTS: Mapping[str, object] = {
    # small files and a late trigger: a commit that changed 1 % uploads about that, not 9 times as much, and the largest
    # of two dozen is less than a tenth of the state (benchmarks/object_sizes.py)
    "compaction_style": "universal",
    "level0_file_num_compaction_trigger": 12,
    "write_buffer_size": 16 * MIB,
    "target_file_size_base": 16 * MIB,
    "max_bytes_for_level_base": 64 * MIB,
    "compression": "lz4",
    "bloom_bits": 10,
    # what keeps a hundred open stores within one budget
    "cache_index_and_filter_blocks": True,
    "pin_l0_filter_and_index_blocks_in_cache": True,
    "arena_block_size": 256 * KIB,
    "max_open_files": 256,
    "table_cache_numshardbits": 2,
    "writable_file_max_buffer_size": 64 * KIB,
    "stats_dump_period_sec": 0,
    "stats_persist_period_sec": 0,
    # each image has a copy of it, and each store's is preallocated
    "max_manifest_file_size": 4 * MIB,
    "manifest_preallocation_size": 64 * KIB,
    "keep_log_file_num": 2,
    "max_log_file_size": 4 * MIB,
    # opening must not depend on how large the state is
    "skip_stats_update_on_db_open": True,
}
"""What is set unless the job or the store says otherwise."""


def resolve(*layers: Mapping[str, object]) -> dict[str, object]:
    """
    Give the value of every option that is set, later layers over earlier ones, all over :data:`DEFAULTS`.

    Raises:
        ValueError: Something is wrong with one; ``problems`` says it for all.
    """
    merged = {**DEFAULTS, **{name: value for layer in layers for name, value in layer.items()}}
    found = list(problems(merged))
    if found:
        raise ValueError(" ".join(found))
    return {name: OPTIONS[name].parse(value) for name, value in merged.items()}


def problems(values: Mapping[str, object]) -> Iterator[str]:
    """Give what is wrong with *values*, a sentence each."""
    good = dict(DEFAULTS)
    for name, value in values.items():
        option = OPTIONS.get(name)
        if option is None:
            yield _unknown(name)
            continue
        try:
            good[name] = option.parse(value)
        except ValueError as error:
            yield f"RocksDB option {name!r} takes {option.expected}: {error}."
    yield from _contradictions(good)


def _unknown(name: object) -> str:
    near = get_close_matches(str(name), OPTIONS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "the README of millpond-rocksdb lists them all."
    return f"Unknown RocksDB option {name!r}: {hint}"


def _contradictions(good: Mapping[str, object]) -> Iterator[str]:
    """RocksDB would change such values without a word."""
    rising = ("level0_file_num_compaction_trigger", "level0_slowdown_writes_trigger", "level0_stop_writes_trigger")
    given = [(name, value) for name in rising if isinstance(value := good.get(name), int)]
    for (low, least), (high, value) in pairwise(given):
        if least > value:
            yield f"RocksDB option {high!r} ({value}) may not be smaller than {low!r} ({least})."
    if good.get("partition_filters") and good.get("index_type") != "two_level_index_search":
        yield "RocksDB option 'partition_filters' needs 'index_type' to be two_level_index_search."
    if good.get("partition_filters") and good.get("bloom_bits") == 0:
        yield "RocksDB option 'partition_filters' needs 'bloom_bits' above 0."
