"""RocksDB's options: that each arrives, and that wrong ones are told."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.errors import ConfigError
from millpond.spi import StoreSpec
from millpond_rocksdb.engine import RocksDBEngine
from millpond_rocksdb.options import DEFAULTS, OPTIONS, problems, resolve
from millpond_rocksdb.settings import RocksDBSettings
from millpond_rocksdb.sizes import parse_size

MIB = 1 << 20

# option: what is given, and what RocksDB writes of it into its OPTIONS file
ARRIVES = {
    "write_buffer_size": ("3MiB", f"write_buffer_size={3 * MIB}"),
    "max_write_buffer_number": (5, "max_write_buffer_number=5"),
    "min_write_buffer_number_to_merge": (2, "min_write_buffer_number_to_merge=2"),
    "arena_block_size": ("128KiB", "arena_block_size=131072"),
    "memtable_prefix_bloom_size_ratio": (0.125, "memtable_prefix_bloom_size_ratio=0.125000"),
    "memtable_whole_key_filtering": (True, "memtable_whole_key_filtering=true"),
    "compression": ("zstd", "compression=kZSTD"),
    "bottommost_compression": ("zlib", "bottommost_compression=kZlibCompression"),
    "compaction_style": ("level", "compaction_style=kCompactionStyleLevel"),
    "disable_auto_compactions": (True, "disable_auto_compactions=true"),
    "level0_file_num_compaction_trigger": (11, "level0_file_num_compaction_trigger=11"),
    "level0_slowdown_writes_trigger": (33, "level0_slowdown_writes_trigger=33"),
    "level0_stop_writes_trigger": (44, "level0_stop_writes_trigger=44"),
    "num_levels": (5, "num_levels=5"),
    "target_file_size_base": (5 * MIB, f"target_file_size_base={5 * MIB}"),
    "target_file_size_multiplier": (3, "target_file_size_multiplier=3"),
    "max_bytes_for_level_base": ("40MiB", f"max_bytes_for_level_base={40 * MIB}"),
    "max_bytes_for_level_multiplier": (7, "max_bytes_for_level_multiplier=7.000000"),
    "level_compaction_dynamic_level_bytes": (False, "level_compaction_dynamic_level_bytes=false"),
    "max_compaction_bytes": ("111MiB", f"max_compaction_bytes={111 * MIB}"),
    "soft_pending_compaction_bytes_limit": ("5GiB", f"soft_pending_compaction_bytes_limit={5 << 30}"),
    "hard_pending_compaction_bytes_limit": ("9GiB", f"hard_pending_compaction_bytes_limit={9 << 30}"),
    "optimize_filters_for_hits": (True, "optimize_filters_for_hits=true"),
    "universal_size_ratio": (13, "size_ratio=13;"),
    "universal_min_merge_width": (3, "min_merge_width=3;"),
    "universal_max_merge_width": (17, "max_merge_width=17;"),
    "universal_max_size_amplification_percent": (77, "max_size_amplification_percent=77;"),
    "universal_compression_size_percent": (66, "compression_size_percent=66;"),
    "universal_stop_style": ("similar", "stop_style=kCompactionStopStyleSimilarSize;"),
    "enable_blob_files": (True, "enable_blob_files=true"),
    "min_blob_size": ("2KiB", "min_blob_size=2048"),
    "blob_file_size": ("32MiB", f"blob_file_size={32 * MIB}"),
    "blob_compression_type": ("lz4", "blob_compression_type=kLZ4Compression"),
    "enable_blob_garbage_collection": (True, "enable_blob_garbage_collection=true"),
    "blob_garbage_collection_age_cutoff": (0.5, "blob_garbage_collection_age_cutoff=0.500000"),
    "blob_garbage_collection_force_threshold": (0.75, "blob_garbage_collection_force_threshold=0.750000"),
    "block_size": ("16KiB", "block_size=16384"),
    "bloom_bits": (0, "filter_policy=nullptr"),
    "block_restart_interval": (8, "block_restart_interval=8"),
    "metadata_block_size": ("8KiB", "metadata_block_size=8192"),
    "format_version": (5, "format_version=5"),
    "cache_index_and_filter_blocks": (False, "cache_index_and_filter_blocks=false"),
    "pin_l0_filter_and_index_blocks_in_cache": (False, "pin_l0_filter_and_index_blocks_in_cache=false"),
    "pin_top_level_index_and_filter": (False, "pin_top_level_index_and_filter=false"),
    "index_type": ("two_level_index_search", "index_type=kTwoLevelIndexSearch"),
    "partition_filters": (True, "partition_filters=true"),
    "max_open_files": (77, "max_open_files=77"),
    "table_cache_numshardbits": (3, "table_cache_numshardbits=3"),
    "max_file_opening_threads": (3, "max_file_opening_threads=3"),
    "max_background_jobs": (5, "max_background_jobs=5"),
    "max_subcompactions": (3, "max_subcompactions=3"),
    "bytes_per_sync": ("1MiB", f"bytes_per_sync={MIB}"),
    "compaction_readahead_size": ("4MiB", f"compaction_readahead_size={4 * MIB}"),
    "writable_file_max_buffer_size": ("512KiB", "writable_file_max_buffer_size=524288"),
    "use_direct_reads": (True, "use_direct_reads=true"),
    "use_direct_io_for_flush_and_compaction": (True, "use_direct_io_for_flush_and_compaction=true"),
    "skip_stats_update_on_db_open": (False, "skip_stats_update_on_db_open=false"),
    "stats_dump_period_sec": (99, "stats_dump_period_sec=99"),
    "stats_persist_period_sec": (98, "stats_persist_period_sec=98"),
    "keep_log_file_num": (7, "keep_log_file_num=7"),
    "max_log_file_size": ("3MiB", f"max_log_file_size={3 * MIB}"),
    "max_manifest_file_size": ("2MiB", f"max_manifest_file_size={2 * MIB}"),
    "manifest_preallocation_size": ("32KiB", "manifest_preallocation_size=32768"),
    "delete_obsolete_files_period_micros": (5_000_000, "delete_obsolete_files_period_micros=5000000"),
}

# what another option has to be for RocksDB to keep the value
NEEDS = {
    "memtable_prefix_bloom_size_ratio": {"memtable_whole_key_filtering": True},
    "min_write_buffer_number_to_merge": {"max_write_buffer_number": 4},
    "partition_filters": {"index_type": "two_level_index_search"},
    "level_compaction_dynamic_level_bytes": {"compaction_style": "level"},
}


def options_file(directory):
    newest = max(directory.glob("OPTIONS-*"), key=lambda path: int(path.name.split("-")[1]))
    return newest.read_text()


def test_each_option_has_a_case():
    """No option is in the table without a proof that it arrives."""
    assert set(ARRIVES) == set(OPTIONS)


@pytest.mark.parametrize("name", ARRIVES)
@pytest.mark.parametrize("layer", ["store", "job"])
def test_an_option_arrives_also_at_a_database_that_exists(tmp_path, name, layer):
    """RocksDB's own record shows the value after the reopening of a database that was made without it."""
    RocksDBEngine.open(tmp_path, StoreSpec("s", "rocksdb", NEEDS.get(name, {}))).close()
    given, written = ARRIVES[name]
    pattern = re.compile(r"(^\s*|[{;])" + re.escape(written) + r"(?![0-9.])", re.MULTILINE)
    options = {**NEEDS.get(name, {}), name: given}
    if layer == "store":
        spec = StoreSpec("s", "rocksdb", options)
    else:
        spec = StoreSpec("s", "rocksdb", {}, RocksDBSettings(options=options))
    assert pattern.search(options_file(tmp_path)) is None or given == DEFAULTS.get(name), "the case proves nothing"
    RocksDBEngine.open(tmp_path, spec).close()
    assert pattern.search(options_file(tmp_path)), options_file(tmp_path)


