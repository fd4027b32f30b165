"""Jobs for the benchmarks: RocksDB, the local backend and the directory manager, below one folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import millpond

SOURCE = millpond.SystemStreamPartition("bench", "numbers", 0)


def config(root: Path, stores: Sequence[str], engine: str = "rocksdb", backend: str = "rocksdb-local") -> dict[str, object]:
    """Give the configuration of a job with *stores*."""
    backup = {"type": backend, **({"path": str(root / "backup")} if backend == "rocksdb-local" else {})}
    return {
        "job": {"name": "bench", "state_dir": str(root / "state")},
        "checkpoint": {"manager": "directory", "path": str(root / "records"), "retain": 1},
        "backends": {"disk": backup},
        "stores": {name: {"engine": engine, "key": "bytes", "value": "bytes", "ephemeral": backend == "memory"} for name in stores},
        "commit": {"interval": "1h"},
    }


def value(size: int) -> bytes:
    """Give a value of which half is random."""
    return os.urandom(size // 2) + b"v" * (size - size // 2)


def count_files(root: Path) -> int:
    """Give the number of all files and folders below *root*."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(root))
