"""What each verb of a state backend promises: markers, threads, idempotence, errors, closing."""

from __future__ import annotations

import time
from datetime import timedelta

from millpond.checkpoint import Checkpoint
from millpond.spi import Capabilities, StateBackendAdmin, StoreSpec
from millpond.testing.kit.backend_bench import BackendBench
from millpond.testing.kit.backend_owner import STORE, Owner, numbered
from millpond.testing.kit.bench import on_worker
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error
from millpond.testing.kit.watching import watched_io

cases: Cases[BackendBench] = Cases()

_SNAPSHOT_S = 0.02


@cases(
    "factory.declares", "spi_version, config_class and capabilities say what the backend is; facets are what it reads."
)
def declares(bench: BackendBench) -> None:
    """See the class's own words."""
    factory = bench.factory
    version = getattr(factory, "spi_version", None)
    expect(isinstance(version, tuple) and len(version) == 2, f"spi_version is {version!r}, not a pair of numbers")
    expect(hasattr(factory.config_class, "__attrs_attrs__"), "config_class is no attrs class")
    expect(isinstance(factory.capabilities, Capabilities), "capabilities is no Capabilities")
    expect(bool(factory.capabilities.facets), "it declares no facet, so it can read nothing")
    limit = factory.capabilities.max_record_bytes
    expect(limit is None or limit > 0, f"max_record_bytes is {limit}")


@cases("factory.no-io", "A factory keeps name and config; no I/O in __init__.", level=Level.FULL)
def factory_without_io(bench: BackendBench) -> None:
    """Make another factory under watch."""
    kind, name, config = type(bench.factory), bench.factory.name, bench.factory.config
    with watched_io() as seen:
        kind(name, config)
    expect(not seen, f"__init__ does I/O: {', '.join(seen[:3])}")


@cases("init.first", "init(None): a task's first; it names only stores that it was given.")
def init_first(bench: BackendBench) -> None:
    """Begin, and commit nothing."""
    bench.owner(("a", "b"))


@cases("init.restored", "init(last): after a restore, before the first commit; it names only stores that it was given.")
def init_restored(bench: BackendBench) -> None:
    """Begin again after a commit, with one store more and one less."""
    bench.owner(("a", "b")).commit({"a": numbered(1), "b": numbered(2)})
    owner = bench.owner(("b", "c"))
    checkpoint = owner.commit({"c": numbered(3)})
    bench.expect_restored(checkpoint)


@cases("snapshot.o1", "snapshot: on the processing thread, so O(1): its time does not grow with the state.")
def snapshot_o1(bench: BackendBench) -> None:
    """Time it over a large state; the best of several, for the machine's sake."""
    owner = bench.owner()
    owner.commit({STORE: {b"k%06d" % n: b"v" * 20 for n in range(bench.profile.many)}})
    times = []
    for number in range(5):
        owner.snapshot({STORE: numbered(number)})
        id, begun = bench.next_id(), time.perf_counter()
        notes = owner.manager.snapshot(id)
        times.append(time.perf_counter() - begun)
        expect(all(type(t) is str for pair in notes.items() for t in pair), f"snapshot() gives {notes!r:.200}")
        owner.abandon(id)
    expect(min(times) < _SNAPSHOT_S, f"snapshot() takes {min(times) * 1000:.1f} ms; it has {_SNAPSHOT_S * 1000:.0f}")


@cases("snapshot.no-io", "snapshot: without I/O.")
def snapshot_without_io(bench: BackendBench) -> None:
    """Watch it, at the first commit and at a later one."""
    owner = bench.owner()
    for number in range(2):
        id = bench.next_id()
        with watched_io() as seen:
            owner.manager.snapshot(id)
        expect(not seen, f"snapshot() does I/O on the processing thread: {', '.join(seen[:3])}")
        owner.abandon(id)
        owner.commit({STORE: numbered(number)})


@cases("abandon.idempotent", "abandon is idempotent, and fine for an id that was never uploaded.")
def abandon_idempotent(bench: BackendBench) -> None:
    """Abandon one upload three times, and one that never was."""
    owner = bench.owner()
    first = owner.commit({STORE: numbered(1)})
    upload = owner.upload({STORE: numbered(2)})
    for _ in range(3):
        owner.abandon(upload.id)
    owner.abandon(bench.next_id())
    bench.expect_restored(first)


