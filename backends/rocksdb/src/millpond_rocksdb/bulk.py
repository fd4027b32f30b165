"""Filling a database in bulk: sorted files made on the side and taken in whole."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from operator import lt
from pathlib import Path

from rocksdict import IngestExternalFileOptions, Options, Rdict, SstFileWriter

from millpond.spi import BATCH, Change
from millpond_rocksdb.driver_errors import translated

_RUN_RECORDS = 65_536
_RUN_BYTES = 16 << 20
_PASSED_RECORDS = 4 * _RUN_RECORDS
_PASSED_BYTES = 4 * _RUN_BYTES
_SORT = 16_384

Piece = Sequence[Change]
Run = Iterable[Iterable[Change]]


def load(
    database: Rdict, options: Options, directory: Path, records: Iterable[Change], lock: AbstractContextManager[object]
) -> None:
    """
    Put *records* into *database*, which lives in *directory*, in order: the later wins, None deletes.

    Each run of records becomes one sorted file. RocksDB gives a file that is taken in later the higher sequence number,
    so the order of the runs decides between them. *lock* is held while one is taken in.
    """
    with _side_folder(directory) as folder:
        for number, run in enumerate(Runs(records)):
            path = folder / f"{number:06}.sst"
            with translated(f"loading {directory} in bulk"):
                _write_file(path, options, run)
                with lock:
                    _take_in(database, path)


def _write_file(path: Path, options: Options, run: Run) -> None:
    writer = SstFileWriter(options)
    writer.open(str(path))
    for piece in run:
        for key, value in piece:
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


class Runs:
    """
    Cuts records into runs with strictly ascending keys, the last record of each key; each run comes in pieces.

    A run is collected, and sorted if it needs that. Behind one that needed it not, as a log's are whose commits were
    sorted, the next passes piece by piece: its records are still in the processor's cache when they are written. So a
    run has to be used up before the next one is asked for. Once.
    """

    def __init__(self, records: Iterable[Change]) -> None:
        """Cut *records*."""
        self._stream = iter(records)
        self._ahead: Piece = ()
        self._in_order = False

    def __iter__(self) -> Iterator[Run]:
        self._go_on()
        while self._ahead:
            if self._in_order and _is_ascending(_keys(self._ahead)):
                yield self._passed()
            else:
                run = self._collected()
                self._in_order = _is_ascending(_keys(run))
                yield (run,) if self._in_order else (_sorted(run),)

    def _go_on(self) -> None:
        self._ahead = list(islice(self._stream, BATCH))

    def _passed(self) -> Iterator[Piece]:
        """Give pieces as long as they are in order, and no more than a file may have."""
        count, size, last = 0, 0, None
        while self._ahead and count < _PASSED_RECORDS and size < _PASSED_BYTES:
            keys = _keys(self._ahead)
            self._in_order = _is_ascending(keys) and (last is None or last < keys[0])
            if not self._in_order:
                return
            count, size, last = count + len(keys), size + _size(self._ahead), keys[-1]
            yield self._ahead
            self._go_on()

    def _collected(self) -> list[Change]:
        """Give what fits into memory and is not too small to be worth a file."""
        run: list[Change] = []
        size = 0
        while self._ahead and len(run) < _RUN_RECORDS and size < _RUN_BYTES:
            run += self._ahead
            size += _size(self._ahead)
            self._go_on()
        return run


def _keys(piece: Piece) -> list[bytes]:
    return [key for key, _ in piece]


def _size(piece: Piece) -> int:
    return sum([len(key) + len(value or b"") for key, value in piece])


def _is_ascending(keys: list[bytes]) -> bool:
    return all(map(lt, keys, islice(keys, 1, None)))


def _sorted(run: list[Change]) -> Iterator[Change]:
    """
    Give the last record of each key, sorted.

    It is sorted piece by piece, and the sorted pieces once more, which only merges them: one large sort would hold the
    interpreter.
    """
    latest: dict[bytes, bytes | None] = {}
    for at in range(0, len(run), _SORT):
        latest.update(run[at : at + _SORT])
    keys = list(latest)
    pieces = [sorted(keys[at : at + _SORT]) for at in range(0, len(keys), _SORT)]
    keys = sorted(chain.from_iterable(pieces))
    return zip(keys, map(latest.__getitem__, keys), strict=True)
