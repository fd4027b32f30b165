"""Jobs for the benchmarks: RocksDB, the local backend and the directory manager, below one folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocksdict import Rdict

import millpond
from millpond_rocksdb.database import make_options, open_database
from millpond_rocksdb.options import resolve
from millpond_rocksdb.settings import RocksDBSettings
from millpond_rocksdb.shared import shared

SOURCE = millpond.SystemStreamPartition("bench", "numbers", 0)


def config(
    root: Path,
    stores: Sequence[str],
    engine: str = "rocksdb",
    backend: str = "rocksdb-local",
    engines: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Give the configuration of a job with *stores* of *engine*, or of what *engines* says for one of them."""
    path = {"path": str(root / "backup")} if backend == "rocksdb-local" else {}
    chosen = dict.fromkeys(stores, engine) | dict(engines or {})
    return {
        "job": {"name": "bench", "state_dir": str(root / "state")},
        "checkpoint": {"manager": "directory", "path": str(root / "records"), "retain": 1},
        "backends": {"disk": {"type": backend, **path}},
        "stores": {
            name: {"engine": chosen[name], "key": "bytes", "value": "bytes", "ephemeral": backend == "memory"}
            for name in stores
        },
        "commit": {"interval": "1h"},
    }


def open_bare(path: Path) -> Rdict:
    """Open a bare database with the options that ours has."""
    settings = RocksDBSettings()
    return open_database(path, make_options(resolve(settings.options, {}), shared(settings)), read_only=False)


def new_folder(path: Path) -> Path:
    """Make a folder and give it."""
    path.mkdir(parents=True)
    return path


def value(size: int) -> bytes:
    """Give a value of which half is random."""
    return os.urandom(size // 2) + b"v" * (size - size // 2)


def count_files(root: Path) -> int:
    """Give the number of all files and folders below *root*."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(root))
