"""Backup manifests by their markers: read in few requests, checked, and kept while they are needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from threading import Lock

from attrs import define, field, frozen

from millpond.blob.reading import read_part
from millpond.blob.store import BlobStore
from millpond.errors import FormatError, StateCorruptError, StateNotFoundError
from millpond.formats import blob_manifest
from millpond.formats.blob_manifest import BackupManifest
from millpond.formats.blob_marker import BlobMarker
from millpond.formats.digest import algorithm_of, digest_bytes
from millpond.spi import Transfers

_LARGEST_READ = 8 << 20

Unreadable = StateNotFoundError | StateCorruptError


@frozen
class Manifests:
    """
    What reading several manifests gave, by marker.

    Attributes:
        found: Those that could be read.
        lost: Why the others could not.
    """

    found: Mapping[str, BackupManifest]
    lost: Mapping[str, Unreadable]


@define
class ManifestReader:
    """Reads the manifests of one task and backend. Any thread may use it."""

    store: BlobStore
    prefix: str
    _kept: dict[str, BackupManifest] = field(factory=dict, init=False)  # manifests never change
    _lock: Lock = field(factory=Lock, init=False)

    def read(self, marker: str) -> BackupManifest:
        """
        Give the manifest that *marker* names.

        Raises:
            StateNotFoundError: It is not there.
            StateCorruptError: It is not what was written, or this release cannot read it.
            TransientError: The store does not answer.
        """
        kept = self._kept.get(marker)
        if kept is not None:
            return kept
        place = parse(marker)
        return self._take(marker, place, read_part(self.store, self._key(place), place.start, place.length))

    def read_many(self, markers: Collection[str], transfers: Transfers) -> Manifests:
        """Read several manifests, those that lie side by side with one request; TransientError stops all."""
        found = {marker: kept for marker in markers if (kept := self._kept.get(marker)) is not None}
        places: dict[str, BlobMarker] = {}
        lost: dict[str, Unreadable] = {}
        for marker in set(markers) - found.keys():
            try:
                places[marker] = parse(marker)
            except (StateNotFoundError, StateCorruptError) as error:
                lost[marker] = error
        for outcome in transfers.map(lambda group: self._read_group(group, places, transfers), neighbours(places)):
            found.update(outcome.found)
            lost.update(outcome.lost)
        return Manifests(found, lost)

    def keep(self, marker: str, manifest: BackupManifest) -> None:
        """Remember a manifest that was just uploaded."""
        with self._lock:
            self._kept[marker] = manifest

    def forget_all_but(self, markers: Collection[str]) -> None:
        """Forget what nobody needs."""
        with self._lock:
            self._kept = {marker: kept for marker, kept in self._kept.items() if marker in markers}

    def _key(self, place: BlobMarker) -> str:
        return self.prefix + place.object

    def _read_group(self, group: Sequence[str], places: Mapping[str, BlobMarker], transfers: Transfers) -> Manifests:
        try:
            start, length = span([places[marker] for marker in group])
            with transfers.reserve(length):
                data = read_part(self.store, self._key(places[group[0]]), start, length)
        except (StateNotFoundError, StateCorruptError) as error:
            return Manifests({}, dict.fromkeys(group, error)) if len(group) == 1 else self._read_singly(group)
        found: dict[str, BackupManifest] = {}
        lost: dict[str, Unreadable] = {}
        for marker in group:
            place = places[marker]
            try:
                found[marker] = self._take(marker, place, data[place.start - start :][: place.length])
            except StateCorruptError as error:
                lost[marker] = error
        return Manifests(found, lost)

    def _read_singly(self, group: Sequence[str]) -> Manifests:
        found: dict[str, BackupManifest] = {}
        lost: dict[str, Unreadable] = {}
        for marker in group:
            try:
                found[marker] = self.read(marker)
            except (StateNotFoundError, StateCorruptError) as error:
                lost[marker] = error
        return Manifests(found, lost)

    def _take(self, marker: str, place: BlobMarker, data: bytes) -> BackupManifest:
        where = f"the manifest in {self.store.where(self._key(place))}"
        if digest_bytes(data, algorithm_of(place.digest)) != place.digest:
            raise StateCorruptError(f"{where} is damaged: it has not the digest that its marker says")
        try:
            manifest = blob_manifest.decode(data)
        except (FormatError, StateCorruptError) as error:
            raise StateCorruptError(f"{where} cannot be read: {error}") from error
        self.keep(marker, manifest)
        return manifest


def parse(marker: str) -> BlobMarker:
    """Read a marker; StateCorruptError if this release cannot: another backend may still have the state."""
    try:
        return BlobMarker.parse(marker)
    except FormatError as error:
        raise StateCorruptError(str(error)) from error


def neighbours(places: Mapping[str, BlobMarker]) -> list[list[str]]:
    """Group markers whose manifests lie side by side in one object, in groups of a bounded size."""
    groups: list[list[str]] = []
    for marker in sorted(places, key=lambda marker: (places[marker].object, places[marker].start)):
        place = places[marker]
        last = places[groups[-1][-1]] if groups else None
        joins = (
            last is not None
            and last.object == place.object
            and last.start + last.length == place.start
            and span([places[groups[-1][0]], place])[1] <= _LARGEST_READ
        )
        if joins:
            groups[-1].append(marker)
        else:
            groups.append([marker])
    return groups


def span(places: Iterable[BlobMarker]) -> tuple[int, int]:
    """Give where the first of *places* begins, and the bytes up to the end of the last."""
    listed = list(places)
    start = min(place.start for place in listed)
    return start, max(place.start + place.length for place in listed) - start
