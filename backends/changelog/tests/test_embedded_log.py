"""The embedded log under damage, torn ends, several processes and compaction."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import ConfigError, FencedError, StateCorruptError, StateNotFoundError, TransientError
from millpond.points import arm
from millpond.spi import Change
from millpond_changelog.embedded.compaction import Rules, compact
from millpond_changelog.embedded.log import EmbeddedLog
from millpond_changelog.embedded.segments import Segment, in_force

TOPIC = "flights.of.today"
DAY_MS = 86_400_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    log = EmbeddedLog(tmp_path / "log", timeout_s=10)
    log.create(TOPIC, 2, {"segment.bytes": "100000"})
    yield log
    log.close()


def append(log: EmbeddedLog, *changes: Change, owner: str = "me", partition: int = 0) -> None:
    with log.writer(owner).append() as append:
        append.add(TOPIC, partition, changes)
        append.flush()
        append.commit()


def read(log: EmbeddedLog, partition: int = 0) -> list[Change]:
    extent = log.extent(TOPIC, partition)
    return [c for batch in log.read(TOPIC, partition, extent.start, extent.end) for c in batch.changes()]


def segment(log: EmbeddedLog) -> Path:
    """Give the segment that grows."""
    (folder,) = (log.directory / "topics").iterdir()
    return max((folder / "0").glob("*.log"))


# Torn ends and damage


def test_a_torn_end_is_cut_to_the_last_whole_frame(log: EmbeddedLog) -> None:
    """Whatever part of an append reached the disk before the power went, what was committed is read, and goes on."""
    append(log, (b"a", b"1"))
    path = segment(log)
    whole = path.read_bytes()
    with log.writer("me").append() as lost:
        lost.add(TOPIC, 0, [(b"lost", b"x" * 50)])
        lost.flush()
    torn = path.read_bytes()[: len(whole) + 120]
    (owner,) = (file for file in (log.directory / "owners").iterdir() if not file.suffix)
    said = owner.read_bytes()
    for length in range(len(whole) + 1, len(torn)):
        path.write_bytes(torn[:length] + b"\0" * (length % 7))
        owner.write_bytes(said)
        again = EmbeddedLog(log.directory)
        assert [(b"a", b"1")] == read(again)
        append(again, (b"b", b"2"))
        assert [(b"a", b"1"), (b"b", b"2")] == read(again)
        again.close()


def test_a_torn_end_before_whole_frames_that_nobody_was_told_of_is_cut_too(log: EmbeddedLog) -> None:
    """A disk that wrote the later part of an open append first left nothing that anybody was told is durable."""
    append(log, (b"a", b"1"))
    size = segment(log).stat().st_size
    with log.writer("me").append() as lost:
        lost.add(TOPIC, 0, [(b"l1", b"x" * 50)])
        lost.add(TOPIC, 0, [(b"l2", b"x" * 50)])
        data = bytearray(segment(log).read_bytes())
    data[size : size + 60] = b"\0" * 60
    del data[size + 300 :]
    segment(log).write_bytes(data)
    again = EmbeddedLog(log.directory)

    assert [(b"a", b"1")] == read(again)
    append(again, (b"b", b"2"))
    assert [(b"a", b"1"), (b"b", b"2")] == read(again)
    again.close()


def test_a_flipped_bit_anywhere_in_the_middle_is_an_error(log: EmbeddedLog) -> None:
    """No damage before the last frame is taken for an end, or for other records."""
    for number in range(3):
        append(log, (b"key", b"%d" % number))
    path, expected = segment(log), read(log)
    data = path.read_bytes()
    for place in range(len(data) - 56):
        path.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        again = EmbeddedLog(log.directory)
        with pytest.raises(StateCorruptError):
            read(again)
    path.write_bytes(data)
    assert expected == read(EmbeddedLog(log.directory))


@pytest.mark.parametrize("whole", [False, True], ids=["emptied", "cut at a frame"])
def test_an_end_that_is_gone_with_what_was_committed_is_an_error(log: EmbeddedLog, whole: bool) -> None:
    """A segment that ends too early looks like one that was written less: the owner's file knows better."""
    append(log, (b"a", b"1"))
    size = segment(log).stat().st_size
    append(log, (b"b", b"2"))
    with segment(log).open("r+b") as file:
        file.truncate(size if whole else 0)

    anew = EmbeddedLog(log.directory, timeout_s=10)
    with pytest.raises(StateCorruptError, match="offset 1 was committed there"):
        read(anew)
    with pytest.raises(StateCorruptError, match="offset 1 was committed there"):
        append(anew, (b"c", b"3"))
    anew.close()


