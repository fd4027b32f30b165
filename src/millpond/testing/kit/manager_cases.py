"""What a checkpoint manager promises: claims, the one commit point, history."""

from __future__ import annotations

from functools import partial
from typing import Any

from attrs import evolve

from millpond.checkpoint import Checkpoint, CheckpointId, SystemStreamPartition
from millpond.errors import ConfigError, FencedError, FormatError, StateCorruptError, StateNotFoundError
from millpond.spi import ManagerCapabilities, VersionPolicy
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error
from millpond.testing.kit.door import damages
from millpond.testing.kit.manager_bench import TASK, ManagerBench, expect_same, rich_fields
from millpond.testing.kit.watching import watched_io

cases: Cases[ManagerBench] = Cases()

_NAMES = ("Partition 1", "Partition 10", "Partition", "partition 1", "a/b", "a", "..", ".", "ä ö", "a%2fb", "x" * 60)
_UNREADABLE = (FormatError, StateCorruptError)


@cases("manager.declares", "spi_version, config_class and capabilities, on the class, say what the manager is.")
def declares(bench: ManagerBench) -> None:
    """See the class's own words."""
    kind = type(bench.first)
    version = getattr(kind, "spi_version", None)
    expect(isinstance(version, tuple) and len(version) == 2, f"spi_version is {version!r}, not a pair of numbers")
    expect(hasattr(kind.config_class, "__attrs_attrs__"), "config_class is no attrs class")
    expect(isinstance(kind.capabilities, ManagerCapabilities), "capabilities is no ManagerCapabilities")
    expect(kind.capabilities.versions <= {1, 2} and kind.capabilities.versions, "versions are some of 1 and 2")


@cases("manager.no-io", "A manager keeps what it is given; no I/O in __init__.", level=Level.FULL)
def no_io(bench: ManagerBench) -> None:
    """Make another one under watch."""
    first = bench.first
    with watched_io() as seen:
        type(first)(first.config, first.job, first.versions).close()
    expect(not seen, f"__init__ does I/O: {', '.join(seen[:3])}")


@cases(
    "resources.idempotent", "create_resources is idempotent, validate_resources passes after it; neither leaves a task."
)
def resources(bench: ManagerBench) -> None:
    """Prepare before and after a write."""
    for _ in range(2):
        bench.first.create_resources()
        bench.first.validate_resources()
    expect_equal([], list(bench.first.tasks()), "the tasks before any claim")
    _, made = bench.written(2)
    bench.first.create_resources()
    bench.first.validate_resources()
    bench.expect_last(made[-1])
    expect_equal([TASK], list(bench.first.tasks()), "the tasks after a write")


@cases("tasks.sorted", "tasks gives the names of the tasks that have a record here, sorted; any names.")
def tasks_sorted(bench: ManagerBench) -> None:
    """Write for tasks with hostile names, each its own."""
    made = {name: bench.written(2, name)[1][-1] for name in _NAMES}
    expect_equal(sorted(_NAMES), list(bench.first.tasks()), "tasks")
    expect_equal(sorted(_NAMES), list(bench.manager().tasks()), "tasks, as another process sees them")
    for name, checkpoint in made.items():
        bench.expect_last(checkpoint, task=name)
        expect_equal(2, len(bench.first.ids(name)) if bench.capabilities.history else 2, f"the ids of task {name!r}")


@cases("read.nothing", "read_last gives None when nothing was ever written, also for a task that was only claimed.")
def read_nothing(bench: ManagerBench) -> None:
    """Ask about a task that nobody knows, and one that was claimed."""
    bench.expect_last(None, task="nobody")
    bench.first.claim(TASK)
    bench.expect_last(None)
    expect_equal([], list(bench.first.ids(TASK)), "the ids of a task without a checkpoint")
    expect_error(StateNotFoundError, lambda: bench.first.read(TASK, CheckpointId(1, 0)), "read of an absent checkpoint")
    expect_error(StateNotFoundError, lambda: bench.first.read("nobody", CheckpointId(1, 0)), "read for an unknown task")


@cases("read.by-id", "read gives the checkpoint with that id; an absent one is StateNotFoundError.")
def read_by_id(bench: ManagerBench) -> None:
    """Read each, and one that is not there, though ids before and after it are."""
    _, made = bench.written(4)
    for checkpoint in made if bench.capabilities.history else made[-1:]:
        expect_same(checkpoint, bench.manager().read(TASK, checkpoint.id), "read")
    absent = CheckpointId(made[1].id.millis, made[1].id.nanos + 1)
    expect_error(StateNotFoundError, lambda: bench.first.read(TASK, absent), "read of an absent checkpoint")


