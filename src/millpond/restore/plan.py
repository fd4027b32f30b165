"""Where each store may come from: a function from a checkpoint, the configuration and the local images to a plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from attrs import field, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Layout, Markers, SystemStreamPartition
from millpond.errors import ConfigError, FormatError, StateNotFoundError
from millpond.formats.changelog_marker import changelog_offsets


@frozen
class StoreWants:
    """
    What the configuration says of a store's restore.

    Attributes:
        name: The store.
        restore: Pairs of a backend's name and its marker key, in the order in which they are asked.
        ephemeral: It begins empty where no backend still holds it.
    """

    name: str
    restore: tuple[tuple[str, str], ...]
    ephemeral: bool = False


@frozen
class StorePlan:
    """
    Where one store comes from.

    Attributes:
        store: Its name.
        image: The local image to try first; None: there is none.
        sources: Pairs of a backend's name and its marker, to be asked in order.
        new: It begins empty: no checkpoint ever held it.
    """

    store: str
    image: str | None = None
    sources: tuple[tuple[str, str], ...] = ()
    new: bool = False

    def __str__(self) -> str:
        if self.new:
            return "new"
        return ", ".join((["local"] if self.image else []) + [name for name, _ in self.sources])


@frozen
class RestorePlan:
    """
    Where all stores of a task come from.

    Attributes:
        checkpoint: What they will be; None: the task has never committed, and all are empty.
        stores: A plan for each configured store.
        ignored: Pairs of a store that is not configured and the marker key that has it.
    """

    checkpoint: Checkpoint | None
    stores: tuple[StorePlan, ...]
    ignored: tuple[tuple[str, str], ...] = field(default=())


def plan_restore(
    checkpoint: Checkpoint | None,
    stores: Sequence[StoreWants],
    local: Mapping[str, Collection[str]],
    backends: Mapping[str, str],
) -> RestorePlan:
    """
    Plan the restore of *checkpoint*.

    Args:
        checkpoint: The checkpoint, its V1 entries already turned into markers; None: proven absent.
        stores: The configured stores.
        local: Store to the names of the complete images on the local disk.
        backends: Marker key to the name of the backend in the configuration.

    Raises:
        ConfigError: Only backends that the store's restore list does not name hold it.
        StateNotFoundError: No backend holds it, and it is not provably new.
    """
    if checkpoint is None:
        return RestorePlan(None, tuple(StorePlan(store.name, new=True) for store in stores))
    names = {store.name for store in stores}
    ignored = tuple(
        (store, key) for key, markers in checkpoint.markers.items() for store in markers if store not in names
    )
    plans = tuple(_plan_store(checkpoint, store, local.get(store.name, ()), backends) for store in stores)
    return RestorePlan(checkpoint, plans, ignored)


def _plan_store(
    checkpoint: Checkpoint, store: StoreWants, images: Collection[str], backends: Mapping[str, str]
) -> StorePlan:
    sources = tuple(
        (name, checkpoint.markers[key][store.name])
        for name, key in store.restore
        if store.name in checkpoint.markers.get(key, {})
    )
    if not sources and store.ephemeral:
        return StorePlan(store.name, new=True)
    if not sources:
        _refuse_unless_new(checkpoint, store, backends)
        return StorePlan(store.name, new=True)
    image = checkpoint.images.get(store.name)
    return StorePlan(store.name, image if image in images else None, sources)


def _refuse_unless_new(checkpoint: Checkpoint, store: StoreWants, backends: Mapping[str, str]) -> None:
    holders = sorted(key for key, markers in checkpoint.markers.items() if store.name in markers)
    known = [backends[key] for key in holders if key in backends]
    if known:
        raise ConfigError(
            f"store {store.name!r}: checkpoint {checkpoint.id} holds it in {_listed(known)}, which its restore list "
            f"({_listed([name for name, _ in store.restore]) or 'empty'}) does not name; add one of them to stores."
            f"{store.name}.restore"
        )
    if holders:
        raise ConfigError(
            f"store {store.name!r}: checkpoint {checkpoint.id} holds it under {_listed(holders)}, and no backend of "
            f"that name is configured; was the section renamed? Configured: {_listed(sorted(backends.values()))}"
        )
    if checkpoint.claim is None or store.name in checkpoint.images:
        raise StateNotFoundError(
            f"store {store.name!r}: checkpoint {checkpoint.id} has no marker of any backend for it, and it is not "
            f"known to be new"
        )


def older_than(damaged: Checkpoint, listed: Collection[CheckpointId]) -> CheckpointId | None:
    """
    Give the checkpoint to go back to from *damaged*; None if there is none.

    It is the one that the damaged one built on. After time travel newer ones are listed between the two, and nothing
    may build on them: their history has ended. A record that Samza wrote does not say what it built on.
    """
    if damaged.claim is None:
        return max((id for id in listed if id < damaged.id), default=None)
    return damaged.parent if damaged.parent in listed else None


def refuse_other_layout(recorded: Layout | None, configured: Layout | None, task: str) -> None:
    """
    Check that the input is spread as it was when the checkpoint was made.

    Raises:
        ConfigError: Both layouts are stated, and differ.
    """
    if recorded is None or configured is None or recorded == configured:
        return
    raise ConfigError(
        f"task {task!r}: its checkpoint was made with {_described(recorded)}; the configuration says "
        f"{_described(configured)}. State is placed by task: restore with the old layout, or copy a savepoint to the "
        f"new one"
    )


def refuse_other_rules(store: str, written: Mapping[str, str], configured: Mapping[str, str]) -> None:
    """
    Check that a store's bytes would be read by the rules by which they were *written*.

    Raises:
        ConfigError: They would not.
    """
    for name in sorted(written.keys() & configured.keys()):
        if written[name] != configured[name]:
            setting = "ttl" if name == "expiring" else name
            raise ConfigError(
                f"store {store!r}: its state was written with {name} = {written[name]!r}, and the configuration says "
                f"{configured[name]!r}; set stores.{store}.{setting} back, or give the store a new name and fill it "
                f"anew"
            )


def v1_turned(checkpoint: Checkpoint, found: Mapping[str, Markers]) -> Checkpoint:
    """
    Give a V1 *checkpoint* with the markers that were *found* among its offsets, by marker key.

    What is a changelog's is no input: it would be taken for one by the host, and by the next checkpoint.
    """
    markers = {**checkpoint.markers, **found}
    logs = _changelogs(found)
    offsets = {source: offset for source, offset in checkpoint.offsets.items() if source not in logs}
    return Checkpoint(id=checkpoint.id, offsets=offsets, markers=markers)


def _changelogs(found: Mapping[str, Markers]) -> Collection[SystemStreamPartition]:
    try:
        return changelog_offsets(found).keys()
    except FormatError:  # markers of another kind under Samza's key: whose they are, nobody here can tell
        return ()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _described(layout: Layout) -> str:
    return f"{len(layout.tasks)} tasks ({', '.join(layout.tasks[:8])}) by {layout.partitioner!r}"
