"""Races for a task, between threads and between processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Barrier

from millpond.checkpoint import Checkpoint, Claim
from millpond.errors import FencedError, TransientError
from millpond.spi import CheckpointManager
from millpond.testing.kit.bench import at_once
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal
from millpond.testing.kit.manager_bench import TASK, ManagerBench

cases: Cases[ManagerBench] = Cases()


@cases("races.claims", "Claims made at once have different epochs, and all but the one with the greatest are refused.")
def claims(bench: ManagerBench) -> None:
    """Claim with four managers at once, several times; then all of them write."""
    for _ in range(max(2, bench.profile.rounds // 4)):
        last = bench.first.read_last(TASK)
        managers = [bench.manager() for _ in range(4)]
        start = Barrier(len(managers))
        got = at_once([_claiming(manager, start) for manager in managers])
        epochs = [claim.epoch for claim in got]
        expect(len(set(epochs)) == len(epochs), f"claims made at once have the epochs {epochs}")
        if not bench.capabilities.fencing:
            continue
        written = [_wrote(bench, manager, claim, last) for manager, claim in zip(managers, got, strict=True)]
        wanted = [claim.epoch == max(epochs) for claim in got]
        expect_equal(wanted, [each is not None for each in written], f"which of the epochs {epochs} could write")


def _claiming(manager: CheckpointManager, start: Barrier) -> Callable[[], Claim]:
    def claim() -> Claim:
        start.wait(30)
        return manager.claim(TASK)

    return claim


def _wrote(bench: ManagerBench, manager: CheckpointManager, claim: Claim, last: Checkpoint | None) -> Checkpoint | None:
    try:
        return bench.write(claim, last, manager)
    except FencedError:
        return None


@cases("races.write-and-claim", "A write is seen by the claim that comes after it, or is refused: never neither.",
       needs=("fencing",))  # fmt: skip
def write_and_claim(bench: ManagerBench) -> None:
    """Let one write while another claims and then reads, many times."""
    for _ in range(bench.profile.rounds):
        writer, taker = bench.manager(), bench.manager()
        claim = writer.claim(TASK)
        last = writer.read_last(TASK)
        start = Barrier(2)
        written, found = at_once(
            [partial(_write_at, start, bench, writer, claim, last), partial(_take_at, start, taker)]
        )
        wanted = written or last
        expect_equal(
            None if wanted is None else wanted.id,
            None if found is None else found.id,
            f"the last checkpoint that the next owner saw; the write {'succeeded' if written else 'was refused'}",
        )


def _write_at(
    start: Barrier, bench: ManagerBench, manager: CheckpointManager, claim: Claim, last: Checkpoint | None
) -> Checkpoint | None:
    start.wait(30)
    return _wrote(bench, manager, claim, last)


def _take_at(start: Barrier, manager: CheckpointManager) -> Checkpoint | None:
    start.wait(30)
    manager.claim(TASK)
    return manager.read_last(TASK)


@cases("races.reads", "Reads from any thread while one writes give what was the last checkpoint at some moment.")
def reads(bench: ManagerBench) -> None:
    """Read with three threads during twenty writes."""
    claim, made = bench.written(1)
    known = {made[0].id}
    start = Barrier(4)

    def write() -> None:
        start.wait(30)
        for _ in range(bench.profile.rounds):
            checkpoint = bench.checkpoint(claim, made[-1])
            known.add(checkpoint.id)
            bench.first.write(claim, checkpoint, after=made[-1].id)
            made.append(checkpoint)

    def read() -> None:
        start.wait(30)
        before = None
        for _ in range(bench.profile.rounds):
            found = bench.first.read_last(TASK)
            expect(found is not None and found.id in known, f"read_last gives {found} while one writes")
            expect(before is None or (found is not None and found.id >= before), "read_last goes back")
            before = found.id if found is not None else before

    at_once([write, read, read, read])
    bench.expect_last(made[-1])


@cases("races.processes", "Of two processes that fight for a task, each success is in the history, and once.",
       level=Level.FULL, needs=("durable", "history", "fencing"))  # fmt: skip
def processes(bench: ManagerBench) -> None:
    """Let two children claim and write in turns as fast as they can; compare what they say with what is there."""
    told = {"job": bench.job, "rounds": 15}
    answers = bench.other_process().ask_all("millpond.testing.kit.manager_child:contend", told, told)
    said = sorted(id for each in answers for id in each["written"])
    there = sorted(str(id) for id in bench.first.ids(TASK))
    expect_equal(said, there, "the ids that two processes say they wrote, and those that are there")
    epochs = [epoch for each in answers for epoch in each["epochs"]]
    expect(len(epochs) == len(set(epochs)), f"two processes had the same epoch: {sorted(epochs)}")
    if not said:
        raise TransientError("neither process ever wrote")