@cases("read.ids", "ids gives what is kept, newest first, as numbers and not as texts.", needs=("history",))
def ids(bench: ManagerBench) -> None:
    """Write ids whose texts sort otherwise."""
    claim = bench.first.claim(TASK)
    wanted = [CheckpointId(9, 5), CheckpointId(9, 10), CheckpointId(10, 0), CheckpointId(100, 1), CheckpointId(1000, 0)]
    after = None
    for id in wanted:
        bench.first.write(claim, Checkpoint(id, claim=claim), after=after)
        after = id
    expect_equal(wanted[::-1], list(bench.first.ids(TASK)), "ids")
    expect_equal(wanted[::-1], list(bench.manager().ids(TASK)), "ids, as another process sees them")


@cases("write.every-field", "write: what is read back is what was written, field by field.")
def every_field(bench: ManagerBench) -> None:
    """Write fields that are hard to keep."""
    claim = bench.first.claim(TASK)
    bench.expect_last(bench.write(claim, None, None, **rich_fields(claim)))


@cases("write.large", "A checkpoint of a thousand stores and inputs is kept whole.")
def large(bench: ManagerBench) -> None:
    """Write one, then a small one, then read the large one."""
    claim = bench.first.claim(TASK)
    markers = {"main": {f"store-{n}": f"{n}" * 30 for n in range(1000)}}
    checkpoint = bench.write(claim, None, markers=markers)
    bench.expect_last(checkpoint)
    bench.expect_last(bench.write(claim, checkpoint))


@cases(
    "write.seen-at-once", "write is the commit point: when it returns, everybody sees the checkpoint, and none before."
)
def seen_at_once(bench: ManagerBench) -> None:
    """Look with another manager, which has looked before, after each write."""
    reader = bench.manager()
    claim = bench.first.claim(TASK)
    last = None
    for _ in range(5):
        expect_same(last, reader.read_last(TASK), "read_last before a write")
        last = bench.write(claim, last)
        expect_same(last, reader.read_last(TASK), "read_last after a write")


@cases("write.after", "write: a record beyond `after`, of another writer, refuses the write.", needs=("fencing",))
def after_unseen(bench: ManagerBench) -> None:
    """Claim, do not read, and write after an older one, and after none."""
    _, made = bench.written(3)
    manager = bench.manager()
    claim = manager.claim(TASK)
    for after in (None, made[0].id, made[1].id):
        write = partial(manager.write, claim, bench.checkpoint(claim), after=after)
        expect_error(FencedError, write, f"write after {after}, not the newest")
    bench.expect_last(made[-1])
    bench.expect_last(bench.write(claim, made[-1], manager))


@cases("write.lost-answer", "write: our own record of the same id is the answer that was lost: success, once.")
def lost_answer(bench: ManagerBench) -> None:
    """Write the same again, twice, as after a lost answer; then the next one."""
    claim, made = bench.written(2)
    for _ in range(2):
        bench.first.write(claim, made[-1], after=made[0].id)
    bench.expect_last(made[-1])
    if bench.capabilities.history:
        expect_equal([c.id for c in made[::-1]], list(bench.first.ids(TASK)), "ids after repeated writes")
    bench.expect_last(bench.write(claim, made[-1]))


@cases(
    "write.impossible", "ConfigError or FormatError: it cannot be written at all, and nothing was.", level=Level.FULL
)
def impossible(bench: ManagerBench) -> None:
    """Write an offset that is no text; then a good checkpoint."""
    claim, made = bench.written(1)
    offsets: Any = {SystemStreamPartition("kafka", "flights", 0): 17}
    bad = evolve(bench.checkpoint(claim, made[-1]), offsets=offsets)
    doing = "write of an offset that is no text"
    expect_error((ConfigError, FormatError), lambda: bench.first.write(claim, bad, after=made[-1].id), doing)
    bench.expect_last(made[-1])
    bench.expect_last(bench.write(claim, made[-1]))


@cases("write.after-going-back", "After going back to an older checkpoint the next is written; newer ones stay.",
       needs=("history",))  # fmt: skip
def after_going_back(bench: ManagerBench) -> None:
    """Build on the first of three: `after` is the newest seen, `parent` what it builds on."""
    _, made = bench.written(3)
    manager = bench.manager()
    claim = manager.claim(TASK)
    checkpoint = bench.checkpoint(claim, made[0])
    manager.write(claim, checkpoint, after=made[-1].id)
    bench.expect_last(checkpoint)
    expect_equal([checkpoint.id, *(c.id for c in made[::-1])], list(manager.ids(TASK)), "ids")


@cases("delete.removes", "delete removes the records named, and no other; missing ones are fine; again is fine.",
       needs=("history",))  # fmt: skip
