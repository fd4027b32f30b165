"""Cleaning up, owners that were replaced, and neighbours: nobody harms what another needs."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from millpond.checkpoint import Checkpoint
from millpond.errors import MillpondError
from millpond.testing.kit.backend_bench import BackendBench
from millpond.testing.kit.backend_owner import STORE, Owner, Place, numbered
from millpond.testing.kit.contract import Cases, Level, NotShownError, expect

cases: Cases[BackendBench] = Cases()


@cases("cleanup.keeps-retained", "cleanup removes nothing that a checkpoint in retained needs, pinned ones included.")
def keeps_retained(bench: BackendBench) -> None:
    """Keep the newest two and a pinned old one, over many commits."""
    owner = bench.owner(("a", "b"))
    pinned = owner.commit({"a": numbered(0), "b": numbered(0)})
    for number in range(1, 9):
        owner.commit({"a": numbered(number), **({"b": numbered(number)} if number == 4 else {})})
        retained = _retained(bench, owner, pinned)
        owner.cleanup(retained)
        for checkpoint in retained:
            bench.expect_restored(checkpoint)


def _retained(bench: BackendBench, owner: Owner, pinned: Checkpoint) -> list[Checkpoint]:
    if not bench.capabilities.point_in_time:
        return bench.published[owner.place][:1]
    newest = bench.published[owner.place][:2]
    return newest if pinned in newest else [*newest, pinned]


@cases(
    "cleanup.idempotent",
    "cleanup is idempotent and computed anew each time: it may be repeated, or have been left out.",
)
def cleanup_idempotent(bench: BackendBench) -> None:
    """Leave it out for some commits, then do it three times; and before the first commit."""
    owner = bench.owner()
    owner.cleanup([])
    checkpoint = [owner.commit({STORE: numbered(number)}) for number in range(5)][-1]
    for _ in range(3):
        owner.cleanup([checkpoint])
    bench.expect_restored(checkpoint)
    bench.expect_restored(owner.commit({STORE: numbered(9)}, retain=1))


@cases(
    "cleanup.unretained-base",
    "The next commit works when its base was the only checkpoint that was retained.",
)
def unretained_base(bench: BackendBench) -> None:
    """Clean up between an upload's base and the commit after it, again and again."""
    owner = bench.owner()
    for number in range(6):
        bench.expect_restored(owner.commit({STORE: numbered(number)}, retain=1))


@cases("cleanup.removes", "cleanup removes what superseded checkpoints alone held: nothing grows for ever.",
       level=Level.FULL)  # fmt: skip
