"""How a RocksDB database is configured, recognised and opened through rocksdict."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    UniversalCompactionStopStyle,
    UniversalCompactOptions,
    WriteOptions,
)

from millpond.errors import StateCorruptError
from millpond_rocksdb.driver_errors import translated
from millpond_rocksdb.options import OPTIONS, Part
from millpond_rocksdb.shared import Shared

TRANSIENT = ("LOCK", "LOG", "LOG.old*", "*.dbtmp", ".load-*")
"""Files of a database's directory that hold no data."""

_CURRENT = re.compile(rb"MANIFEST-[0-9]+\n")
_SMALL = 4096


def make_options(values: Mapping[str, object], shared: Shared) -> Options:
    """Give the driver's options, for raw bytes, from *values* as ``options.resolve`` gives them."""
    options, table, universal = Options(raw_mode=True), BlockBasedOptions(), UniversalCompactOptions()
    for name, value in values.items():
        option = OPTIONS[name]
        if option.part is Part.UNIVERSAL:
            setattr(universal, option.setter, _stop_style(value) if name == "universal_stop_style" else value)
        elif name == "bloom_bits":
            _set_bloom(table, value)
        else:
            getattr(options if option.part is Part.DATABASE else table, option.setter)(_driver_value(name, value))
    table.set_block_cache(shared.cache)
    options.set_block_based_table_factory(table)
    options.set_universal_compaction_options(universal)
    options.set_write_buffer_manager(shared.manager)
    return options


def _set_bloom(table: BlockBasedOptions, bits: object) -> None:
    if isinstance(bits, float) and bits > 0:
        table.set_bloom_filter(bits, False)  # type: ignore[arg-type]  # the stub says int, RocksDB takes a double


def _driver_value(name: str, value: object) -> object:
    """Turn a name into the driver's value of that name."""
    if name == "compaction_style":
        return getattr(DBCompactionStyle, str(value))()
    if name == "index_type":
        return getattr(BlockBasedIndexType, str(value))()
    if name in ("compression", "bottommost_compression", "blob_compression_type"):
        return getattr(DBCompressionType, str(value))()
    return value


def _stop_style(value: object) -> object:
    return getattr(UniversalCompactionStopStyle, str(value))()


def without_log() -> WriteOptions:
    """Give write options that keep no write-ahead log: the live directory is never trusted after a restart."""
    options = WriteOptions()
    options.disable_wal = True  # type: ignore[method-assign, assignment]  # an attribute, whatever the stub says
    return options


def open_database(directory: Path, options: Options, *, read_only: bool) -> Rdict:
    """
    Open the database in *directory*; make it if the directory is empty and *read_only* is false.

    Raises:
        StateCorruptError: There is something in it that is no raw RocksDB database, or is damaged.
        TransientError: It is locked by somebody, or the disk cannot.
    """
    exists = _check(directory, read_only)
    options.create_if_missing(not exists and not read_only)
    access = AccessType.read_only(False) if read_only else AccessType.read_write()
    with translated(f"opening the RocksDB database in {directory}"):
        # given twice on purpose: an existing database takes column-family options from its OPTIONS file otherwise
        database = Rdict(str(directory), options, column_families={"default": options}, access_type=access)
        database.set_write_options(without_log())
        return database


def _check(directory: Path, read_only: bool) -> bool:
    """Say whether there is a database; raise if there is something that RocksDB would misread or write over."""
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    if all(any(fnmatch(name, pattern) for pattern in TRANSIENT) for name in names):
        if read_only:
            raise StateCorruptError(f"there is no RocksDB database in {directory}: it has no data files")
        return False
    _check_current(directory)
    _check_mode(directory)
    return True


def _check_current(directory: Path) -> None:
    """RocksDB would take a directory without CURRENT for a new one, and write over its files."""
    current = directory / "CURRENT"
    if not current.is_file():
        raise StateCorruptError(f"{directory} has files but no CURRENT: it is not a RocksDB database, or a damaged one")
    data = _read_small(current)
    if _CURRENT.fullmatch(data) is None:
        raise StateCorruptError(f"{current} is damaged: it should name a MANIFEST, and holds {data[:40]!r}")
    if not (directory / data.decode().strip()).is_file():
        raise StateCorruptError(f"{current} names {data.decode().strip()}, which is not there")


def _check_mode(directory: Path) -> None:
    """An encoded database opens in raw mode without complaint, and gives wrong bytes for every value."""
    path = directory / "rocksdict-config.json"
    if not path.is_file():
        return
    try:
        mode = json.loads(_read_small(path)).get("raw_mode")
    except (ValueError, AttributeError, RecursionError) as error:
        raise StateCorruptError(f"{path} is damaged: it should say how the keys are encoded") from error
    if mode is not True:
        raise StateCorruptError(
            f"{directory} holds an encoded rocksdict database (raw_mode is {mode!r}): only raw ones, whose keys and "
            "values are plain bytes, can be opened"
        )


def _read_small(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_SMALL)