def test_the_defaults_arrive(tmp_path):
    """A store without options has small files, a late trigger, lz4, a bloom filter, and is raw."""
    RocksDBEngine.open(tmp_path, StoreSpec("s", "rocksdb")).close()
    text = options_file(tmp_path)
    for written in (
        "compaction_style=kCompactionStyleUniversal",
        "level0_file_num_compaction_trigger=12",
        f"write_buffer_size={16 * MIB}",
        f"target_file_size_base={16 * MIB}",
        "compression=kLZ4Compression",
        "filter_policy=bloomfilter",
        "max_open_files=256",
    ):
        assert written in text
    assert '"raw_mode":true' in (tmp_path / "rocksdict-config.json").read_text()


def test_a_store_s_option_wins_over_the_job_s(tmp_path):
    """Both layers are followed, the store's last."""
    job = RocksDBSettings(options={"block_size": "8KiB", "keep_log_file_num": 9})
    RocksDBEngine.open(tmp_path, StoreSpec("s", "rocksdb", {"block_size": "32KiB"}, job)).close()
    assert "block_size=32768" in options_file(tmp_path)
    assert "keep_log_file_num=9" in options_file(tmp_path)


def test_the_filter_and_the_cache_serve_a_reopened_database(tmp_path):
    """After a reopening, new files still have a filter: a miss reads no block."""
    options = {"bloom_bits": 20}
    engine = RocksDBEngine.open(tmp_path / "live", StoreSpec("s", "rocksdb", options))
    engine.close()
    engine = RocksDBEngine.open(tmp_path / "live", StoreSpec("s", "rocksdb", options))
    engine.apply([(b"%06d" % i, b"v") for i in range(0, 1000, 2)])
    engine.checkpoint(tmp_path / "image")
    with_filter = engine._database.property_value("rocksdb.aggregated-table-properties")
    assert int(re.search(r"filter block size=(\d+)", with_filter)[1]) > 500 * 20 / 8
    engine.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"write_bufer_size": 1}, "Unknown RocksDB option 'write_bufer_size': did you mean 'write_buffer_size'?"),
        ({"zzz": 1}, "Unknown RocksDB option 'zzz': the README"),
        ({"write_buffer_size": "lots"}, "'write_buffer_size' takes a size"),
        ({"write_buffer_size": "1KiB"}, "too small"),
        ({"write_buffer_size": -1}, "out of range"),
        ({"write_buffer_size": True}, "not True"),
        ({"write_buffer_size": 1.5}, "not 1.5"),
        ({"write_buffer_size": "9" * 40}, "expected a size"),
        ({"compression": "lz5"}, "one of none, snappy"),
        ({"compaction_style": "fifo"}, "drops old records"),
        ({"compaction_style": 3}, "level or universal"),
        ({"max_open_files": 5}, "at least 20, or -1"),
        ({"max_open_files": "many"}, "whole number"),
        ({"bloom_bits": "nan"}, "out of range"),
        ({"bloom_bits": None}, "expected a number"),
        ({"use_direct_reads": "yes"}, "true or false"),
        ({"level0_file_num_compaction_trigger": 30, "level0_slowdown_writes_trigger": 20}, "may not be smaller"),
        ({"level0_slowdown_writes_trigger": 4}, "may not be smaller"),
        ({"partition_filters": True}, "needs 'index_type'"),
        ({"partition_filters": True, "index_type": "two_level_index_search", "bloom_bits": 0}, "needs 'bloom_bits'"),
        ({"index_type": "hash_search"}, "binary_search or two_level_index_search"),
    ],
)
def test_a_wrong_option_is_a_sentence_and_a_refusal(tmp_path, options, said):
    """What is wrong is told by validate, all at once, and the store does not open with it."""
    spec = StoreSpec("delays", "rocksdb", options)
    sentences = list(RocksDBEngine.validate(spec))
    assert any(said in sentence for sentence in sentences), sentences
    assert all(sentence[-1] in ".?" for sentence in sentences)
    with pytest.raises(ConfigError, match="delays"):
        RocksDBEngine.open(tmp_path / "live", spec)
    assert not (tmp_path / "live").exists()


