"""What a checkpoint manager promises about pins, for one that keeps history."""

from __future__ import annotations

from millpond.errors import ConfigError, StateNotFoundError
from millpond.testing.kit.contract import Cases, expect, expect_equal, expect_error
from millpond.testing.kit.manager_bench import TASK, ManagerBench, expect_same

cases: Cases[ManagerBench] = Cases()

_NAMES = ("before upgrade", "v1", "v10", "V1", "a/b", "..", "ä ö", "1-2")


@cases("pins.keep", "pin keeps a copy of the record until unpin, whatever is deleted; ids does not list it.",
       needs=("history",))  # fmt: skip
def keep(bench: ManagerBench) -> None:
    """Pin, delete the record, read it, unpin."""
    claim, made = bench.written(3)
    bench.first.pin(TASK, made[0].id, "kept")
    bench.first.delete(claim, [made[0].id, made[1].id])
    other = bench.manager()
    expect_same(made[0], other.read(TASK, made[0].id), "read of a pinned checkpoint whose record is gone")
    expect_equal([made[2].id], list(other.ids(TASK)), "ids")
    expect_equal({"kept": made[0].id}, other.pins(TASK), "pins")
    other.unpin(TASK, "kept")
    expect_equal({}, bench.first.pins(TASK), "pins after unpin")
    expect_error(StateNotFoundError, lambda: other.read(TASK, made[0].id), "read after unpin")
    bench.expect_last(made[2])


@cases("pins.idempotent", "The same pin again is fine, and so is an unpin of a missing one.", needs=("history",))
def idempotent(bench: ManagerBench) -> None:
    """Pin twice, by two managers; unpin twice."""
    _, made = bench.written(1)
    bench.first.pin(TASK, made[0].id, "a")
    bench.manager().pin(TASK, made[0].id, "a")
    expect_equal({"a": made[0].id}, bench.first.pins(TASK), "pins")
    for _ in range(2):
        bench.first.unpin(TASK, "a")
    bench.first.unpin("nobody", "a")
    expect_equal({}, bench.first.pins(TASK), "pins")
    expect_equal({}, bench.first.pins("nobody"), "the pins of an unknown task")


@cases("pins.refuse", "A name that pins another id is ConfigError; an absent checkpoint is StateNotFoundError.",
       needs=("history",))  # fmt: skip
def refuse(bench: ManagerBench) -> None:
    """Pin another id under a taken name, and an absent one."""
    _, made = bench.written(2)
    bench.first.pin(TASK, made[0].id, "a")
    expect_error(ConfigError, lambda: bench.first.pin(TASK, made[1].id, "a"), "pin of another id under a taken name")
    absent = bench.next_id()
    expect_error(StateNotFoundError, lambda: bench.first.pin(TASK, absent, "b"), "pin of an absent checkpoint")
    expect_equal({"a": made[0].id}, bench.first.pins(TASK), "pins")


@cases("pins.names", "Pins may have any name, and are each task's own.", needs=("history",))
def names(bench: ManagerBench) -> None:
    """Pin under hostile names in two tasks."""
    made = {task: bench.written(1, task)[1][0] for task in ("Partition 1", "Partition 10")}
    for name in _NAMES:
        bench.first.pin("Partition 1", made["Partition 1"].id, name)
    bench.first.pin("Partition 10", made["Partition 10"].id, "v1")
    expect_equal(dict.fromkeys(_NAMES, made["Partition 1"].id), bench.manager().pins("Partition 1"), "pins")
    expect_equal({"v1": made["Partition 10"].id}, bench.manager().pins("Partition 10"), "pins of the other task")
    bench.first.unpin("Partition 1", "v1")
    expect("v1" in bench.first.pins("Partition 10"), "unpin in one task removes another task's pin")
    expect(set(_NAMES) - {"v1"} == set(bench.first.pins("Partition 1")), "unpin removes other pins")
