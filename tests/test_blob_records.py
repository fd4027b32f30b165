"""The checkpoint manager over an object store: two writers, lost answers, stores that cannot, probes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blobs
import pytest
from blobs import World

from millpond.blob import AccessDeniedError, BlobCapabilities, BytesBody, Unfinished
from millpond.blob.folder import BlobFolder
from millpond.blob.listing import task_folders
from millpond.blob.memory import MemoryBlobStore
from millpond.blob.probe import probe_data, probe_records
from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.clock import Clock, SystemClock
from millpond.errors import ConfigError, FencedError, StateCorruptError, TransientError
from millpond.spi import JobContext, VersionPolicy

TASK = "Partition 0"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def manager(world: World) -> blobs.Checkpoints:
    context = JobContext(world.name, "1", None, lambda event: None, world.clock, None)  # type: ignore[arg-type]
    return blobs.Checkpoints(blobs.RecordSettings(bucket=world.bucket), context, VersionPolicy())


def checkpoint(number: int, claim: Claim) -> Checkpoint:
    return Checkpoint(CheckpointId(number, 0), claim=claim)


def test_records_and_pins_lie_below_the_task(world: World):
    """Every record is an object below records, every pin one below pins, and nothing else is written."""
    records = manager(world)
    claim = records.claim(TASK)
    records.write(claim, checkpoint(1, claim), after=None)
    records.pin(TASK, CheckpointId(1, 0), "before/upgrade")

    assert ["flights/+partition%200/pins/before%2fupgrade"] == world.held("pins")
    assert 2 == len(world.held("records"))
    assert 3 == len(world.store.objects)
    assert [TASK] == records.tasks()


def test_of_two_writers_exactly_one_wins(world: World):
    """Two claims race to write after the same checkpoint: one is published, the other is refused."""
    one, other = manager(world), manager(world)
    first, second = one.claim(TASK), other.claim(TASK)
    outcomes: list[Any] = []
    start = threading.Barrier(2)

    def write(records: blobs.Checkpoints, claim: Claim) -> None:
        start.wait(30)
        try:
            records.write(claim, checkpoint(claim.epoch, claim), after=None)
            outcomes.append(claim)
        except FencedError:
            outcomes.append(None)

    threads = [threading.Thread(target=write, args=pair) for pair in ((one, first), (other, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert second in outcomes
    assert None in outcomes
    assert checkpoint(2, second) == manager(world).read_last(TASK)


def test_a_lost_answer_to_our_own_success_is_recognised(world: World):
    """A put that the SDK repeats after its answer was lost finds its own record, and that is success."""
    records = manager(world)
    claim = records.claim(TASK)
    real = world.store.put

    def twice(key: str, body: Any, *, if_absent: bool = False) -> bool:
        real(key, body, if_absent=if_absent)
        return real(key, body, if_absent=if_absent)

    world.store.put = twice  # type: ignore[method-assign]
    records.write(claim, checkpoint(5, claim), after=None)

    assert [CheckpointId(5, 0)] == records.ids(TASK)
    assert manager(world).claim(TASK).epoch > claim.epoch


def test_a_record_that_is_too_large_is_damage(world: World, monkeypatch: pytest.MonkeyPatch):
    """A record larger than any is refused after reading no more than that."""
    records = manager(world)
    records.claim(TASK)
    (key,) = world.held("records")
    monkeypatch.setattr("millpond.blob.folder._LONGEST_RECORD", 20)
    with pytest.raises(StateCorruptError, match="larger than any"):
        manager(world).read_last(TASK)
    assert key


def test_a_store_that_hangs_in_a_race_holds_up_nobody(world: World, monkeypatch: pytest.MonkeyPatch):
    """A creation that never answers ends the probe at its deadline, by threads that hold up no exit."""
    monkeypatch.setattr("millpond.blob.probe._DEADLINE_S", 0.3)
    gate, daemons = threading.Event(), []

    def hang(verb: str, key: str) -> None:
        if verb == "put" and "race-" in key:
            daemons.append(threading.current_thread().daemon)
            gate.wait(30)

    world.store.before = hang
    with pytest.raises(TransientError, match=r"did not answer within 0\.3 s"):
        probe_records(world.store, "flights/", SystemClock())
    gate.set()

    assert [True, True] == daemons


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        (BlobCapabilities(conditional_put=False, reason="use the directory manager"), "use the directory manager"),
        (BlobCapabilities(conditional_put=False), "only if it is absent.*directory, S3, or Kafka"),
        (BlobCapabilities(fresh_listing=False), "a moment ago"),
    ],
)
def test_a_store_that_cannot_keep_records_is_refused(world: World, capabilities: BlobCapabilities, said: str):
    """Without conditional writes or fresh listings the manager does not open, says why, and what to use instead."""
    world.store.capabilities = capabilities
    with pytest.raises(ConfigError, match=said):
        manager(world).claim(TASK)
    assert {} == world.store.objects


def test_finding_tasks_costs_a_request_a_task(world: World):
    """Tasks are found by jumping over what each has, however much that is."""
    for task in ("a", "ab", "b"):
        for number in range(50):
            world.store.objects[f"flights/{task}/data/main/{number}"] = (b"", 0)
    world.store.objects["flights/.probe-1/object"] = (b"", 0)
    world.store.objects["flights-2/a/records/x"] = (b"", 0)
    listed: list[str] = []
    world.store.before = lambda verb, key: listed.append(verb)

    assert ["a", "ab", "b"] == list(task_folders(world.store, "flights/"))
    assert 5 == len(listed)


# Probes


def test_a_good_store_passes_and_nothing_is_left():
    """A store that keeps its promises passes both probes, and holds nothing afterwards."""
    store = MemoryBlobStore()
    probe_data(store, "flights/", SystemClock())
    probe_records(store, "flights/", SystemClock())

    assert {} == store.objects


class Checks(MemoryBlobStore):
    """Looks, and then writes: two creations may both win."""

    def __init__(self) -> None:
        super().__init__()
        self.both = threading.Barrier(2)

    def put(self, key: str, body: Any, *, if_absent: bool = False) -> bool:
        if if_absent:
            absent = key not in self.objects
            self.both.wait(30)
            if not absent:
                return False
        return super().put(key, body)


def denied(verb_denied: str) -> Callable[[], MemoryBlobStore]:
    def make() -> MemoryBlobStore:
        store = MemoryBlobStore()

        def refuse(verb: str, key: str) -> None:
            if verb == verb_denied:
                raise AccessDeniedError(f"s3:{verb} on {key} is denied")

        store.before = refuse
        return store

    return make


def changed(**methods: Any) -> Callable[[], MemoryBlobStore]:
    def make() -> MemoryBlobStore:
        store = MemoryBlobStore()
        for name, method in methods.items():
            real = getattr(store, name)
            setattr(store, name, lambda *a, _real=real, _method=method, **k: _method(_real, *a, **k))
        return store

    return make


BAD: dict[str, tuple[Callable[[], MemoryBlobStore], str]] = {
    "two winners": (Checks, "2 won"),
    "put denied": (denied("put"), "s3:put.*grant it"),
    "get denied": (denied("get"), "s3:get"),
    "list denied": (denied("list"), "s3:list"),
    "delete denied": (denied("delete"), "s3:delete"),
    "no ranges": (changed(get=lambda real, key, *a: real(key)), "ranged reads"),
    "lagging list": (changed(list=lambda real, *a, **k: iter(())), "listings lag"),
    "deleted still listed": (changed(delete=lambda real, keys: None), "listed still"),
    "content changed": (changed(get=lambda real, *a: real(*a)[::-1]), "changes content"),
    "absent is empty": (changed(get=lambda real, key, *a: b"" if "absent" in key else real(key, *a)), "can be read"),
    "clock ahead": (changed(now=lambda real: real() + 3_600_000), "behind that of"),
    "clock behind": (changed(now=lambda real: real() - 3_600_000), "ahead of that of"),
}


@pytest.mark.parametrize(("make", "said"), BAD.values(), ids=BAD)
def test_a_broken_promise_is_found_before_it_matters(make: Callable[[], MemoryBlobStore], said: str):
    """Each promise that a store breaks is a ConfigError that says which."""
    with pytest.raises(ConfigError, match=said):
        probe_records(make(), "flights/", SystemClock())


def test_a_probe_that_fails_cleans_up():
    """A probe that fails in its middle removes what it wrote."""
    store = MemoryBlobStore()

    def fail(verb: str, key: str) -> None:
        if verb == "list":
            raise TransientError("busy")

    store.before = fail
    with pytest.raises(TransientError):
        probe_records(store, "flights/", SystemClock())
    assert {} == store.objects


def test_what_killed_processes_left_is_removed_a_day_later():
    """A check of the store removes old probes, and a claim old unfinished records; what may be at work stays."""
    day, now = 24 * 3600 * 1000, [1_000_000_000]
    store = MemoryBlobStore(lambda: now[0])
    store.put("flights/.probe-old/object", BytesBody(b"x"))
    store.pending = [
        Unfinished("flights/.probe-old/race-1", "old probe", now[0]),
        Unfinished("flights/t/records/5", "old record", now[0]),
    ]
    now[0] += day + 1
    store.put("flights/.probe-young/object", BytesBody(b"x"))
    store.pending.append(Unfinished("flights/t/records/6", "young record", now[0]))

    probe_records(store, "flights/", blobs_clock(now))
    BlobFolder(store, "flights/t/records/").tidy()

    assert ["flights/.probe-young/object"] == list(store.objects)
    assert ["young record"] == [upload.token for upload in store.pending]


def blobs_clock(now: list[int]) -> Clock:
    clock = SystemClock()
    clock.millis = lambda: now[0]  # type: ignore[method-assign]
    return clock
