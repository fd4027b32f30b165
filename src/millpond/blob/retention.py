"""Which objects are needed, and which may go: set arithmetic over manifests and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from attrs import define, field

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.errors import FormatError
from millpond.formats.blob_manifest import BackupManifest
from millpond.formats.blob_marker import BlobMarker, ObjectName


def markers_of(retained: Iterable[Checkpoint], backend: str) -> dict[str, CheckpointId]:
    """Give each marker that *retained* checkpoints have of *backend*, and the newest of those that have it."""
    newest: dict[str, CheckpointId] = {}
    for checkpoint in retained:
        for marker in checkpoint.markers.get(backend, {}).values():
            newest[marker] = max(checkpoint.id, newest.get(marker, checkpoint.id))
    return newest


def needed_by(marker: str, manifest: BackupManifest) -> frozenset[str]:
    """Give every object without which *marker* cannot be restored."""
    return frozenset({BlobMarker.parse(marker).object, *manifest.objects})


def live_bytes(manifests: Iterable[BackupManifest]) -> Mapping[str, int]:
    """Give how many bytes of each object some manifest needs; the same bytes once."""
    pieces: set[tuple[str, int, int]] = set()
    for manifest in manifests:
        pieces.update((file.object, file.start, file.size) for file in manifest.files)
        pieces.update((link.object, link.start, link.size) for link in manifest.changes)
    live: Counter[str] = Counter()
    for name, _, size in pieces:
        live[name] += size
    return live


def earlier(names: Iterable[str], needed: Collection[str], epoch: int, after: CheckpointId | None) -> list[str]:
    """
    Give those of *names* that earlier epochs left and nobody needs.

    Args:
        names: What a listing shows.
        needed: What retained checkpoints need.
        epoch: This claim's: objects of it and of later ones are left alone.
        after: Objects of this commit and of those before it stay: a checkpoint that cannot be read may need them.
    """
    return [
        text
        for text in names
        if (name := ObjectName.parse(text)) is not None
        and text not in needed
        and name.epoch < epoch
        and (after is None or name.id > after)
    ]


@define
class Superseded:
    """
    What this writer knows that was once needed, and since when it no longer is. One thread at a time.

    Attributes:
        known: Objects that this writer uploaded, or that a checkpoint which it saw retained needed.
        since: Those of them that nobody needs, and the monotonic second in which that was first seen.
    """

    known: set[str] = field(factory=set)
    since: dict[str, float] = field(factory=dict)

    def note(self, needed: Collection[str], now_s: float) -> None:
        """Take in what is needed now."""
        self.known.update(needed)
        for name in self.known.difference(needed):
            self.since.setdefault(name, now_s)
        for name in self.since.keys() & set(needed):
            del self.since[name]

    def due(self, now_s: float, grace_s: float, after: CheckpointId | None) -> list[str]:
        """Give what has been unneeded for the grace period, and is no object of *after* or of a commit before it."""
        return [
            name
            for name, since in self.since.items()
            if now_s - since >= grace_s and (after is None or _id(name) > after)
        ]

    def forget(self, names: Iterable[str]) -> None:
        """Take out what was removed."""
        for name in names:
            self.known.discard(name)
            self.since.pop(name, None)


def _id(name: str) -> CheckpointId:
    parsed = ObjectName.parse(name)
    if parsed is None:
        raise AssertionError("only names that were parsed or made are known")
    return parsed.id


def in_batches(names: Sequence[str], size: int) -> list[Sequence[str]]:
    """Cut *names* into lists of at most *size*."""
    return [names[at : at + size] for at in range(0, len(names), size)]


def object_of(marker: str) -> str | None:
    """Give the object that a marker names; None if this release cannot read it."""
    try:
        return BlobMarker.parse(marker).object
    except FormatError:
        return None
