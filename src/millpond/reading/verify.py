"""Whether a checkpoint can be restored: every store is restored from every backend that has a marker for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from attrs import frozen

from millpond.checkpoint import Checkpoint, Markers
from millpond.config import StoreConfig
from millpond.errors import (
    ConfigError,
    FormatError,
    MillpondError,
    StateCorruptError,
    StateNotFoundError,
)
from millpond.local import TaskDirectory, verify_files
from millpond.reading.job import JobReader
from millpond.reading.stores import opened_image, relative_paths, restore_one
from millpond.restore.plan import v1_turned

State = Literal["ok", "absent", "missing", "corrupt", "unreadable", "unreachable"]
"""
``ok``: restored, every digest compared, and opened. ``absent``: this checkpoint was published without that backend, or
its section is not configured. ``missing``: what the marker names is gone. ``corrupt``: it is not what was committed.
``unreadable``: the configuration or this release does not fit it. ``unreachable``: the backend did not answer.
"""

LOCAL = "local"
"""The name under which the image on the local disk is reported."""


@frozen
class Finding:
    """
    What became of one store's copy in one place.

    Attributes:
        task: The task.
        checkpoint: The text of the checkpoint's id.
        store: The store.
        backend: The backend's section, ``local`` for the image on the local disk, or a marker key that no section has.
        marker: What the backend gave for it; None where there is none.
        state: See ``State``.
        size: The bytes of all its files; None unless ``ok``.
        duration_s: What trying it took, in seconds.
        detail: What is wrong, and where; empty if nothing is.
    """

    task: str
    checkpoint: str
    store: str
    backend: str
    marker: str | None
    state: State
    size: int | None = None
    duration_s: float = 0.0
    detail: str = ""

    @property
    def good(self) -> bool:
        """Nothing needs to be done about it."""
        return self.state in ("ok", "absent")


def verify(reader: JobReader, task: str, at: str | None = None) -> Iterator[Finding]:
    """
    Try every copy of every store of the newest checkpoint of *task*, or of the one that *at* names.

    Gives a finding as soon as a copy is tried. A store without any copy is a finding too.

    Raises:
        StateNotFoundError: There is no such checkpoint, or a live job superseded it meanwhile.
    """
    reader.check_task(task)
    with reader.workplace(task) as workplace:
        checkpoint = with_markers(reader, task, reader.checkpoint(task, at), workplace)
        for store in reader.config.stores.values():
            if not store.ephemeral:
                yield from _verify_store(reader, task, checkpoint, store, workplace)


def with_markers(reader: JobReader, task: str, checkpoint: Checkpoint, workplace: TaskDirectory) -> Checkpoint:
    """Give *checkpoint* with its markers: a V1's stand among its offsets, where only backends find them."""
    if checkpoint.claim is not None or checkpoint.markers:
        return checkpoint
    found: dict[str, Markers] = {}
    with reader.sources(task, list(reader.config.backends), workplace) as sources:
        for source in sources:
            source.manager.init(checkpoint)
            if markers := source.manager.v1_markers(checkpoint):
                found[source.key] = markers
    return v1_turned(checkpoint, found)


def _verify_store(
    reader: JobReader, task: str, checkpoint: Checkpoint, store: StoreConfig, workplace: TaskDirectory
) -> Iterator[Finding]:
    sections = {backend.marker_key: backend.name for backend in reader.config.backends.values()}
    markers = {key: held[store.name] for key, held in checkpoint.markers.items() if store.name in held}
    if local := _verify_local(reader, task, checkpoint, store):
        yield local
    for key, marker in markers.items():
        if key in sections:
            yield _verify_copy(reader, task, checkpoint, store, sections[key], marker, workplace)
        else:
            detail = "no backend of this name is configured: was its section renamed?"
            yield Finding(task, str(checkpoint.id), store.name, key, marker, "absent", detail=detail)
    yield from _without_markers(reader, task, checkpoint, store, markers)


