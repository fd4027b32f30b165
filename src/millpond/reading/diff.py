"""What differs between two checkpoints of a task, by store: files as manifests tell, keys as their content tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Literal

from attrs import field, frozen

from millpond.blob.diff import StoreDiff, diff_stores
from millpond.blob.manifests import ManifestReader
from millpond.checkpoint import Checkpoint
from millpond.config import StoreConfig
from millpond.errors import StateCorruptError, StateNotFoundError
from millpond.formats.blob_manifest import BackupManifest
from millpond.formats.manifest import ImageManifest
from millpond.reading.job import JobReader
from millpond.reading.objects import data_place, is_object_store
from millpond.reading.stores import opened_image, relative_paths, restore_one

Change = Literal["added", "removed", "changed"]
LOCAL = "local"


@frozen
class KeyDiff:
    """
    How the keys of a store differ.

    Attributes:
        counts: How many keys were added, removed, changed, and are the same.
        first: The first keys that differ, in the order of their bytes, and how.
    """

    counts: Mapping[str, int]
    first: tuple[tuple[bytes, Change], ...]


@frozen
class Difference:
    """
    How one store differs.

    Attributes:
        store: Its name.
        place: Whose files were compared: a backend's section, ``local`` for images on this disk; None: nobody's.
        files: How the files differ; None if no place tells.
        keys: How the keys differ; None if that was not asked.
        reason: Why there is no *files*; empty otherwise.
    """

    store: str
    place: str | None
    files: StoreDiff | None
    keys: KeyDiff | None = None
    reason: str = ""


def diff(
    reader: JobReader, task: str, earlier: str | None, later: str | None, *, keys: bool = False, first: int = 10
) -> tuple[Checkpoint, Checkpoint, list[Difference]]:
    """
    Compare the checkpoint *earlier* of *task* with *later*, store by store; with *keys* both are restored.

    At most *first* keys that differ are given by name.

    Raises:
        StateNotFoundError, StateCorruptError: One of them, or what it needs, is not there or not whole.
    """
    reader.check_task(task)
    before, after = reader.checkpoint(task, earlier), reader.checkpoint(task, later)
    found = []
    with Places.opened(reader, task) as places:
        for store in reader.config.stores.values():
            if store.ephemeral:
                continue
            place, files, reason = _files(reader, places, store, before, after)
            told = _keys(reader, task, store, before, after, first) if keys else None
            found.append(Difference(store.name, place, files, told, reason))
    return before, after, found


@frozen
class Places:
    """The object stores of a task, each opened when it is first asked."""

    _reader: JobReader
    task: str
    _stack: ExitStack
    _manifests: dict[str, ManifestReader] = field(factory=dict, init=False)

    @classmethod
    @contextmanager
    def opened(cls, reader: JobReader, task: str) -> Iterator[Places]:
        """Give the places of *task*; all are closed after the block."""
        with ExitStack() as stack:
            yield cls(reader, task, stack)

    def manifests(self, section: str) -> ManifestReader:
        """Give what reads the manifests of the backend *section*."""
        found = self._manifests.get(section)
        if found is None:
            place = self._stack.enter_context(data_place(self._reader, self.task, section))
            found = self._manifests[section] = ManifestReader(place.store, place.prefix)
        return found


def _files(
    reader: JobReader, places: Places, store: StoreConfig, before: Checkpoint, after: Checkpoint
) -> tuple[str | None, StoreDiff | None, str]:
    """Compare the files of *store* in the first place that knows those of both."""
    trouble = "neither an object store nor this disk has both"
    for name in dict.fromkeys((*store.restore, *store.backup)):
        backend = reader.config.backends[name]
        held = [store.name in each.markers.get(backend.marker_key, {}) for each in (before, after)]
        if not is_object_store(backend) or not any(held):
            continue
        try:
            return name, _diff_in(places.manifests(name), backend.marker_key, store.name, before, after), ""
        except (StateNotFoundError, StateCorruptError) as error:
            trouble = str(error)
    return _local_files(reader, places.task, store, before, after) or (None, None, trouble)


def _diff_in(manifests: ManifestReader, key: str, store: str, before: Checkpoint, after: Checkpoint) -> StoreDiff:
    def read(checkpoint: Checkpoint) -> dict[str, BackupManifest]:
        marker = checkpoint.markers.get(key, {}).get(store)
        return {} if marker is None else {store: manifests.read(marker)}

    return diff_stores(read(before), read(after))[0]


def _local_files(
    reader: JobReader, task: str, store: StoreConfig, before: Checkpoint, after: Checkpoint
) -> tuple[str, StoreDiff, str] | None:
    """Compare the images on the local disk; None unless both are there."""
    live = reader.live(task)
    names = [each.images.get(store.name) for each in (before, after)]
    if any(name is None or name not in live.image_names(store.name) for name in names):
        return None
    try:
        old, new = (_by_content(live.manifest(store.name, str(name))) for name in names)
    except (StateNotFoundError, StateCorruptError):  # a live job dropped it meanwhile, as it may
        return None
    return LOCAL, _diff_files(store.name, old, new), ""


def _by_content(manifest: ImageManifest) -> dict[tuple[str, int], str]:
    return {(file.digest, file.size): file.name for file in manifest.files}


def _diff_files(store: str, old: Mapping[tuple[str, int], str], new: Mapping[tuple[str, int], str]) -> StoreDiff:
    added, removed, shared = new.keys() - old.keys(), old.keys() - new.keys(), old.keys() & new.keys()
    return StoreDiff(
        store=store,
        added=tuple(sorted(new[each] for each in added)),
        removed=tuple(sorted(old[each] for each in removed)),
        added_size=sum(size for _, size in added),
        removed_size=sum(size for _, size in removed),
        shared=len(shared),
        shared_size=sum(size for _, size in shared),
        size=sum(size for _, size in new),
        size_before=sum(size for _, size in old),
    )


# ------------------------------------------------------------------------------------------------------------ keys


def _keys(
    reader: JobReader, task: str, store: StoreConfig, before: Checkpoint, after: Checkpoint, most: int
) -> KeyDiff:
    with ExitStack() as stack:
        old = stack.enter_context(_entries(reader, task, store, before))
        new = stack.enter_context(_entries(reader, task, store, after))
        return compare(old, new, most)


@contextmanager
def _entries(
    reader: JobReader, task: str, store: StoreConfig, checkpoint: Checkpoint
) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    """Restore *store*, and give its entries as they are stored; none if *checkpoint* does not hold it."""
    with reader.workplace(task) as workplace, relative_paths(workplace):
        with reader.sources(task, store.restore, workplace) as sources:
            image = restore_one(reader, task, store, checkpoint.id, sources, workplace)
        if image is None:
            yield iter(())
            return
        with opened_image(image, store, workplace) as engine:
            entries = engine.scan(None, None, False)
            try:
                yield entries
            finally:
                entries.close()  # type: ignore[attr-defined]


@frozen
class _Tally:
    most: int
    counts: Counter[str] = field(factory=Counter)
    first: list[tuple[bytes, Change]] = field(factory=list)

    def note(self, key: bytes, change: Change) -> None:
        self.counts[change] += 1
        if len(self.first) < self.most:
            self.first.append((key, change))


def compare(old: Iterator[tuple[bytes, bytes]], new: Iterator[tuple[bytes, bytes]], most: int) -> KeyDiff:
    """Compare two runs of entries, each sorted by key, in one pass; name the first *most* keys that differ."""
    tally, a, b = _Tally(most), next(old, None), next(new, None)
    while a is not None or b is not None:
        if b is None or (a is not None and a[0] < b[0]):
            assert a is not None
            tally.note(a[0], "removed")
            a = next(old, None)
        elif a is None or b[0] < a[0]:
            tally.note(b[0], "added")
            b = next(new, None)
        else:
            if a[1] != b[1]:
                tally.note(b[0], "changed")
            else:
                tally.counts["same"] += 1
            a, b = next(old, None), next(new, None)
    return KeyDiff({name: tally.counts[name] for name in ("added", "removed", "changed", "same")}, tuple(tally.first))
