"""
An object store's objects as files below a trial's folder: what damages a file there damages an object.

A template whose backend lies outside of the trial's folder has nothing there that could be damaged. Its objects are
read into files once, and put back from them before each look. All of this happens in children: clients start threads.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from millpond.blob import BlobBackend, BlobStore
from millpond.blob.store import BytesBody
from millpond.config import JobConfig
from millpond.reading import JobReader
from millpond.testing.lab.places import Place

MIRROR = "bucket"
"""The folder below the trial's."""


def lies_outside(place: Place) -> bool:
    """Say whether the state of *place* is kept outside of the trial's folder."""
    return all("{root}" not in str(section) for section in place.sections["backends"].values())


def read_objects(config: JobConfig, root: Path) -> int:
    """Write each object of the job into a file below *root*; give how many there were."""
    with _store(config) as store:
        keys = [entry.key for entry in store.list("")]
        for key in keys:
            path = root / MIRROR / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.get(key))
    return len(keys)


def put_back(config: JobConfig, root: Path, changed: Collection[str]) -> int:
    """Make the objects those below *root*, where those of the files *changed* may differ; give how many were put."""
    wanted = {file.removeprefix(f"{MIRROR}/"): root / file for file in _files(root)}
    with _store(config) as store:
        there = {entry.key: entry.size for entry in store.list("")}
        store.delete(there.keys() - wanted.keys())
        stale = [key for key, path in wanted.items() if there.get(key) != path.stat().st_size]
        stale += [key for file in changed if (key := file.removeprefix(f"{MIRROR}/")) in wanted and key not in stale]
        for key in stale:
            store.put(key, BytesBody(wanted[key].read_bytes()))
    return len(stale)


def _files(root: Path) -> Iterator[str]:
    for folder, _, names in os.walk(root / MIRROR):
        yield from (str((Path(folder) / name).relative_to(root)) for name in names)


@contextmanager
def _store(config: JobConfig) -> Iterator[BlobStore]:
    """Open the store of the one backend."""
    (factory,) = (each.factory for each in config.backends.values() if isinstance(each.factory, BlobBackend))
    with JobReader(config) as reader, closing(factory.open_store(reader.context)) as store:
        yield store