def test_all_that_is_wrong_is_told_at_once():
    """Three wrong options are three sentences."""
    assert len(list(problems({"a": 1, "block_size": "x", "compression": "y"}))) == 3


def test_numbers_may_come_as_text():
    """Flat configuration files have text only."""
    values = resolve({"num_levels": "5", "bloom_bits": "9.5", "use_direct_reads": "true", "max_open_files": "-1"})
    assert (values["num_levels"], values["bloom_bits"], values["use_direct_reads"]) == (5, 9.5, True)
    assert values["max_open_files"] == -1


@pytest.mark.parametrize(
    ("text", "size"),
    [(0, 0), ("64MiB", 64 << 20), ("64 mib", 64 << 20), ("2K", 2048), ("1g", 1 << 30), ("17", 17), (" 8 B ", 8)],
)
def test_sizes(text, size):
    """A size is a number of bytes with or without a unit."""
    assert parse_size(text) == size


@pytest.mark.parametrize("given", [-1, "-1", "1.5MiB", "MiB", "", "1TB", "0x10", "\u0661", None, True, 1.0, b"1"])
def test_what_is_no_size(given):
    """Anything else is refused."""
    with pytest.raises(ValueError, match="size"):
        parse_size(given)


@pytest.mark.parametrize(
    "given",
    [
        {"cache_size": "lots"},
        {"cache_size": 100},
        {"cache_size": "8MiB", "write_buffer_memory": "9MiB"},
        {"write_buffer_memory": 0},
        {"options": {"nope": 1}},
    ],
)
def test_wrong_settings_are_refused(given):
    """The job's settings are checked when they are made."""
    with pytest.raises(ConfigError):
        RocksDBSettings(**given)


