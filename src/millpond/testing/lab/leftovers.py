"""What no retained checkpoint needs and is there all the same, found by looking at every place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from millpond.blob import BlobBackend, BlobEntry, BlobStore
from millpond.blob.garbage import collect
from millpond.checkpoint import Checkpoint
from millpond.config import BackendConfig, JobConfig
from millpond.formats.blob_manifest import decode as decode_manifest
from millpond.formats.blob_marker import BlobMarker
from millpond.reading import JobReader
from millpond.records.folder import record_number
from millpond.spi import StateBackendAdmin, StoreSpec

_AT_ONCE = timedelta(seconds=-2)
"""However young: a store may tell the time of its objects in whole seconds, and its clock a second late."""

Retained = Mapping[str, Sequence[Checkpoint]]


def collect_garbage(config: JobConfig) -> int:
    """Remove what every backend finds that no checkpoint needs, however young; give how much."""
    with JobReader(config) as reader:
        retained = _retained(reader)
        admins = [_admin(reader, backend) for backend in config.backends.values()]
        return sum(collect(admin.garbage(retained, _AT_ONCE)) for admin in admins)


def leftovers(config: JobConfig) -> list[str]:
    """Give what is there and should not be: in the task's folder, in the backends, among the records."""
    with JobReader(config) as reader:
        retained = _retained(reader)
        found = [*_on_the_disk(config.state_dir), *_among_records(config)]
        most = config.checkpoint.retain + reader.manager.capabilities.tidy_every - 1
        found += [f"{task}: {len(kept)} checkpoints" for task, kept in retained.items() if len(kept) > most]
        for backend in config.backends.values():
            found += [each.name for each in _admin(reader, backend).garbage(retained, _AT_ONCE)]
            found += _in_backend(reader, backend, retained)
    return sorted(set(found))


def _retained(reader: JobReader) -> Retained:
    return {task: [listed.checkpoint for listed in reader.checkpoints(task)] for task in reader.tasks()}


def _admin(reader: JobReader, backend: BackendConfig) -> StateBackendAdmin:
    specs: list[StoreSpec] = [store.spec for store in reader.config.stores.values()]
    return backend.factory.admin(reader.context, specs)


def _on_the_disk(state_dir: Path) -> Iterator[str]:
    """Find what an owner that has ended should not have left on its disk."""
    for task in state_dir.glob("*/*"):
        yield from (str(path) for path in task.glob("live-*") if any(path.iterdir()))
        yield from (str(path) for path in task.glob("images/*/*.new"))
        yield from (str(shelf) for shelf in task.glob("images/*") if len(list(shelf.iterdir())) > 1)
        yield from (str(path) for name in ("scratch", "spill") for path in task.glob(f"{name}/**/*") if path.is_file())


def _among_records(config: JobConfig) -> Iterator[str]:
    """Find unfinished records, where records are files."""
    path = getattr(config.checkpoint.settings, "path", None)
    if isinstance(path, Path):
        yield from (str(file) for file in path.rglob("*") if file.is_file() and record_number(file.name) is None)


def _in_backend(reader: JobReader, backend: BackendConfig, retained: Retained) -> Iterator[str]:
    if isinstance(backend.factory, BlobBackend):
        yield from _objects(reader, backend.factory, backend.marker_key, retained)
    elif isinstance(path := getattr(backend.factory.config, "path", None), Path):
        yield from _images(path, backend.marker_key, retained)


def _images(path: Path, key: str, retained: Retained) -> Iterator[str]:
    """Find images that no marker names, and what is no image."""
    named = {marker for task in retained.values() for each in task for marker in each.markers.get(key, {}).values()}
    yield from (str(image) for image in path.glob("*/*/*/*/*") if image.name not in named)
    yield from (str(each) for each in path.iterdir() if each.name.startswith("."))


def _objects(reader: JobReader, factory: BlobBackend, key: str, retained: Retained) -> Iterator[str]:
    """Find objects that no manifest of a retained checkpoint names."""
    store = factory.open_store(reader.context)
    try:
        entries = list(store.list(""))
        needed = {each for checkpoints in retained.values() for each in objects_of(store, entries, checkpoints, key)}
        for entry in entries:
            if ("/data/" in entry.key and entry.key.rpartition("/")[2] not in needed) or (
                "/data/" not in entry.key and "/records/" not in entry.key
            ):
                yield entry.key
        yield from (f"{each.key} ({each.token})" for each in store.unfinished(""))
    finally:
        store.close()


def objects_of(
    store: BlobStore, entries: Sequence[BlobEntry], checkpoints: Iterable[Checkpoint], key: str
) -> Iterator[str]:
    """Give the names of all objects of *store* that *checkpoints* need of the backend *key*."""
    for marker in {text for each in checkpoints for text in each.markers.get(key, {}).values()}:
        place = BlobMarker.parse(marker)
        (holder,) = (entry.key for entry in entries if entry.key.endswith(f"/{place.object}"))
        manifest = decode_manifest(store.get(holder, place.start, place.length))
        yield from (place.object, *manifest.objects)
