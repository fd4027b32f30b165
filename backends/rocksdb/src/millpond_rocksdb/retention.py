"""Which images may go: decided from names alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond_rocksdb.shelf import ImageName


def needed(retained: Sequence[Checkpoint], backend: str) -> Mapping[str, frozenset[str]]:
    """Give, for each store, the markers that *retained* checkpoints have of *backend*."""
    found: dict[str, set[str]] = {}
    for checkpoint in retained:
        for store, marker in checkpoint.markers.get(backend, {}).items():
            found.setdefault(store, set()).add(marker)
    return {store: frozenset(markers) for store, markers in found.items()}


def newest(retained: Sequence[Checkpoint]) -> CheckpointId | None:
    """Give the newest id; None if there is none."""
    return max((checkpoint.id for checkpoint in retained), default=None)


def removable(
    names: Iterable[ImageName], keep: Collection[str], last: CheckpointId | None, writer: str, *, others: bool
) -> list[ImageName]:
    """
    Give those of *names* that may go.

    A name of another writer may go only if *others* says so, and none may that is as new as *last*, the newest
    checkpoint that this claim knows: a later claim's ids are all greater, so its images are out of reach even of a
    writer that was replaced and has not noticed.

    Args:
        names: What is there.
        keep: The markers that retained checkpoints name.
        last: The newest retained checkpoint.
        writer: This claim's writer.
        others: The grace period after the claim is over.
    """
    if last is None:
        return []
    return [name for name in names if str(name) not in keep and name.id < last and (name.writer == writer or others)]
