"""What is accepted but may surprise: each remark is a sentence for the operator."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.config.draft import Draft


def remarks(draft: Draft) -> Iterator[str]:
    """Give everything about *draft* that is worth a word."""
    yield from _unused(draft)
    yield from _restored_from_elsewhere(draft)
    checkpoint = draft.checkpoint
    if checkpoint is not None and not checkpoint.factory.capabilities.durable:
        yield f"checkpoint.manager: the records of {checkpoint.manager} die with the process"
    if checkpoint is not None and draft.restore.on_damage == "older" and checkpoint.retain == 1:
        yield "restore.on_damage: there is no older checkpoint to go to while checkpoint.retain is 1"
    if draft.job.partitioner is not None and draft.job.tasks is None:
        yield "job.partitioner: has no effect, since job.tasks is not stated"


def _unused(draft: Draft) -> Iterator[str]:
    """Sections that no store uses."""
    used = {name for store in draft.stores.values() for name in (*store.backup, *store.restore)}
    for name in draft.backends.keys() - used:
        yield f"backends.{name}: no store uses it"
    for name in set(draft.engine_sections) - {store.engine for store in draft.stores.values()}:
        yield f"engines.{name}: no store uses it"


def _restored_from_elsewhere(draft: Draft) -> Iterator[str]:
    """Stores that may be restored from a backend that they are not backed up to: right only while moving from it."""
    for store in draft.stores.values():
        if others := [name for name in store.restore if name not in store.backup]:
            yield f"stores.{store.name}.restore: the store is not backed up to {', '.join(others)}"
