"""What each verb of a state backend promises: markers, threads, idempotence, errors, closing."""

from __future__ import annotations

import time
from datetime import timedelta

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.spi import Capabilities, Facet, StateBackendAdmin, StoreSpec
from millpond.testing.kit.backend_bench import STORE, BackendBench, Owner, numbered
from millpond.testing.kit.bench import on_worker
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error
from millpond.testing.kit.watching import watched_io

cases: Cases[BackendBench] = Cases()

_SNAPSHOT_S = 0.02
_SLACK = 10_000
_CHILD = "millpond.testing.kit.backend_child"


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


@cases("upload.markers", "upload: gives a marker for each of snapshot.stores, no more and no fewer.")
def upload_markers(bench: BackendBench) -> None:
    """Make two of three stores dirty; the owner checks the markers."""
    owner = bench.owner(("a", "b", "c"))
    owner.commit({name: numbered(1) for name in "abc"})
    checkpoint = owner.commit({"a": numbered(2), "c": numbered(2)})
    bench.expect_restored(checkpoint)


@cases("upload.durable-at-once", "upload: when it returns, its markers are durable: whoever comes next restores them.")
def upload_durable_at_once(bench: BackendBench) -> None:
    """Restore with another factory while the first manager is open, before anything is published."""
    owner = bench.owner()
    upload = owner.upload({STORE: numbered(1)})
    found = bench.restore(upload.markers, Checkpoint(upload.id), bench.place())
    expect_equal(upload.state[STORE], found[STORE], "right after upload() returned")


@cases("upload.survives-kill", "durable: what upload() returned survives the process.", needs=("durable",))
def upload_survives_kill(bench: BackendBench) -> None:
    """Let a child process upload and kill itself at once; its markers have to be good here."""
    given = bench.other_process().ask(f"{_CHILD}:upload_and_die", killed=True, job=bench.job)
    found = bench.restore(given["markers"], Checkpoint(CheckpointId.parse(given["id"])), bench.place())
    expect_equal(numbered(1), found[STORE], "after the process that uploaded it was killed")


@cases("upload.survives-a-kill-within", "A process killed in the middle of an upload harms no earlier checkpoint.",
       level=Level.FULL, needs=("durable",))  # fmt: skip
def upload_killed_within(bench: BackendBench) -> None:
    """Let a child take the task over and die half-way; then go on here."""
    owner = bench.owner()
    first = owner.commit({STORE: numbered(1)})
    markers = dict(first.markers["main"])
    told = {"job": bench.job, "id": str(first.id), "markers": markers, "epoch": bench.next_epoch()}
    bench.other_process().ask(f"{_CHILD}:die_within_upload", killed=True, **told)
    bench.expect_restored(first)
    after = bench.owner()
    second = after.commit({STORE: numbered(2)}, retain=1)
    bench.expect_restored(second)


@cases("upload.only-declared-facets", "Only the facets that are declared are read, and only of the dirty stores.")
def upload_only_declared(bench: BackendBench) -> None:
    """Commit with and without a base; the snapshot notes what else is read."""
    owner = bench.owner(("a", "b"))
    owner.commit({"a": numbered(1), "b": numbered(1)})
    owner.commit({"a": numbered(2)})
    owner.publish(owner.upload({"b": numbered(3)}, based=False))


@cases("upload.reads-while-it-runs", "A snapshot is usable until upload() returns, and not after.")
def upload_reads_while_running(bench: BackendBench) -> None:
    """Commit twice, so that what was put off would be read in between; the snapshot notes it."""
    owner = bench.owner()
    owner.commit({STORE: {b"k%04d" % n: b"v" for n in range(3000)}})
    bench.expect_restored(owner.commit({STORE: numbered(1)}))


@cases(
    "upload.error-raised", "An error while the snapshot is read is raised, never swallowed: no marker without its data."
)
def upload_error_raised(bench: BackendBench) -> None:
    """Let the reading fail after one and after many records, then commit the same changes."""
    owner = bench.owner()
    first = owner.commit({STORE: numbered(1)})
    many: dict[bytes, bytes | None] = {b"x%05d" % n: b"v" * 10 for n in range(2500)}
    for fail_at in (0, 1, 1500):
        snapshot = owner.snapshot({STORE: many}, fail_at=min(fail_at, 0 if _reads_folders(bench) else fail_at))
        expect_error(Exception, lambda s=snapshot: owner.send(s), "upload() of a snapshot that fails")  # type: ignore[misc]
        owner.abandon(snapshot.id)
        bench.expect_restored(first)
    bench.expect_restored(owner.commit({}))


