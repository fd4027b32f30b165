"""Tests of ``memory``: what the memory backend keeps for whom, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.clock import SystemClock
from millpond.errors import CommitTimeoutError, ConfigError, StateNotFoundError
from millpond.events import Listener
from millpond.memory import MemoryBackend, MemoryBackendConfig
from millpond.spi import (
    Change,
    Facet,
    FileEntry,
    JobContext,
    RestoreTarget,
    Snapshot,
    StoreSpec,
    TaskBackupManager,
    TaskContext,
    Transfers,
)

STORES = [StoreSpec("s", "memory"), StoreSpec("u", "memory")]


@define(slots=False)
class Frozen(Snapshot):
    """A snapshot of given stores, by their items, or by their changes since a base."""

    id: CheckpointId
    state: Mapping[str, dict[bytes, bytes]]
    bases: Mapping[str, tuple[CheckpointId, str]] = field(factory=dict)
    since: Mapping[str, dict[bytes, bytes | None]] = field(factory=dict)
    given_up: bool = False

    @property
    def stores(self) -> Sequence[str]:  # type: ignore[override]
        return list(self.state)

    def base(self, store: str) -> tuple[CheckpointId, str] | None:
        return self.bases.get(store)

    def changes(self, store: str) -> Iterator[Change]:
        return iter(sorted(self.since[store].items()))

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.state[store].get(key) for key in keys]

    def directory(self, store: str) -> Sequence[FileEntry]:
        raise AssertionError("not a facet that the memory backend declares")

    def items(self, store: str) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(self.state[store].items()))

    def check(self) -> None:
        if self.given_up:
            raise CommitTimeoutError("given up")


@define(slots=False)
class Target(RestoreTarget):
    """Collects what is written to it."""

    store: str
    marker: str
    directory: Path = Path("unused")
    local: str | None = None
    found: dict[bytes, bytes | None] = field(factory=dict)
    records: int = 0

    def use_local(self) -> None:
        raise AssertionError("there is no local image")

    def adopt(self, *, verified: bool = False) -> None:
        raise AssertionError("there are no files")

    def write(self, records: Iterable[Change]) -> None:
        self.found.update(records)

    def progress(self, *, records: int = 0, size: int = 0, total_size: int | None = None) -> None:
        self.records += records

    def check(self) -> None:
        return None


@define
class Rig:
    """One task of a job of its own, with a claim that can be taken over."""

    context: TaskContext

    def backup(self) -> TaskBackupManager:
        return MemoryBackend("memory", MemoryBackendConfig()).backup_manager(self.context, STORES)

    def successor(self) -> Rig:
        claim = cast(Claim, self.context.claim)
        return Rig(evolve(self.context, claim=Claim("t", claim.epoch + 1, claim.writer + "0")))

    def restore(self, store: str, marker: str) -> dict[bytes, bytes | None]:
        target = Target(store, marker)
        MemoryBackend("memory", MemoryBackendConfig()).restore_manager(self.context, STORES).restore(target)
        assert len(target.found) == target.records
        return target.found


@pytest.fixture
def rig_of(request: pytest.FixtureRequest) -> Callable[..., Rig]:
    job = request.node.nodeid

    def make(job_id: str = "1", task: str = "t", backend: str = "memory") -> Rig:
        context = JobContext(job, job_id, None, cast(Listener, None), SystemClock(), cast(Transfers, None))
        return Rig(TaskContext(context, task, Claim(task, 1, "ab"), backend, Path("kept"), Path("scratch")))

    return make


@pytest.fixture
def rig(rig_of: Callable[..., Rig]) -> Rig:
    return rig_of()


def id_of(millis: int) -> CheckpointId:
    return CheckpointId(millis, 0)


def uploaded(rig: Rig, millis: int, **state: dict[bytes, bytes]) -> Checkpoint:
    markers = rig.backup().upload(Frozen(id_of(millis), state), {})
    return Checkpoint(id_of(millis), markers={"memory": markers}, claim=rig.context.claim)


def test_it_says_that_it_dies_with_the_process() -> None:
    """The backend declares that it is not durable, and the facets that it reads."""
    assert not MemoryBackend.capabilities.durable
    assert Facet.CHANGES | Facet.ITEMS == MemoryBackend.capabilities.facets


def test_what_was_uploaded_is_restored_by_other_managers(rig: Rig) -> None:
    """A job that is opened again in this process finds each store as it was, empty values and empty stores too."""
    checkpoint = uploaded(rig, 1, s={b"a": b"1", b"": b""}, u={})

    markers = checkpoint.markers["memory"]
    assert {"s", "u"} == set(markers)
    assert {b"a": b"1", b"": b""} == rig.restore("s", markers["s"])
    assert {} == rig.restore("u", markers["u"])


def test_jobs_tasks_and_backends_do_not_meet(rig_of: Callable[..., Rig]) -> None:
    """A marker means nothing to another job, task, or section of the configuration."""
    marker = uploaded(rig_of(), 1, s={b"a": b"1"}).markers["memory"]["s"]

    for other in (rig_of(job_id="2"), rig_of(task="t2"), rig_of(backend="memory2")):
        with pytest.raises(StateNotFoundError):
            other.restore("s", marker)


changes_of_commits = st.lists(
    st.dictionaries(st.binary(max_size=2), st.none() | st.binary(max_size=3), max_size=6), min_size=1, max_size=40
)


@given(commits=changes_of_commits)
def test_every_retained_checkpoint_is_restored_exactly(commits: list[dict[bytes, bytes | None]]) -> None:
    """However many changes lie over one another, each checkpoint gives its own state, and what was deleted stays so."""
    job = JobContext(f"layers {id(commits)}", "1", None, cast(Listener, None), SystemClock(), cast(Transfers, None))
    rig = Rig(TaskContext(job, "t", Claim("t", 1, "ab"), "memory", Path("kept"), Path("scratch")))
    backup, state, base, expected = rig.backup(), dict[bytes, bytes](), None, {}
    for millis, changes in enumerate(commits):
        for key, value in changes.items():
            state.pop(key, None)
            if value is not None:
                state[key] = value
        snapshot = Frozen(id_of(millis), {"s": dict(state)}, {"s": base} if base else {}, {"s": changes})
        if base is not None:
            snapshot.items = lambda _: pytest.fail("the whole store was read")  # type: ignore[method-assign]
        marker = backup.upload(snapshot, {})["s"]
        base, expected[marker] = (id_of(millis), marker), dict(state)

    for marker, content in expected.items():
        assert content == rig.restore("s", marker)
    backup.cleanup([])


def test_cleanup_keeps_what_is_retained_and_no_more(rig: Rig) -> None:
    """After a cleanup every retained checkpoint is there, by whatever claim, and all others are gone."""
    checkpoints = [uploaded(rig, n, s={b"n": str(n).encode()}) for n in range(4)]
    successor = rig.successor()

    successor.backup().cleanup([checkpoints[3], checkpoints[1]])

    for n in (1, 3):
        assert {b"n": str(n).encode()} == rig.restore("s", checkpoints[n].markers["memory"]["s"])
    for n in (0, 2):
        with pytest.raises(StateNotFoundError):
            rig.restore("s", checkpoints[n].markers["memory"]["s"])


def test_a_base_outlives_its_own_checkpoint(rig: Rig) -> None:
    """A checkpoint that was made of changes is whole when the one that it was based on is cleaned up."""
    backup = rig.backup()
    first = uploaded(rig, 1, s={b"a": b"1", b"b": b"2"}).markers["memory"]["s"]
    snapshot = Frozen(id_of(2), {"s": {b"a": b"1"}}, {"s": (id_of(1), first)}, {"s": {b"b": None}})
    second = Checkpoint(id_of(2), markers={"memory": backup.upload(snapshot, {})})

    backup.cleanup([second])

    assert {b"a": b"1"} == rig.restore("s", second.markers["memory"]["s"])


def test_a_replaced_owner_removes_nothing_of_its_successor(rig: Rig) -> None:
    """A late cleanup or abandon of an earlier claim leaves alone what a later claim keeps, even of the same id."""
    old = rig.backup()
    new = uploaded(rig.successor(), 5, s={b"a": b"1"})

    old.cleanup([])
    old.abandon(id_of(5))

    assert {b"a": b"1"} == rig.restore("s", new.markers["memory"]["s"])


def test_an_abandoned_commit_leaves_nothing(rig: Rig) -> None:
    """What the upload of a given-up commit kept is gone, and giving up twice is fine."""
    kept, gone = uploaded(rig, 1, s={b"a": b"1"}), uploaded(rig, 2, s={b"a": b"2"})

    for _ in range(2):
        rig.backup().abandon(id_of(2))

    assert {b"a": b"1"} == rig.restore("s", kept.markers["memory"]["s"])
    with pytest.raises(StateNotFoundError):
        rig.restore("s", gone.markers["memory"]["s"])


def test_an_upload_that_is_given_up_keeps_nothing(rig: Rig) -> None:
    """When the commit is given up in the middle, none of its stores is kept."""
    snapshot = Frozen(id_of(1), {"s": {b"a": b"1"}}, given_up=True)

    with pytest.raises(CommitTimeoutError):
        rig.backup().upload(snapshot, {})

    with pytest.raises(StateNotFoundError):
        rig.restore("s", "1-0-ab")


def test_state_of_a_process_that_ended_is_missed_and_made_anew(rig: Rig) -> None:
    """A marker that another process made names its store for upload, and is no base: the whole store is kept."""
    last = Checkpoint(id_of(1), markers={"memory": {"s": "1-0-dead", "gone": "1-0-dead"}})
    backup = rig.backup()

    assert ["s"] == list(backup.init(last))
    marker = backup.upload(Frozen(id_of(2), {"s": {b"a": b"1"}}, {"s": (id_of(1), "1-0-dead")}), {})["s"]

    assert {b"a": b"1"} == rig.restore("s", marker)
    assert [] == list(backup.init(Checkpoint(id_of(2), markers={"memory": {"s": marker}})))
    with pytest.raises(StateNotFoundError, match="a process that has ended"):
        rig.restore("s", "1-0-dead")


def test_only_a_claimed_task_is_backed_up(rig: Rig) -> None:
    """A reader, which claims nothing, gets no backup manager."""
    reader = Rig(evolve(rig.context, claim=None))

    with pytest.raises(ConfigError, match="not claimed"):
        reader.backup()