@cases("abandon.harmless", "abandon drops what the upload of that id left, and nothing that a checkpoint needs.")
def abandon_harmless(bench: BackendBench) -> None:
    """Abandon commits in between and at the end; all published ones stay."""
    owner = bench.owner(("a", "b"))
    kept: list[Checkpoint] = []
    for number in range(6):
        upload = owner.upload({"a": numbered(number), "b": {b"n": b"%d" % number}})
        if number % 2:
            owner.abandon(upload.id)
        else:
            kept.append(owner.publish(upload))
    for checkpoint in kept if bench.capabilities.point_in_time else kept[-1:]:
        bench.expect_restored(checkpoint)


@cases("abandon.leaves-nothing", "abandon: drop what the upload left behind.", level=Level.FULL)
def abandon_leaves_nothing(bench: BackendBench) -> None:
    """Compare what the backend keeps before and after; a whole upload, and one that failed half-way."""
    owner = bench.owner()
    owner.commit({STORE: numbered(1)})
    owner.cleanup()
    before = bench.files()
    owner.abandon(owner.upload({STORE: numbered(2)}).id)
    expect_equal(before, bench.files(), "what is kept after an upload was abandoned")
    snapshot = owner.snapshot({STORE: numbered(3)}, fail_at=0 if bench.reads_folders else 2)
    expect_error(Exception, lambda: owner.send(snapshot), "upload() of a snapshot that fails")
    owner.abandon(snapshot.id)
    expect_equal(before, bench.files(), "what is kept after an upload failed half-way and was abandoned")


@cases("close.idempotent", "close: idempotent, from any thread; fine before anything, and after an error.")
def close_idempotent(bench: BackendBench) -> None:
    """Close managers in every stage of their life; the owner closes each twice more."""
    for number in range(3):
        owner = bench.owner()
        if number > 0:
            owner.upload({STORE: numbered(number)})
        if number > 1:
            snapshot = owner.snapshot({STORE: numbered(9)}, fail_at=0)
            expect_error(Exception, lambda o=owner, s=snapshot: o.send(s), "upload()")  # type: ignore[misc]
        owner.close()
        on_worker(owner.manager.close)


@cases("close.lets-go", "After close the next owner can begin at once, in the same process.")
def close_lets_go(bench: BackendBench) -> None:
    """Hand one task over five times, closing before and after the successor begins."""
    before: Owner | None = None
    for number in range(5):
        if before is not None and number % 2:
            before.close()
        owner = bench.owner()
        owner.commit({STORE: numbered(number)})
        if before is not None:
            before.close()
        before = owner
    bench.expect_restored(bench.published[bench.place()][0])


@cases("admin.idempotent", "create_resources is idempotent; validate_resources passes after it, and changes no state.")
def admin_idempotent(bench: BackendBench) -> None:
    """Prepare before and after a commit."""
    admin = _admin(bench)
    admin.create_resources()
    admin.create_resources()
    admin.validate_resources()
    checkpoint = bench.owner().commit({STORE: numbered(1)})
    admin.create_resources()
    admin.validate_resources()
    bench.expect_restored(checkpoint)


@cases("admin.garbage", "garbage finds only what no checkpoint needs, and remove is idempotent.", level=Level.FULL)
def admin_garbage(bench: BackendBench) -> None:
    """Remove all that it finds, twice; what is retained stays."""
    owner = bench.owner()
    checkpoints = [owner.commit({STORE: numbered(number)}) for number in range(4)]
    owner.upload({STORE: numbered(5)})
    owner.close()
    retained = checkpoints[:1:-1] if bench.capabilities.point_in_time else checkpoints[-1:]
    for garbage in list(_admin(bench).garbage({bench.place().task: retained}, timedelta(0))):
        expect(bool(garbage.name and garbage.reason), f"garbage without a name or a reason: {garbage!r:.200}")
        garbage.remove()
        garbage.remove()
    for checkpoint in retained:
        bench.expect_restored(checkpoint)


def _admin(bench: BackendBench) -> StateBackendAdmin:
    return bench.make().admin(bench.job_context(), [StoreSpec(STORE, "kit")])
