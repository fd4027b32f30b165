"""Where a restore would take each store from, and why not from elsewhere; nothing is restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attrs import frozen

from millpond.checkpoint import Checkpoint
from millpond.config import BackendConfig, StoreConfig
from millpond.errors import ConfigError, StateCorruptError, StateNotFoundError
from millpond.local import ReadOnlyTaskDirectory
from millpond.opening import properties
from millpond.reading.job import JobReader
from millpond.reading.verify import LOCAL, with_markers
from millpond.restore.plan import StoreWants, plan_restore, refuse_other_layout, refuse_other_rules

Verdict = Literal["first", "fallback", "rejected"]


@frozen
class Candidate:
    """
    A place that a store might come from.

    Attributes:
        source: ``local``, a backend's section, or a marker key that no section has.
        verdict: It is asked first, asked when those before it fail, or not asked at all.
        reason: Why.
        marker: What the checkpoint says of it; None where it says nothing.
    """

    source: str
    verdict: Verdict
    reason: str
    marker: str | None = None


@frozen
class ExplainedStore:
    """
    Where one store would come from.

    Attributes:
        store: The store.
        source: ``local``, a backend's section, ``new`` when it begins empty; None when a restore would be refused.
        reason: Why.
        candidates: All places, in the order in which they were considered.
    """

    store: str
    source: str | None
    reason: str
    candidates: tuple[Candidate, ...] = ()


@frozen
class ExplainedPlan:
    """
    Where all stores of a task would come from.

    Attributes:
        task: The task.
        checkpoint: What would be restored; None: nothing was ever committed, and all stores begin empty.
        reason: Why this checkpoint.
        stores: A plan for each configured store.
        ignored: Pairs of a store that is not configured and the marker key that has it.
        refusal: Why nothing at all would be restored; None if nothing is in the way.
    """

    task: str
    checkpoint: Checkpoint | None
    reason: str
    stores: tuple[ExplainedStore, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    refusal: str | None = None

    @property
    def possible(self) -> bool:
        """A restore would begin; a backend may still fail it."""
        return self.refusal is None and all(store.source is not None for store in self.stores)


def explain(reader: JobReader, task: str, at: str | None = None) -> ExplainedPlan:
    """
    Explain a restore of *task* to its newest checkpoint, or to the one that *at* names.

    Raises:
        StateNotFoundError: *at* is not there, or nobody knows *task*.
    """
    reader.check_task(task)
    checkpoint = reader.manager.read_last(task) if at is None else reader.checkpoint(task, at)
    if checkpoint is None:
        new = tuple(ExplainedStore(name, "new", "the task has never committed") for name in reader.config.stores)
        return ExplainedPlan(task, None, "the task has no checkpoint: every store begins empty", new)
    stores = reader.config.stores
    with reader.workplace(task) as workplace:
        checkpoint = with_markers(reader, task, checkpoint, workplace)
    return ExplainedPlan(
        task,
        checkpoint,
        "it is the newest" if at is None else _why_asked(at, checkpoint),
        tuple(_explain_store(reader, checkpoint, store, reader.live(task)) for store in stores.values()),
        tuple((store, key) for key, held in checkpoint.markers.items() for store in held if store not in stores),
        _refusal(reader, checkpoint, task),
    )


def _why_asked(at: str, checkpoint: Checkpoint) -> str:
    return "it was asked for" if at == str(checkpoint.id) else f"the pin {at} names it"


def _refusal(reader: JobReader, checkpoint: Checkpoint, task: str) -> str | None:
    try:
        refuse_other_layout(checkpoint.layout, reader.config.layout, task)
    except ConfigError as error:
        return str(error)
    return None


def _explain_store(
    reader: JobReader, checkpoint: Checkpoint, store: StoreConfig, live: ReadOnlyTaskDirectory
) -> ExplainedStore:
    backends = reader.config.backends
    local = _local_candidate(checkpoint, store, live)
    usable = live.image_names(store.name) if local.verdict == "first" else []
    wants = StoreWants(store.name, tuple((name, backends[name].marker_key) for name in store.restore), store.ephemeral)
    names = {backend.marker_key: backend.name for backend in backends.values()}
    try:
        (plan,) = plan_restore(checkpoint, [wants], {store.name: usable}, names).stores
        if not plan.new:
            refuse_other_rules(store.name, checkpoint.properties.get(store.name, {}), properties(store))
    except (ConfigError, StateNotFoundError) as error:
        return ExplainedStore(store.name, None, str(error), _candidates(checkpoint, store, local, backends))
    if plan.new:
        why = "it is ephemeral" if store.ephemeral else "this checkpoint has never held it"
        return ExplainedStore(store.name, "new", f"{why}: it begins empty")
    candidates = _candidates(checkpoint, store, local, backends)
    first = next(candidate for candidate in candidates if candidate.verdict == "first")
    return ExplainedStore(store.name, first.source, first.reason, candidates)


def _local_candidate(checkpoint: Checkpoint, store: StoreConfig, live: ReadOnlyTaskDirectory) -> Candidate:
    """Look at the local image that the checkpoint names, as a restore would."""
    name = checkpoint.images.get(store.name)
    if name is None:
        return Candidate(LOCAL, "rejected", "the checkpoint names no image of it")
    try:
        live.verify(store.name, name)
    except StateNotFoundError:
        others = live.image_names(store.name)
        held = f"this disk has {', '.join(others)}" if others else "this disk has none"
        return Candidate(LOCAL, "rejected", f"the checkpoint names image {name}; {held}", name)
    except StateCorruptError as error:
        return Candidate(LOCAL, "rejected", f"it is damaged: {error}", name)
    return Candidate(LOCAL, "first", "this disk has the very image that the checkpoint names, whole", name)


def _candidates(
    checkpoint: Checkpoint, store: StoreConfig, local: Candidate, backends: Mapping[str, BackendConfig]
) -> tuple[Candidate, ...]:
    """Give every place, those of the restore list in its order, then those that hold the store and are not asked."""
    held = {key: markers[store.name] for key, markers in checkpoint.markers.items() if store.name in markers}
    found = [local]
    for name in store.restore:
        found.append(_listed(name, store.name, held.pop(backends[name].marker_key, None), found))
    if all(candidate.marker is None or candidate.verdict == "rejected" for candidate in found[1:]):
        found[0] = _unused(local)
    sections = {backend.marker_key: backend.name for backend in backends.values()}
    rest = [_unlisted(key, sections.get(key), store.name, marker) for key, marker in held.items()]
    return (*found, *rest)


def _listed(backend: str, store: str, marker: str | None, before: list[Candidate]) -> Candidate:
    if marker is None:
        return Candidate(backend, "rejected", "the checkpoint has no marker of it")
    if any(candidate.verdict == "first" for candidate in before):
        return Candidate(backend, "fallback", "asked if those before it cannot give it back", marker)
    return Candidate(
        backend, "first", f"the first of stores.{store}.restore that the checkpoint has a marker of", marker
    )


def _unlisted(key: str, section: str | None, store: str, marker: str) -> Candidate:
    if section is None:
        return Candidate(key, "rejected", "no backend of this name is configured: was its section renamed?", marker)
    return Candidate(section, "rejected", f"stores.{store}.restore does not name it", marker)


def _unused(local: Candidate) -> Candidate:
    if local.verdict == "rejected":
        return local
    return Candidate(
        LOCAL, "rejected", "no backend of the restore list has the store, so its image proves nothing", local.marker
    )
