"""What an upload promises: markers, durability, errors, commits that are given up and made again."""

from __future__ import annotations

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.testing.kit.backend_bench import BackendBench
from millpond.testing.kit.backend_owner import STORE, numbered
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error

cases: Cases[BackendBench] = Cases()

_SLACK = 10_000
_CHILD = "millpond.testing.kit.backend_child"


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
        snapshot = owner.snapshot({STORE: many}, fail_at=min(fail_at, 0 if bench.reads_folders else fail_at))
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
