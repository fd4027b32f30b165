"""What a log promises of owners: the later writer of one ends the earlier, whatever that was doing."""

from __future__ import annotations

from functools import partial

from millpond.errors import FencedError
from millpond.log import Append, LogWriter
from millpond.testing.kit.bench import on_worker
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error
from millpond.testing.kit.log_bench import LogBench
from millpond.testing.kit.log_child import EACH

cases: Cases[LogBench] = Cases()
_CHILD = "millpond.testing.kit.log_child"


@cases("writer.ends-earlier", "writer ends every earlier writer of that owner: each of its verbs raises FencedError.",
       needs=("fencing",))  # fmt: skip
def ends_earlier(bench: LogBench) -> None:
    """Replace a writer between appends, twice, through this log and another one."""
    name = bench.topic()
    writers = [bench.writer(), bench.writer(), bench.writer(log=bench.another())]
    for earlier in writers[:-1]:
        expect_error(FencedError, partial(_whole, earlier, name, b"earlier"), "an append by an earlier writer")
    _whole(writers[-1], name, b"last")
    expect_equal([(b"last", b"v")], bench.changes(name), "the records of a writer and of those that it has replaced")


@cases("writer.ends-open", "When writer returns, an append of an earlier one that is not committed never will be.",
       needs=("fencing",))  # fmt: skip
def ends_open(bench: LogBench) -> None:
    """Replace writers whose appends are begun, filled, and flushed."""
    for log in (bench.log, bench.another()):
        for stage in ("begun", "filled", "flushed"):
            name = bench.topic()
            append = bench.writer(stage).append()
            if stage != "begun":
                append.add(name, 0, [(b"earlier", b"v")] * 10)
            if stage == "flushed":
                append.flush()
            later = bench.writer(stage, log)
            expect_error(FencedError, partial(_finish, append, name), f"the end of an append that was {stage}")
            append.abort()
            expect_equal([], bench.changes(name), f"what is read of a replaced writer's append that was {stage}")
            _whole(later, name, b"later")
            expect_equal([(b"later", b"v")], bench.changes(name), "the records of the later writer")


def _finish(append: Append, name: str) -> None:
    append.add(name, 0, [(b"late", b"v")])
    append.flush()
    append.commit()


def _whole(writer: LogWriter, name: str, key: bytes) -> None:
    with writer.append() as append:
        append.add(name, 0, [(key, b"v")])
        append.flush()
        append.commit()


@cases(
    "writer.frees",
    "An append that its writer never ends hides nothing of what is committed after the owner has its next writer.",
    needs=("fencing",),
)
def frees(bench: LogBench) -> None:
    """Leave an append open, become the owner's writer, and commit by somebody else: all of that is read."""
    name = bench.topic()
    append = bench.writer("stuck").append()
    append.add(name, 0, [(b"stuck", b"v")])
    append.flush()
    bench.writer("stuck", bench.another())
    bench.write(name, [(b"free", b"v")])
    expect_equal(
        [(b"free", b"v")], bench.changes(name), "the records after an open append was ended by its owner's next writer"
    )


@cases("owners.any", "owner: any text without control characters; one does not end another's writer.")
def owners(bench: LogBench) -> None:
    """Let owners whose names are alike append in turns."""
    words = ("a", "a/b", "A", "a b", "a.b", "a_b", "ä", "日本", "%61", "a\u0301", "x" * 120)
    name = bench.topic()
    writers = [bench.writer(word) for word in words]
    for _ in range(2):
        for word, writer in zip(words, writers, strict=True):
            _whole(writer, name, word.encode())
    wanted = [word.encode() for word in words] * 2
    expect_equal(wanted, [key for key, _ in bench.changes(name)], "the records of owners whose names are alike")


@cases(
    "writer.close", "close of a writer: give up what is open; idempotent, from any thread; the owner can have another."
)
def close(bench: LogBench) -> None:
    """Close writers that did nothing, that committed, and that have an append open."""
    name = bench.topic()
    for doing in range(3):
        writer = bench.log.writer(bench.owner("closing"))
        if doing == 1:
            _whole(writer, name, b"kept")
        elif doing == 2:
            append = writer.append()
            append.add(name, 0, [(b"dropped", b"v")])
            append.flush()
        on_worker(writer.close)
        writer.close()
    _whole(bench.writer("closing"), name, b"next")
    found = [key for key, _ in bench.changes(name)]
    expect(found[0] == b"kept" and found[-1] == b"next", f"the records of writers that were closed: {found}")
    expect(len(found) == 2 or not bench.log.capabilities.fencing, f"an append that was open is read: {found}")


@cases("owners.killed", "A process that is killed before commit: nothing of its append is read, and it hides nothing.",
       needs=("fencing", "shared"))  # fmt: skip
def killed(bench: LogBench) -> None:
    """Let a child flush to two partitions and die; become its owner's writer, and go on."""
    name = bench.topic(2)
    told = {"topic": name, "owner": bench.owner(), "count": 200}
    bench.other_process().ask(f"{_CHILD}:flush_and_die", killed=True, **told)
    for partition in (0, 1):
        expect_equal([], bench.changes(name, partition), "the records of a process that died before its commit")
    writer = bench.writer()
    for partition in (0, 1):
        bench.write(name, [(b"next", b"v")], partition, writer)
        expect_equal([(b"next", b"v")], bench.changes(name, partition), "the records of its owner's next writer")


@cases("owners.zombie", "A process that slept while its owner got a later writer: its commit raises FencedError.",
       needs=("fencing", "shared"))  # fmt: skip
def zombie(bench: LogBench) -> None:
    """Let a child flush and sleep, take its owner over, append, and wake it."""
    name = bench.topic()
    arguments = {"topic": name, "owner": bench.owner()}
    with bench.other_process().running(f"{_CHILD}:flush_and_commit_late", arguments) as (child,):
        expect_equal("flushed", child.hear(), "what a child says before it sleeps")
        _whole(bench.writer(), name, b"successor")
        child.tell("go on")
        expect_equal("fenced", child.answer(), "how the commit of a replaced process ended")
    expect_equal([(b"successor", b"v")], bench.changes(name), "the records after a replaced process woke")


@cases(
    "owners.race",
    "Of processes that fight for an owner, each append that was committed is in the log, whole and once.",
    level=Level.FULL,
    needs=("fencing", "shared"),
)
def race(bench: LogBench) -> None:
    """Let three children become the writer and append as fast as they can; compare what they say with what is there."""
    name, rounds = bench.topic(), 15
    told = [{"topic": name, "owner": bench.owner(), "me": me, "rounds": rounds} for me in range(3)]
    answers = bench.other_process().ask_all(f"{_CHILD}:contend", *told)
    said = {(b"%d/%d" % (me, number)): word for me, answer in enumerate(answers) for number, word in answer}
    found = bench.changes(name)
    seen: list[bytes] = []
    for at in range(0, len(found), EACH):
        part = found[at : at + EACH]
        key = part[0][0]
        wanted = [(key, b"%d" % number) for number in range(EACH)]
        expect_equal(wanted, part, "the records of one append, which lie together where appends do not overlap")
        seen.append(key)
    expect(len(seen) == len(set(seen)), "an append is in the log twice")
    committed = {key for key, word in said.items() if word == "committed"}
    expect(committed <= set(seen), f"committed, and not in the log: {sorted(committed - set(seen))}")
    fenced = {key for key, word in said.items() if word == "fenced"} & set(seen)
    expect(not fenced, f"refused, and in the log all the same: {sorted(fenced)}")