def test_a_missing_segment_is_an_error(tmp_path: Path) -> None:
    """A hole in the chain of segments is found, wherever it is."""
    log = EmbeddedLog(tmp_path / "log")
    log.create(TOPIC, 1, {"segment.bytes": "200"})
    for number in range(8):
        append(log, (b"k%d" % number, b"x" * 100))
    names = sorted(segment(log).parent.glob("*.log"))
    assert len(names) > 4
    for path in names[1:-1]:
        path.rename(tmp_path / "aside")
        with pytest.raises(StateCorruptError):
            read(EmbeddedLog(log.directory))
        (tmp_path / "aside").rename(path)
    assert 8 == len(read(log))


# Owners and processes


def test_an_append_is_atomic_over_partitions_whenever_its_process_dies(log: EmbeddedLog, tmp_path: Path) -> None:
    """After a kill at each step, both partitions have all of it or neither, at once and after the next writer."""
    steps = ["changelog.flushed", "changelog.before-decision", "changelog.decided"]
    program = """
import sys
from pathlib import Path
from millpond.testing.crash import kill_at
from millpond_changelog.embedded.log import EmbeddedLog
log = EmbeddedLog(Path(sys.argv[1]))
with log.writer("me").append() as append:
    kill_at(sys.argv[2])
    for partition in (0, 1):
        append.add("flights.of.today", partition, [(sys.argv[2].encode(), b"x")])
    append.flush()
    append.commit()
"""
    for step in steps:
        subprocess.run([sys.executable, "-c", program, str(log.directory), step], check=False, timeout=60)
        before = [read(log, 0), read(log, 1)]
        assert before[0] == before[1]
        log.writer("me")
        assert before == [read(log, 0), read(log, 1)]
        assert ((step.encode(), b"x") in before[0]) == (step == "changelog.decided")


def test_a_dead_owner_blocks_nobody(log: EmbeddedLog) -> None:
    """An append that a killed process left open ends with it: others are read beyond it before its owner returns."""
    program = """
import os, signal, sys
from pathlib import Path
from millpond_changelog.embedded.log import EmbeddedLog
append = EmbeddedLog(Path(sys.argv[1])).writer("dead").append()
append.add("flights.of.today", 0, [(b"open", b"x")])
append.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program, str(log.directory)], check=False, timeout=60)
    append(log, (b"a", b"1"))

    assert [(b"a", b"1")] == read(log)


def test_an_open_append_hides_what_comes_after_it_until_it_ends(log: EmbeddedLog) -> None:
    """Readers see records in the order of their offsets: what is behind an open append waits for it."""
    first = log.writer("first").append()
    first.add(TOPIC, 0, [(b"first", b"x")])
    first.flush()
    append(log, (b"second", b"x"))

    assert 0 == log.extent(TOPIC, 0).end
    first.commit()
    assert [(b"first", b"x"), (b"second", b"x")] == read(log)


def test_a_replaced_writer_is_refused_at_every_verb(log: EmbeddedLog) -> None:
    """However far its append had come, nothing of it is read."""
    verbs = [
        lambda append: append.add(TOPIC, 0, [(b"zombie", b"x")]),
        lambda append: append.flush(),
        lambda append: append.commit(),
    ]
    for until, refused in enumerate(verbs):
        append = log.writer("me").append()
        for verb in verbs[:until]:
            verb(append)
        log.writer("me")
        with pytest.raises(FencedError):
            refused(append)
        append.abort()
    replaced = log.writer("me")
    log.writer("me")
    with pytest.raises(FencedError):
        replaced.append()
    assert [] == read(log)


def test_a_decision_without_an_answer_is_found_out(log: EmbeddedLog) -> None:
    """When the commit point is passed and the rest fails, the append is doubtful, and asking again tells."""
    append = log.writer("me").append()
    append.add(TOPIC, 0, [(b"a", b"1")])
    append.flush()

    def fail(point: str) -> None:
        if point == "changelog.decided":
            raise TransientError("the test lets this fail")

    arm(fail)
    try:
        with pytest.raises(TransientError):
            append.commit()
    finally:
        arm(None)
    assert append.doubtful
    append.commit()
    assert not append.doubtful
    assert [(b"a", b"1")] == read(log)


def test_a_record_that_is_too_large_is_refused_with_its_size_and_the_setting(log: EmbeddedLog) -> None:
    """The topic's own limit decides."""
    with log.writer("me").append() as append, pytest.raises(ConfigError, match=r"1000013 bytes.*max\.message\.bytes"):
        append.add(TOPIC, 0, [(b"k", b"x" * 1_000_012)])