def test_the_first_opening_of_a_process_fixes_the_budget(tmp_path, caplog):
    """Stores of other settings share the same cache and manager, and a warning says so."""
    from millpond_rocksdb.shared import shared

    first = shared(RocksDBSettings())
    with caplog.at_level(logging.WARNING, "millpond.rocksdb"):
        assert shared(RocksDBSettings()) is first
        assert not caplog.records
        other = RocksDBSettings(cache_size="500MiB", write_buffer_memory="100MiB")
        assert shared(other) is first
    assert "not followed" in caplog.text


def test_a_hundred_stores_stay_within_one_budget(tmp_path):
    """A process that fills 100 stores needs no more memory than the cache, a quarter of it, and a base per store."""
    code = f"""
import gc, re
from pathlib import Path
from millpond.spi import StoreSpec
from millpond_rocksdb.engine import RocksDBEngine
from millpond_rocksdb.settings import RocksDBSettings
def resident():
    gc.collect()
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
settings = RocksDBSettings(cache_size="64MiB", write_buffer_memory="32MiB")
RocksDBEngine.open(Path({str(tmp_path)!r}, "warm"), StoreSpec("warm", "rocksdb", {{}}, settings)).close()
before = resident()
stores = [
    RocksDBEngine.open(Path({str(tmp_path)!r}, name), StoreSpec(name, "rocksdb", {{}}, settings))
    for name in map(str, range(100))
]
for at in range(0, 10_000, 1000):
    for store in stores:
        store.apply([(b"%06d" % i, b"x" * 100) for i in range(at, at + 1000)])
print(resident() - before)
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=240)
    assert int(said.stdout) <= (64 << 20) * 1.25, said.stdout


def test_the_readme_lists_every_option_with_what_it_takes():
    """The table of the README is the table of the code."""
    readme = Path(__file__).parents[1].joinpath("README.md").read_text().split("\n## Options\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", readme, re.MULTILINE))
    assert rows == {name: option.expected for name, option in OPTIONS.items()}
