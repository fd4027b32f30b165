"""
Copying a pinned checkpoint to where another configuration keeps its records and state.

Data goes from object store to object store, of whatever kinds; the record goes to the other job's checkpoint manager.
The copy needs no object and no record of the source. The task keeps its name; the job may have another there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import evolve, frozen

from millpond.blob.manifests import ManifestReader
from millpond.blob.retention import needed_by
from millpond.blob.savepoint import Copied, Copying, DataPlace, copy_objects, keep_record
from millpond.checkpoint import Checkpoint
from millpond.config import BackendConfig, JobConfig, StoreConfig
from millpond.errors import ConfigError, StateNotFoundError, TransientError
from millpond.reading.job import JobReader
from millpond.reading.objects import data_place, is_object_store
from millpond.records import NumberedCheckpoints
from millpond.restore.plan import refuse_other_layout

_COPIES = 2
"""A live owner of the target may tidy what nobody pinned yet: then what is missing goes over once more."""


@frozen
class Lane:
    """
    What goes from one backend to another.

    Attributes:
        source: The section that it comes from.
        target: The other configuration's section that it goes to.
        markers: Store to marker.
    """

    source: str
    target: str
    markers: Mapping[str, str]


def lanes_of(checkpoint: Checkpoint, source: JobConfig, target: JobConfig) -> list[Lane]:
    """
    Say which backend of *target* gets its data from which of *source*: of the same name where there is one.

    Raises:
        ConfigError: A store of *target* that *checkpoint* holds could not be restored there; with the reason.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    for store in target.stores.values():
        if not _holds(checkpoint, store.name):
            continue
        holders = _holders(checkpoint, source, store.name)
        takers = [target.backends[name] for name in dict.fromkeys((*store.restore, *store.backup))]
        takers = [each for each in takers if is_object_store(each) and each.factory.capabilities.durable]
        if not store.ephemeral:
            _refuse_unrestorable(checkpoint, source, store, holders, takers)
        for taker in takers if holders else ():
            giver = next((each for each in holders if each.marker_key == taker.marker_key), holders[0])
            marker = checkpoint.markers[giver.marker_key][store.name]
            found.setdefault((giver.name, taker.name), {})[store.name] = marker
    return [Lane(giver, taker, markers) for (giver, taker), markers in found.items()]


def _holds(checkpoint: Checkpoint, store: str) -> bool:
    return store in checkpoint.images or any(store in held for held in checkpoint.markers.values())


def _holders(checkpoint: Checkpoint, source: JobConfig, store: str) -> list[BackendConfig]:
    """Give the object stores of *source* that hold *store*, those of its restore list first."""
    asked = source.stores[store].restore if store in source.stores else ()
    sections = [source.backends[name] for name in dict.fromkeys((*asked, *source.backends))]
    return [each for each in sections if is_object_store(each) and store in checkpoint.markers.get(each.marker_key, {})]


def _refuse_unrestorable(
    checkpoint: Checkpoint,
    source: JobConfig,
    store: StoreConfig,
    holders: Sequence[BackendConfig],
    takers: Sequence[BackendConfig],
) -> None:
    if not holders:
        types = {each.marker_key: each.type for each in source.backends.values()}
        held = [f"{key} ({types.get(key, 'not configured')})" for key, held in checkpoint.markers.items()
                if store.name in held]  # fmt: skip
        raise ConfigError(
            f"store {store.name!r} cannot be copied: checkpoint {checkpoint.id} has it in "
            f"{', '.join(held) or 'no backend'}, and only what is in an object store (s3, fsspec) can be copied; "
            f"the pin itself keeps it where it is"
        )
    if not any(taker.name in store.restore for taker in takers):
        raise ConfigError(
            f"store {store.name!r} could not be restored from the copy: stores.{store.name}.restore there names no "
            f"object store (s3, fsspec)"
        )


def left_out(checkpoint: Checkpoint, target: JobConfig) -> list[str]:
    """Give the stores that *checkpoint* holds and *target* does not have, sorted."""
    held = {store for markers in checkpoint.markers.values() for store in markers}
    return sorted(held - set(target.stores))