def cleanup_removes(bench: BackendBench) -> None:
    """Replace one large value many times, keeping one checkpoint; let the grace pass."""
    door, owner = bench.side_door(), bench.owner()
    size, commits = 50_000, 40
    for number in range(commits):
        owner.commit({STORE: {b"k": bytes([number]) * size}}, retain=1)
    grace = bench.capabilities.grace or timedelta(0)
    bench.clock.turn(grace.total_seconds() + 1)
    owner.commit({STORE: {b"k": b"last"}}, retain=1)
    kept = door.size()
    expect(kept < size * commits // 2, f"{kept} bytes are kept after {commits} commits of {size} bytes each")


@cases("cleanup.removes-orphans", "cleanup: a grace period after the claim, what earlier epochs left goes too.",
       level=Level.FULL)  # fmt: skip
def removes_orphans(bench: BackendBench) -> None:
    """Let an owner leave large uploads lying; a day after the next claim they are gone."""
    door, owner = bench.side_door(), bench.owner()
    owner.commit({STORE: numbered(1)})
    before = door.size()
    for number in range(5):
        owner.upload({STORE: {b"big": bytes([number]) * 100_000}})
    owner.close()
    after = bench.owner()
    after.commit({STORE: numbered(2)}, retain=1)
    if door.size() > before + 100_000:
        bench.clock.turn(86_400 * 2)
        bench.expect_restored(after.commit({STORE: numbered(3)}, retain=1))
    kept = door.size() - before
    expect(kept < 100_000, f"{kept} bytes more than before are kept two days after their owner was replaced")


@cases("cleanup.grace", "grace: what is removed stays readable for so long, for a restore that has begun.",
       level=Level.FULL, needs=("grace",))  # fmt: skip
def cleanup_grace(bench: BackendBench) -> None:
    """Restore a checkpoint right after it was cleaned up."""
    owner = bench.owner()
    first = owner.commit({STORE: numbered(1)})
    owner.commit({STORE: numbered(2)}, retain=1)
    bench.expect_restored(first)


@cases("owners.handover", "The next owner builds on what its predecessor published, and may clean it up.")
def handover(bench: BackendBench) -> None:
    """Hand a task over six times, without a close; every owner commits twice."""
    for number in range(6):
        owner = bench.owner(("a", "b"))
        owner.commit({"a": numbered(number)}, retain=1)
        bench.expect_restored(owner.commit({"b": numbered(number)}, retain=1))


@cases("owners.zombie-upload", "A replaced writer may still upload: its uploads change nothing for its successor.")
def zombie_upload(bench: BackendBench) -> None:
    """Let the old owner upload before and after the new one's commits."""
    old = bench.owner()
    old.commit({STORE: numbered(1)})
    new = bench.owner()
    _try_upload(old, 2)
    checkpoint = new.commit({STORE: numbered(3)})
    bench.expect_restored(checkpoint)
    _try_upload(old, 4)
    bench.expect_restored(checkpoint)
    checkpoint = new.commit({STORE: numbered(5)}, retain=1)
    _try_upload(old, 6)
    bench.expect_restored(checkpoint)
    bench.owner()


def _try_upload(zombie: Owner, number: int) -> None:
    """Let *zombie* upload; that it is refused is as good."""
    with suppress(MillpondError):
        zombie.upload({STORE: {b"zombie": b"%d" % number, b"last": b"zombie"}})


@cases("owners.zombie-abandon", "A replaced writer that abandons its commit harms nothing of its successor's.")
def zombie_abandon(bench: BackendBench) -> None:
    """Let the old owner abandon all that it uploaded, when the new one has published."""
    old = bench.owner()
    first = old.commit({STORE: numbered(1)})
    late = old.snapshot({STORE: numbered(2)})
    old.send(late)
    new = bench.owner()
    checkpoint = new.commit({STORE: {}})
    with suppress(MillpondError):
        old.abandon(late.id)
    bench.expect_restored(checkpoint)
    if bench.capabilities.point_in_time:
        bench.expect_restored(first)


@cases(
    "owners.zombie-cleanup", "A late clean-up of a replaced writer never touches what its successor made or builds on."
)
def zombie_cleanup(bench: BackendBench) -> None:
    """Let it clean up with what it knew, when its successor has uploaded, and when it has published."""
    old = bench.owner()
    first = old.commit({STORE: numbered(1)})
    new = bench.owner()
    upload = new.upload({STORE: numbered(2)})
    _try_cleanup(old, [first])
    second = new.publish(upload)
    bench.expect_restored(second)
    _try_cleanup(old, [first])
    bench.clock.turn(86_400)
    _try_cleanup(old, [first])
    bench.expect_restored(second)
    bench.expect_restored(new.commit({STORE: numbered(3)}, retain=1))


def _try_cleanup(zombie: Owner, retained: list[Checkpoint]) -> None:
    with suppress(MillpondError):
        zombie.cleanup(retained)


@cases("owners.cleanup-during-restore", "The start-up clean-up of a new owner leaves what its predecessor published.")
def cleanup_at_start(bench: BackendBench) -> None:
    """Clean up before the first commit, with and without what was retained in several tasks."""
    old = bench.owner()
    published = [old.commit({STORE: numbered(number)}) for number in range(3)]
    new = bench.owner()
    new.cleanup()
    for checkpoint in published if bench.capabilities.point_in_time else published[-1:]:
        bench.expect_restored(checkpoint)
    bench.expect_restored(new.commit({STORE: {}}))


@cases("owners.one-id", "One id made by two owners: each marker gives its own owner's content.")
def one_id(bench: BackendBench) -> None:
    """Let two owners upload other content under one id, either first; the later owner publishes."""
    for first in (0, 1):
        owners = [bench.owner(), bench.owner()]
        id = bench.next_id()
        uploads = {}
        for number in (first, 1 - first):
            with suppress(MillpondError):  # the replaced one may be refused
                uploads[number] = owners[number].upload({STORE: {b"mine": b"%d" % number}}, id=id)
        expect(1 in uploads, "the owner of the task cannot upload")
        checkpoint = owners[1].publish(uploads[1])
        bench.expect_restored(checkpoint)
        with suppress(MillpondError):
            owners[0].abandon(id)
        bench.expect_restored(checkpoint)
        owners[1].close()


def _side_by_side(bench: BackendBench, one: Place, other: Place) -> None:
    """Commit at two places in turn; what either cleans up, abandons or uploads is its own."""
    owners = [bench.owner(("a", "a.b"), place=place) for place in (one, other)]
    for number in range(4):
        for owner in owners:
            content = {b"me": repr(owner.place).encode(), b"n": b"%d" % number}
            owner.commit({"a": content, "a.b": {**content, b"x": b"y"}}, retain=1)
    owners[0].abandon(owners[0].upload({"a": {b"me": b"given up"}}).id)
    owners[0].cleanup(bench.published[one][:1])
    owners[0].close()
    for owner in owners:
        bench.expect_restored(bench.published[owner.place][0], owner.place)
    bench.expect_restored(owners[1].commit({"a": numbered(1)}), other)


@cases("neighbours.tasks", "Two tasks side by side, the name of one a prefix of the other's: neither sees the other.")
def neighbour_tasks(bench: BackendBench) -> None:
    """Partition 1 and Partition 10."""
    _side_by_side(bench, bench.place(task="Partition 1"), bench.place(task="Partition 10"))
    _side_by_side(bench, bench.place(task="Partition 2/a"), bench.place(task="Partition 2"))


@cases("neighbours.jobs", "Two jobs side by side, the name of one a prefix of the other's, or with another id.")
def neighbour_jobs(bench: BackendBench) -> None:
    """A job, one with a longer name, and the same with another id."""
    _side_by_side(bench, bench.place(), bench.place(job=f"{bench.job}-2"))
    _side_by_side(bench, bench.place(task="x"), bench.place(task="x", job_id="2"))


@cases("neighbours.sections", "Two sections of one type side by side, the name of one a prefix of the other's.")
def neighbour_sections(bench: BackendBench) -> None:
    """Two keys of markers in one task."""
    if type(bench.factory).marker_key is not None:
        raise NotShownError("its marker_key allows one section only")
    _side_by_side(bench, bench.place(backend="main"), bench.place(backend="main2"))


@cases("neighbours.removed-store", "A store configured no more is restorable while a retained checkpoint has it.",
       needs=("point_in_time",))  # fmt: skip
def removed_store(bench: BackendBench) -> None:
    """Leave one store out for some commits, with clean-ups, then restore the checkpoint that has it."""
    owner = bench.owner(("a", "b"))
    first = owner.commit({"a": numbered(1), "b": numbered(1)})
    owner.close()
    after = bench.owner(("a",))
    for number in range(3):
        newest = after.commit({"a": numbered(number)})
        after.cleanup([newest, first])
        bench.expect_restored(first)
        bench.expect_restored(newest)
