"""What a checkpoint manager promises about claims: who may write, however long another one slept."""

from __future__ import annotations

import re
from datetime import timedelta

from millpond.checkpoint import Checkpoint, Claim
from millpond.errors import FencedError
from millpond.testing.kit.contract import Cases, expect, expect_equal, expect_error
from millpond.testing.kit.manager_bench import TASK, ManagerBench, expect_same

cases: Cases[ManagerBench] = Cases()


@cases("claim.epoch-grows", "claim: the epoch only grows, and the writer is 128 random bits that no other claim has.")
def epoch_grows(bench: ManagerBench) -> None:
    """Claim ten times, by one manager and by others, with writes in between."""
    claims = []
    for number in range(10):
        manager = bench.first if number % 2 else bench.manager()
        claims.append(manager.claim(TASK))
        if number % 3 == 0:
            last = manager.read_last(TASK)
            bench.write(claims[-1], last, manager)
    epochs = [claim.epoch for claim in claims]
    expect(epochs == sorted(set(epochs)), f"the epochs of claims in a row are {epochs}")
    expect(len({claim.writer for claim in claims}) == len(claims), "two claims have one writer")
    expect(all(re.fullmatch("[0-9a-f]{32}", c.writer) for c in claims), f"a writer is {claims[0].writer!r}")
    expect_equal({TASK}, {claim.task for claim in claims}, "the task of a claim")


@cases("claim.refuses-earlier", "claim: from now on every earlier claim is refused, at write and at delete.",
       needs=("fencing",))  # fmt: skip
def refuses_earlier(bench: ManagerBench) -> None:
    """Let the earlier one write and delete, before and after the later one has written."""
    old, made = bench.written(2)
    other = bench.manager()
    new = other.claim(TASK)
    _expect_fenced(bench, old, made)
    bench.expect_last(made[-1])
    mine = bench.write(new, made[-1], other)
    _expect_fenced(bench, old, made)
    bench.expect_last(mine)
    if bench.capabilities.history:
        expect_same(made[-1], bench.first.read(TASK, made[-1].id), "read after a refused delete")


def _expect_fenced(bench: ManagerBench, claim: Claim, made: list[Checkpoint]) -> None:
    late = bench.checkpoint(claim, made[-1])
    expect_error(FencedError, lambda: bench.first.write(claim, late, after=made[-1].id), "write by a replaced writer")
    expect_error(FencedError, lambda: bench.first.delete(claim, [made[0].id]), "delete by a replaced writer")


@cases("claim.sleeper", "A replaced writer's next write is refused, however long it slept, whatever was removed.",
       needs=("fencing",))  # fmt: skip
def sleeper(bench: ManagerBench) -> None:
    """Let months pass, with other owners that write and delete all but their last; then it wakes."""
    old, made = bench.written(1)
    last = made[-1]
    for _ in range(3):
        bench.clock.turn(timedelta(days=40).total_seconds())
        manager = bench.manager()
        claim = manager.claim(TASK)
        for _ in range(4):
            last = bench.write(claim, manager.read_last(TASK), manager)
        manager.delete(claim, [id for id in manager.ids(TASK) if id != last.id])
    late = bench.checkpoint(old, made[-1])
    expect_error(FencedError, lambda: bench.first.write(old, late, after=made[-1].id), "write by a writer that slept")
    bench.expect_last(last)


@cases("claim.clock-goes-back", "A clock that goes back changes nothing: the later claim is the later one.")
def clock_goes_back(bench: ManagerBench) -> None:
    """Set the clock back by an hour between two claims."""
    old, made = bench.written(1)
    bench.clock.set_back(3600)
    new = bench.manager().claim(TASK)
    expect(new.epoch > old.epoch, f"the later claim's epoch is {new.epoch}, the earlier one's {old.epoch}")
    checkpoint = bench.write(new, made[-1], bench.manager())
    bench.expect_last(checkpoint)


@cases("claim.durable", "claim is durable when it returns: it is another process's to see.", needs=("durable",))
def claim_durable(bench: ManagerBench) -> None:
    """Let a child process claim and write, and kill itself; its claim counts here, and its record is read."""
    old, _ = bench.written(1)
    given = bench.other_process().ask("millpond.testing.kit.manager_child:claim_write_die", killed=True, job=bench.job)
    found = bench.first.read_last(TASK)
    expect_equal(given["id"], str(found.id) if found else None, "the id of what a killed process wrote")
    new = bench.manager().claim(TASK)
    expect(new.epoch > given["epoch"] > old.epoch, f"epochs: {old.epoch}, then {given['epoch']}, then {new.epoch}")