def copy_savepoint(source: JobReader, target: JobReader, task: str, name: str) -> Copied:
    """
    Copy what the pin *name* of *task* keeps, and keep it in *target* under the same name; the same again is fine.

    Each piece of it is verified on the way. The record goes last; where the task has none there, it becomes the first.

    Raises:
        StateNotFoundError: There is no such pin, or something of it is lost.
        StateCorruptError: Something of it is damaged.
        ConfigError: The target cannot take it; with the reason.
    """
    checkpoint = _pinned(source, task, name)
    lanes = lanes_of(checkpoint, source.config, target.config)
    markers: dict[str, dict[str, str]] = {}
    for lane in lanes:
        markers.setdefault(target.config.backends[lane.target].marker_key, {}).update(lane.markers)
    copy = evolve(checkpoint, markers=markers)
    records = _numbered(target)
    _refuse_taken(source, records, task, name, copy)
    refuse_other_layout(checkpoint.layout, target.config.layout, task)
    with TemporaryDirectory(prefix="millpond-") as scratch, ExitStack() as stack:
        copying = Copying(source.transfers, Path(scratch))
        places = [stack.enter_context(_places(source, target, task, lane)) for lane in lanes]
        copied = [
            copy_objects(lane.markers.values(), *place, copying) for lane, place in zip(lanes, places, strict=True)
        ]
        keep_record(copy, name, records.pins_folder(task), records.records_folder(task))
        for lane, (giver, taker) in zip(lanes, places, strict=True):
            _complete(lane, giver, taker, copying)
    return Copied(sum(each.objects for each in copied), sum(each.size for each in copied))


def _pinned(source: JobReader, task: str, name: str) -> Checkpoint:
    pins = source.pins(task)
    if name not in pins:
        raise StateNotFoundError(f"task {task!r} has no savepoint {name!r}; it has {', '.join(pins) or 'none'}")
    checkpoint = source.manager.read(task, pins[name])
    if checkpoint.claim is None:
        raise ConfigError(
            f"checkpoint {checkpoint.id} of task {task!r} was written by Samza and cannot be copied: open the task "
            f"once, and make a savepoint of its first own commit"
        )
    return checkpoint


def _numbered(target: JobReader) -> NumberedCheckpoints:
    if isinstance(target.manager, NumberedCheckpoints):
        if target.manager.capabilities.durable:
            return target.manager
        raise ConfigError(
            f"the checkpoint manager {target.config.checkpoint.manager!r} keeps nothing beyond this very process: copy "
            f"to another place"
        )
    raise ConfigError(
        f"the checkpoint manager {target.config.checkpoint.manager!r} takes no copied record: use a directory, s3 or "
        f"fsspec there (checkpoint.manager)"
    )


def _refuse_taken(source: JobReader, records: NumberedCheckpoints, task: str, name: str, copy: Checkpoint) -> None:
    """Refuse a place where the record could not be told from another one."""
    if isinstance(source.manager, NumberedCheckpoints):
        here, there = source.manager.records_folder(task).where("1"), records.records_folder(task).where("1")
        if here == there:
            raise ConfigError(f"the copy's records would lie where they are ({here}): name another place, or job.name")
    pinned = records.pins(task).get(name)
    if pinned is not None and pinned != copy.id:
        raise ConfigError(f"{name!r} is {pinned} of task {task!r} there already: delete it there, or use another name")
    try:
        held = records.read(task, copy.id)
    except StateNotFoundError:
        return
    if held != copy:
        raise ConfigError(
            f"checkpoint {copy.id} of task {task!r} is there already, with other copies of its state: use another "
            f"place for the records, or another job.name"
        )


@contextmanager
def _places(source: JobReader, target: JobReader, task: str, lane: Lane) -> Iterator[tuple[DataPlace, DataPlace]]:
    with data_place(source, task, lane.source) as giver, data_place(target, task, lane.target) as taker:
        if giver.store.where(giver.prefix) == taker.store.where(taker.prefix):
            raise ConfigError(
                f"the copy's data would lie where it is ({giver.store.where(giver.prefix)}), and two jobs would tidy "
                f"there: name another bucket, folder or prefix, or another job.name"
            )
        yield giver, taker


def _complete(lane: Lane, giver: DataPlace, taker: DataPlace, copying: Copying) -> None:
    """Look whether all of it is there, now that its pin keeps it, and send what is not."""
    if not taker.store.capabilities.fresh_listing:
        return
    for _ in range(_COPIES):
        if not _missing(lane, giver, taker, copying):
            return
        copy_objects(lane.markers.values(), giver, taker, copying)
    if lost := _missing(lane, giver, taker, copying):
        raise TransientError(f"{taker.store.where(taker.prefix + lost[0])} was copied, and is not there: copy again")


def _missing(lane: Lane, giver: DataPlace, taker: DataPlace, copying: Copying) -> list[str]:
    read = ManifestReader(giver.store, giver.prefix).read_many(set(lane.markers.values()), copying.transfers)
    needed = {name for marker, manifest in read.found.items() for name in needed_by(marker, manifest)}
    return sorted(needed - {entry.key.removeprefix(taker.prefix) for entry in taker.store.list(taker.prefix)})