def test_names_of_any_shape_are_topics_of_their_own(log: EmbeddedLog) -> None:
    """Dots, cases, slashes and spaces in names make no two topics one."""
    names = ["a.b", "a_b", "A.b", "a/b", "a b", "..", ".hidden", "%2e", "a"]
    for name in names:
        log.create(name, 1, {})
    assert sorted([*names, TOPIC]) == log.names()
    assert len(names) == len({log.describe(name).identity for name in names})


# Compaction


@settings(max_examples=25, deadline=None)
@given(
    appends=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.none() | st.binary(max_size=9)), min_size=1),
            st.booleans(),
        ),
        max_size=12,
    ),
    seed=st.integers(),
)
def test_compaction_keeps_the_last_of_each_key_and_every_offset(
    tmp_path_factory: pytest.TempPathFactory, appends: list[tuple[list[Change], bool]], seed: int
) -> None:
    """After any appends and compactions a reader, wherever it begins, ends at the same state; no record has moved."""
    log = EmbeddedLog(tmp_path_factory.mktemp("log"))
    log.create(TOPIC, 1, {"segment.bytes": "300"})
    writer, chance = log.writer("me"), random.Random(seed)
    state: dict[bytes, bytes | None] = {}
    offsets: dict[int, Change] = {}
    furthest = 0
    for changes, is_committed in appends:
        with writer.append() as append:
            append.add(TOPIC, 0, changes)
            last = append.flush()[TOPIC, 0]
            if is_committed:
                append.commit()
        if is_committed:
            state.update(changes)
            offsets.update(zip(range(last - len(changes) + 1, last + 1), changes, strict=True))
        if chance.random() < 0.4:
            below = chance.randrange(last + 2)
            rules = Rules(0, DAY_MS, chance.choice([300, 3_000]), below, 0)  # the larger: holes within one frame
            compact(log.partition(TOPIC, 0), rules, log.clock.millis() + 1, lambda: None)
            furthest = max(furthest, below)
            assert log.extent(TOPIC, 0).compacted <= furthest  # type: ignore[operator]  # this log always says
    extent = log.extent(TOPIC, 0)

    def read_from(start: int) -> list[tuple[int, Change]]:
        batches = log.read(TOPIC, 0, start, extent.end)
        return [pair for batch in batches for pair in zip(batch.offsets(), batch.changes(), strict=True)]

    found = read_from(0)

    for start in range(extent.end + 1):
        assert [pair for pair in found if pair[0] >= start] == read_from(start)
    assert state == dict(change for _, change in found)
    assert all(offsets[offset] == change for offset, change in found)
    assert [change for offset, change in found if offset >= (extent.compacted or 0)] == [
        change for offset, change in offsets.items() if offset >= (extent.compacted or 0)
    ]
    log.close()


def test_compaction_spares_what_is_too_young_and_deletions_for_a_time(log: EmbeddedLog) -> None:
    """Nothing younger than the lag is touched; a deletion goes when it is older than deletions are kept."""
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", b"2"), (b"b", None))
    place, now = log.partition(TOPIC, 0), log.clock.millis()
    end = log.extent(TOPIC, 0).end

    assert not compact(place, Rules(60_000, DAY_MS, 1000, end, 0), now, lambda: None)
    assert 4 == len(read(log))
    assert compact(place, Rules(0, DAY_MS, 1000, end, 0), now + 1, lambda: None)
    assert [(b"a", b"2"), (b"b", None)] == read(log)
    append(log, (b"c", b"1" * 500))
    assert compact(place, Rules(0, DAY_MS, 1000, end + 1, 0), now + DAY_MS + 2000, lambda: None)
    assert [(b"a", b"2"), (b"c", b"1" * 500)] == read(log)


def test_compaction_keeps_the_newest_record_that_it_touches(log: EmbeddedLog) -> None:
    """A marker names that record, and a reader looks at it: it is forgotten when a later one is the newest."""
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"b", None))
    place, late = log.partition(TOPIC, 0), log.clock.millis() + 1000
    assert compact(place, Rules(0, 0, 1000, log.extent(TOPIC, 0).end, 0), late, lambda: None)
    assert [(b"a", b"1"), (b"b", None)] == read(log)
    append(log, (b"c", b"1" * 500))
    assert compact(place, Rules(0, 0, 1000, log.extent(TOPIC, 0).end, 0), late, lambda: None)
    assert [(b"a", b"1"), (b"c", b"1" * 500)] == read(log)