@cases("upload.given-up", "upload calls snapshot.check(): one that is given up before it begins raises.")
def upload_given_up(bench: BackendBench) -> None:
    """Give the commit up at once, abandon it, and commit the same changes again."""
    owner = bench.owner()
    first = owner.commit({STORE: numbered(1)})
    snapshot = owner.snapshot({STORE: numbered(2)}, give_up_at=0)
    expect_error(Exception, lambda: owner.send(snapshot), "upload() of a commit that was given up")
    owner.abandon(snapshot.id)
    bench.expect_restored(first)
    bench.expect_restored(owner.commit({}))


@cases("upload.given-up-within", "check() is called between pieces of work: an upload that is given up ends soon.",
       level=Level.FULL)  # fmt: skip
def upload_given_up_within(bench: BackendBench) -> None:
    """Give up in the middle of a large upload, and count what is still read."""
    stores = tuple(f"s{number:02d}" for number in range(24))
    owner = bench.owner(stores)
    content: dict[bytes, bytes | None] = {b"k%05d" % n: b"v" * 10 for n in range(1500)}
    snapshot = owner.snapshot(dict.fromkeys(stores, content), give_up_at=5_000)
    expect_error(Exception, lambda: owner.send(snapshot), "upload() of a commit that was given up in the middle")
    read = snapshot.after_end
    expect(read <= _SLACK, f"after it was given up, upload() still read {read} records; {_SLACK} are allowed")
    owner.abandon(snapshot.id)
    bench.expect_restored(owner.commit({}))


@cases("upload.again-after-abandon", "upload may be called again for the same changes under a later id, after abandon.")
def upload_again(bench: BackendBench) -> None:
    """Abandon two uploads of the same changes; the third is published."""
    owner = bench.owner(("a", "b"))
    owner.commit({"a": numbered(1), "b": numbered(1)})
    for number in (2, 3):
        owner.abandon(owner.upload({"a": numbered(number)}).id)
    bench.expect_restored(owner.commit({"a": {b"last": b"end"}}))


@cases(
    "upload.again-without-abandon", "abandon is best effort: a later upload does not need the earlier one abandoned."
)
def upload_again_without_abandon(bench: BackendBench) -> None:
    """Leave two uploads lying; what they wrote that a later one did not must not come back."""
    owner = bench.owner()
    owner.commit({STORE: numbered(1)})
    owner.upload({STORE: {b"ghost": b"1", b"k0001": b"changed"}})
    owner.upload({STORE: {b"ghost": None}})
    checkpoint = owner.commit({STORE: {b"k0001": b"again"}})
    bench.expect_restored(checkpoint)
    owner.cleanup()
    bench.expect_restored(checkpoint)


@cases(
    "upload.without-base", "Without a base, changes are every live key: what the store no longer has must not return."
)
def upload_without_base(bench: BackendBench) -> None:
    """Delete most of a store while the changes are not at hand."""
    owner = bench.owner()
    owner.commit({STORE: {b"k%02d" % n: b"v" for n in range(20)}})
    gone: dict[bytes, bytes | None] = {b"k%02d" % n: None for n in range(1, 20)}
    bench.expect_restored(owner.publish(owner.upload({STORE: gone}, based=False)))


@cases("upload.unchanged", "A store may need an upload although nothing in it changed.")
def upload_unchanged(bench: BackendBench) -> None:
    """Upload a store whose changes since the base are none."""
    owner = bench.owner()
    owner.commit({STORE: numbered(1)})
    bench.expect_restored(owner.commit({STORE: {}}))


@cases("upload.removes-nothing", "upload: remove nothing here: this commit may still fail.")
def upload_removes_nothing(bench: BackendBench) -> None:
    """Upload many times without publishing; the published one stays restorable."""
    owner = bench.owner()
    first = owner.commit({STORE: {b"k%02d" % n: b"v" for n in range(20)}})
    for number in range(6):
        owner.upload({STORE: {b"k%02d" % number: None, b"new": b"%d" % number}})
        bench.expect_restored(first)


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
    snapshot = owner.snapshot({STORE: numbered(3)}, fail_at=0 if _reads_folders(bench) else 2)
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


def _reads_folders(bench: BackendBench) -> bool:
    return bench.capabilities.facets == Facet.DIRECTORY