def _without_markers(
    reader: JobReader, task: str, checkpoint: Checkpoint, store: StoreConfig, markers: Mapping[str, str]
) -> Iterator[Finding]:
    """Report backends that should have the store and do not; nothing for a store that was new then."""
    state: State = "absent" if markers else "missing"
    if not markers and checkpoint.claim is not None and store.name not in checkpoint.images:
        return
    for name in store.backup:
        if reader.config.backends[name].marker_key not in markers:
            detail = "this checkpoint was published without it"
            yield Finding(task, str(checkpoint.id), store.name, name, None, state, detail=detail)


def _verify_local(reader: JobReader, task: str, checkpoint: Checkpoint, store: StoreConfig) -> Finding | None:
    """Compare the local image that the checkpoint names with its digests; None if this disk has none."""
    live, name = reader.live(task), checkpoint.images.get(store.name)
    if name is None or name not in live.image_names(store.name):
        return None
    begun = reader.context.clock.monotonic()
    state, size, detail = _outcome(lambda: _compare(reader, task, store.name, name))
    if state == "missing":  # a live job dropped it meanwhile, as it may
        return None
    took = reader.context.clock.monotonic() - begun
    return Finding(task, str(checkpoint.id), store.name, LOCAL, name, state, size, took, detail)


def _compare(reader: JobReader, task: str, store: str, name: str) -> int:
    live = reader.live(task)
    manifest = live.manifest(store, name)
    verify_files(live.image(store, name), manifest, digests=True, transfers=reader.transfers)
    return manifest.size


def _verify_copy(
    reader: JobReader,
    task: str,
    checkpoint: Checkpoint,
    store: StoreConfig,
    backend: str,
    marker: str,
    workplace: TaskDirectory,
) -> Finding:
    begun = reader.context.clock.monotonic()
    state, size, detail = _outcome(lambda: _restore_copy(reader, task, checkpoint, store, backend, workplace))
    if state == "missing":
        _refuse_superseded(reader, task, checkpoint)
    took = reader.context.clock.monotonic() - begun
    return Finding(task, str(checkpoint.id), store.name, backend, marker, state, size, took, detail)


def _restore_copy(
    reader: JobReader,
    task: str,
    checkpoint: Checkpoint,
    store: StoreConfig,
    backend: str,
    workplace: TaskDirectory,
) -> int:
    """Restore the store from *backend* alone, open it, and let go of it again; give its size."""
    try:
        with relative_paths(workplace), reader.sources(task, [backend], workplace) as sources:
            image = restore_one(reader, task, store, checkpoint.id, sources, workplace)
        if image is None:
            raise StateNotFoundError(f"{backend} gave nothing for store {store.name!r}")
        with opened_image(image, store, workplace):
            return image.size
    finally:
        workplace.drop_images(store.name, ())


def _outcome(work: Callable[[], int]) -> tuple[State, int | None, str]:
    """Do *work*, and say what came of it."""
    try:
        return "ok", work(), ""
    except MillpondError as error:
        return _state_of(error), None, _reason(error)
    except Exception as error:  # noqa: BLE001 - by the SPI, an error of another class may go away; nothing was changed
        return "unreachable", None, f"{type(error).__name__}: {error}"


def _state_of(error: MillpondError) -> State:
    match error:
        case StateNotFoundError():
            return "missing"
        case StateCorruptError():
            return "corrupt"
        case ConfigError() | FormatError():
            return "unreadable"
        case _:
            return "unreachable"


def _reason(error: MillpondError) -> str:
    """Give the text of the backend's own error, which the restore engine wraps."""
    cause = error.__cause__ if isinstance(error.__cause__, MillpondError) else error
    return str(cause)


def _refuse_superseded(reader: JobReader, task: str, checkpoint: Checkpoint) -> None:
    """Raise StateNotFoundError if the checkpoint itself is gone: then its data may go too."""
    try:
        reader.manager.read(task, checkpoint.id)
    except StateNotFoundError:
        raise StateNotFoundError(
            f"task {task!r}: a live job superseded checkpoint {checkpoint.id} while it was verified: pin it first "
            f"(millpond checkpoints pin), or raise checkpoint.retain"
        ) from None