def test_a_reading_that_compaction_overtakes_goes_on(tmp_path: Path) -> None:
    """Segments are replaced under a reader, which neither loses nor repeats a record that is still needed."""
    log = EmbeddedLog(tmp_path / "log")
    log.create(TOPIC, 1, {"segment.bytes": "20000"})
    for number in range(6):
        append(log, *((b"k%04d" % n, b"%d" % number) for n in range(1500)))
    end = log.extent(TOPIC, 0).end
    reading = log.read(TOPIC, 0, 0, end)
    state: dict[bytes, bytes | None] = {}
    for number, batch in enumerate(reading):
        state.update(batch.changes())
        if number == 1:
            assert compact(
                log.partition(TOPIC, 0), Rules(0, DAY_MS, 20000, end, 0), log.clock.millis() + 1, lambda: None
            )
    assert {b"k%04d" % n: b"5" for n in range(1500)} == state
    log.close()


def test_what_a_killed_compaction_left_is_read_once_and_tidied(log: EmbeddedLog) -> None:
    """With a compacted segment and those that it replaces side by side, its records count; the next one tidies."""
    append(log, (b"a", b"1"))
    append(log, (b"a", b"2"))
    place = log.partition(TOPIC, 0)
    copies = log.directory / "copies"
    copies.mkdir()
    with place.writing():
        place.roll()
    for path in place.folder.glob("*.log"):
        shutil.copy(path, copies)
    end = log.extent(TOPIC, 0).end
    assert compact(place, Rules(0, DAY_MS, 1000, end, 0), log.clock.millis() + 1, lambda: None)
    for path in copies.iterdir():
        if not (place.folder / path.name).exists():
            shutil.copy(path, place.folder)
    again = EmbeddedLog(log.directory)

    assert [(b"a", b"2")] == read(again)
    again.tidy(TOPIC, 0, end)
    compact(again.partition(TOPIC, 0), Rules(0, DAY_MS, 1000, end, 0), 0, lambda: None)
    assert [(b"a", b"2")] == read(again)
    assert 2 == len(list(place.folder.glob("*.log")))
    again.close()


def test_a_reading_may_begin_in_any_hole_that_compaction_left(tmp_path: Path) -> None:
    """Of twelve records three are left, far apart: each reading has those from its start on, wherever that is."""
    log = EmbeddedLog(tmp_path / "log")
    log.create(TOPIC, 1, {"segment.bytes": "300"})
    for number, key in enumerate("aabaacccabba"):
        append(log, (key.encode(), b"%d" % number))
    compact(log.partition(TOPIC, 0), Rules(0, DAY_MS, 3_000, 12, 0), log.clock.millis() + 1, lambda: None)

    for start in range(13):
        found = [offset for batch in log.read(TOPIC, 0, start, 12) for offset in batch.offsets()]
        assert [offset for offset in (7, 10, 11) if offset >= start] == found, start
    log.close()


def test_retention_removes_segments_and_readers_are_told(tmp_path: Path) -> None:
    """A topic with policy delete loses what is too old; a reading that begins there is refused."""
    log = EmbeddedLog(tmp_path / "log")
    log.create(TOPIC, 1, {"cleanup.policy": "delete", "retention.ms": "0", "segment.bytes": "200"})
    for number in range(5):
        append(log, (b"k%d" % number, b"x" * 100))
    log.clock = Later()
    log.tidy(TOPIC, 0, 3)

    extent = log.extent(TOPIC, 0)
    assert 0 < extent.start <= 3
    with pytest.raises(StateNotFoundError, match="no longer"):
        log.read(TOPIC, 0, 0, extent.end)
    assert 5 - extent.start == len(read(log))
    log.close()


class Later:
    """A clock that is an hour ahead."""

    def millis(self) -> int:
        return time.time_ns() // 1_000_000 + 3_600_000

    def monotonic(self) -> float:
        return time.monotonic()


def test_which_segments_hold_a_partition() -> None:
    """A compacted segment stands for all that its offsets cover, whatever else lies beside it."""
    names = [Segment(0).name, Segment(5).name, Segment(9).name, Segment(0, 9).name, Segment(0, 5).name, "LOCK", "x.log"]

    chosen, replaced = in_force(names)

    assert [Segment(0, 9), Segment(9)] == chosen
    assert {Segment(0), Segment(5), Segment(0, 5)} == set(replaced)


def test_who_is_late_writes_nothing_into_a_topic_that_was_made_anew(log: EmbeddedLog) -> None:
    """A partition that somebody still holds is not the one of the topic that took its name."""
    append(log, (b"a", b"1"))
    late = log.partition(TOPIC, 0)
    log.delete(TOPIC)
    with pytest.raises(StateNotFoundError, match="deleted"), late.writing():
        pass
    log.create(TOPIC, 2, {})
    for use in (lambda: late.writing().__enter__(), late.extent, lambda: late.trim(1)):
        with pytest.raises(StateNotFoundError, match="made anew"):
            use()

    append(log, (b"b", b"2"))
    assert [(b"b", b"2")] == read(log)