def delete(bench: ManagerBench) -> None:
    """Delete some, with ids that are not there."""
    claim, made = bench.written(6)
    doomed = [made[0].id, made[2].id, CheckpointId(1, 1)]
    for _ in range(2):
        bench.first.delete(claim, doomed)
        bench.first.delete(claim, [])
    kept = [c for c in made if c.id not in doomed]
    expect_equal([c.id for c in kept[::-1]], list(bench.manager().ids(TASK)), "ids after delete")
    expect_error(StateNotFoundError, lambda: bench.first.read(TASK, made[0].id), "read of a deleted checkpoint")
    for checkpoint in kept:
        expect_same(checkpoint, bench.manager().read(TASK, checkpoint.id), "read after delete")
    bench.expect_last(bench.write(claim, made[-1]))


@cases("delete.newest", "The newest may be deleted too, and all: earlier claims stay refused, and writing goes on.",
       needs=("history",))  # fmt: skip
def delete_newest(bench: ManagerBench) -> None:
    """Delete the newest, then all that is left; then write."""
    old, _ = bench.written(1)
    manager = bench.manager()
    claim = manager.claim(TASK)
    first = bench.write(claim, manager.read_last(TASK), manager)
    second = bench.write(claim, first, manager)
    manager.delete(claim, [second.id])
    bench.expect_last(first)
    manager.delete(claim, list(manager.ids(TASK)))
    bench.expect_last(None)
    if bench.capabilities.fencing:
        late = bench.checkpoint(old)
        expect_error(FencedError, lambda: bench.first.write(old, late, after=None), "write by a replaced writer")
    bench.expect_last(bench.write(claim, None, manager))


@cases("jobs.apart", "Two jobs side by side, one's name a prefix of the other's or with another id, are apart.")
def jobs_apart(bench: ManagerBench) -> None:
    """One task's name in four jobs."""
    jobs = [(bench.job, "1"), (bench.job, "11"), (f"{bench.job}1", "1"), (f"{bench.job}/a b.Ä", "1")]
    made = {}
    for job, job_id in jobs:
        manager = bench.manager(job, job_id)
        manager.create_resources()
        claim = manager.claim(TASK)
        made[job, job_id] = bench.write(claim, None, manager)
    for (job, job_id), checkpoint in made.items():
        manager = bench.manager(job, job_id)
        expect_same(checkpoint, manager.read_last(TASK), f"job {job!r} with id {job_id!r}")
        expect_equal([TASK], list(manager.tasks()), f"the tasks of job {job!r} with id {job_id!r}")


@cases(
    "damage.raises", "A record that cannot be read raises FormatError or StateCorruptError; it is never passed over."
)
def damage(bench: ManagerBench) -> None:
    """Damage each thing that is kept in each way, one at a time."""
    door = bench.side_door()
    _, made = bench.written(3)
    noticed = 0
    for name in list(door.names()):
        whole = door.read(name)
        for what, damaged in damages(whole).items():
            door.write(name, damaged)
            try:
                expect_same(made[-1], bench.manager().read_last(TASK), f"read_last with {name} {what}")
            except _UNREADABLE:
                noticed += 1
        door.write(name, whole)
    expect(noticed, "no damage was noticed: the side door may show another place")
    bench.expect_last(made[-1])


@cases("damage.named", "The error of an unreadable record says which record it is.", level=Level.FULL)
def damage_named(bench: ManagerBench) -> None:
    """Empty everything that is kept; the error names one of the things."""
    door = bench.side_door()
    bench.written(1)
    for name in door.names():
        door.write(name, b"")
    error = expect_error(_UNREADABLE, lambda: bench.manager().read_last(TASK), "read_last of empty records")
    last_parts = [name.rpartition("/")[2] for name in door.names()]
    expect(any(part in str(error) for part in last_parts), f"the error names no record: {error}")


@cases("versions.each", "versions: each version that is declared is written and read back.")
def versions(bench: ManagerBench) -> None:
    """Write by each version alone; a V1 keeps offsets only."""
    for version in sorted(bench.capabilities.versions):
        manager = bench.manager(f"{bench.job}-v{version}", versions=VersionPolicy(write=(version,), read=(version,)))
        manager.create_resources()
        claim = manager.claim(TASK)
        checkpoint = bench.write(claim, None, manager, **({} if version == 2 else {"markers": {}, "images": {}}))
        found = manager.read_last(TASK)
        expect(found is not None, f"a checkpoint written as V{version} is not read")
        expect_equal(checkpoint.offsets, found.offsets if found else {}, f"the offsets of a V{version}")


@cases("close.reopens", "close is idempotent, and what was written is there for the next manager.")
def close_reopens(bench: ManagerBench) -> None:
    """Close and go on with a new one, several times."""
    last = None
    for _ in range(4):
        manager = bench.manager()
        expect_same(last, manager.read_last(TASK), "read_last of the next manager")
        claim = manager.claim(TASK)
        last = bench.write(claim, last, manager)
        manager.close()
        manager.close()
