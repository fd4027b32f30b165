"""Filling a database in bulk: sorted files made on the side and taken in whole."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice, pairwise
from pathlib import Path

from rocksdict import IngestExternalFileOptions, Options, Rdict, SstFileWriter

from millpond.spi import BATCH, Change
from millpond_rocksdb.driver_errors import translated

_RUN_RECORDS = 65_536
_RUN_BYTES = 16 << 20
_SORT = 16_384


def load(
    database: Rdict, options: Options, directory: Path, records: Iterable[Change], lock: AbstractContextManager[object]
) -> None:
    """
    Put *records* into *database*, which lives in *directory*, in order: the later wins, None deletes.

    Each run of records becomes one sorted file. RocksDB gives a file that is taken in later the higher sequence number,
    so the order of the runs decides between them. *lock* is held while one is taken in.
    """
    with _side_folder(directory) as folder:
        for number, run in enumerate(runs(records)):
            path = folder / f"{number:06}.sst"
            with translated(f"loading {directory} in bulk"):
                _write_file(path, options, ascending(run))
                with lock:
                    _take_in(database, path)


def _write_file(path: Path, options: Options, run: Iterable[Change]) -> None:
    writer = SstFileWriter(options)
    writer.open(str(path))
    for key, value in run:
        if value is None:
            del writer[key]
        else:
            writer[key] = value
    writer.finish()


def _take_in(database: Rdict, path: Path) -> None:
    options = IngestExternalFileOptions()
    options.set_move_files(True)
    database.ingest_external_file([str(path)], options)


@contextmanager
def _side_folder(directory: Path) -> Iterator[Path]:
    """Give a folder on the same file system, which RocksDB passes over; gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=".load-", dir=directory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def runs(records: Iterable[Change]) -> Iterator[list[Change]]:
    """Cut *records* into lists that fit into memory and are not too small to be worth a file."""
    stream = iter(records)
    run: list[Change] = []
    size = 0
    while batch := list(islice(stream, BATCH)):
        run += batch
        size += sum([len(key) for key, _ in batch]) + sum([len(value) for _, value in batch if value])
        if len(run) >= _RUN_RECORDS or size >= _RUN_BYTES:
            yield run
            run, size = [], 0
    if run:
        yield run


def ascending(run: list[Change]) -> Iterable[Change]:
    """
    Give *run* with strictly ascending keys, the last record of each key.

    A run that is in order already passes as it is. The others are sorted piece by piece, and the sorted pieces once
    more, which only merges them: one large sort would hold the interpreter.
    """
    if all(earlier[0] < later[0] for earlier, later in pairwise(run)):
        return run
    return _sorted(run)


def _sorted(run: list[Change]) -> Iterator[Change]:
    latest: dict[bytes, bytes | None] = {}
    for at in range(0, len(run), _SORT):
        latest.update(run[at : at + _SORT])
    keys = list(latest)
    pieces = [sorted(keys[at : at + _SORT]) for at in range(0, len(keys), _SORT)]
    keys = sorted(chain.from_iterable(pieces))
    return zip(keys, map(latest.__getitem__, keys), strict=True)
