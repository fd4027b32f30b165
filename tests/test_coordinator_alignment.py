"""Barrier alignment: no record is lost, moved to the wrong side of a snapshot, or out of its channel's order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millpond.coordinator import spill
from millpond.coordinator.alignment import Aligned, BarrierAligner, Overflow, Overflowed
from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.spill import SpillFile
from millpond.errors import ConfigError, StateCorruptError, TransientError

K1, K2, K3, K4 = (JobCheckpointId(1, number) for number in range(1, 5))


def aligner(*channels: str, limit: int = 1 << 20, **said: Any) -> BarrierAligner:
    return BarrierAligner(channels or ("a", "b"), limit, **said)


def put(into: BarrierAligner, channel: str, *items: Any) -> None:
    """Put records and barriers on *channel*; a record counts as ten bytes."""
    for item in items:
        if isinstance(item, JobCheckpointId):
            into.channel(channel).barrier(item)
        else:
            into.channel(channel).put(item, 10)


def shown(into: BarrierAligner) -> list[Any]:
    """Take all that comes; a mark is shown as its attempt."""
    return [item.attempt if isinstance(item, Aligned) else item for item in into.drain()]


# --- what Heron's tests pin (77 to 81)


def test_without_barriers_everything_passes_in_order() -> None:
    """Records of open channels come out as they came in, and no mark is made (heron 77)."""
    both = aligner()
    put(both, "a", "a1")
    put(both, "b", "b1")
    put(both, "a", "a2")
    assert shown(both) == ["a1", "b1", "a2"]


def test_a_single_channel_is_aligned_at_once() -> None:
    """With one channel its barrier is the mark, and its next record passes (heron 78)."""
    one = aligner("a")
    put(one, "a", "a1", K1, "a2")
    assert shown(one) == ["a1", K1, "a2"]


def test_a_channel_is_held_until_all_barriers_are_here() -> None:
    """After the first barrier its channel is held; with the last one mark comes, then what was held (heron 79, 80)."""
    both = aligner()
    put(both, "a", "a1", K1, "a2")
    put(both, "b", "b1")
    assert shown(both) == ["a1", "b1"]
    assert both.aligning == K1 and both.held_size == 10
    put(both, "b", K1, "b2")
    assert shown(both) == [K1, "a2", "b2"]
    put(both, "a", "a3")
    put(both, "b", "b3")
    assert shown(both) == ["a3", "b3"] and both.held_size == 0 and both.aligning is None


def test_overflow_gives_the_attempt_up_and_loses_nothing() -> None:
    """Up to the limit nothing comes out; beyond it all is released in order, and the attempt is given up (heron 81)."""
    both = aligner(limit=20)
    put(both, "a", K1, "a1", "a2")
    assert shown(both) == []
    put(both, "a", "a3")
    given = list(both.drain())
    assert given == [Overflowed(K1, 30, 20), "a1", "a2", "a3"]
    put(both, "b", "b1", K1, "b2")  # the late barrier of what was given up
    assert shown(both) == ["b1", "b2"]
    put(both, "a", K2, "a4")
    put(both, "b", K2)
    assert shown(both) == [K2, "a4"]
    assert (both.counts.overflowed, both.counts.aligned, both.counts.ignored) == (1, 1, 1)


# --- the six faults of Heron's gateway


def test_overlapping_attempts_lose_no_record() -> None:
    """A record between two barriers of a held channel is before the second snapshot, as its sender counts it."""
    both = aligner()
    put(both, "a", K1, "t", K2, "a3")
    put(both, "b", K1)
    assert shown(both) == [K1, "t"]
    put(both, "b", K2)
    assert shown(both) == [K2, "a3"]


def test_a_newer_barrier_releases_what_was_held_for_an_older_one() -> None:
    """An attempt that one sender never began cannot be whole: its held records come before the newer snapshot."""
    both = aligner()
    put(both, "a", K1, "a1", K2, "a2")
    put(both, "b", "b1", K2, "b2")
    assert shown(both) == ["b1", "a1", K2, "a2", "b2"]
    assert both.counts.abandoned == 1


def test_no_record_overtakes_another_of_its_channel() -> None:
    """While held records are given, newer ones of the same channel wait behind them."""
    both = aligner()
    put(both, "a", K1, "a1", "a2", "a3")
    both.abandon(K1)
    assert both.take() == "a1"
    put(both, "a", "a4")
    put(both, "b", "b1")
    assert [item for item in shown(both) if item != "b1"] == ["a2", "a3", "a4"]
    put(both, "a", "a5")
    assert shown(both) == ["a5"]


def test_a_stale_barrier_after_completion_holds_nothing() -> None:
    """Barriers of an attempt that is complete, come twice or late, are ignored and block nobody."""
    both = aligner()
    put(both, "a", K2, K2)
    put(both, "b", K2, K2, K1, "b1")
    put(both, "a", K1, "a1")
    assert sorted(map(str, shown(both))) == ["1-2", "a1", "b1"]
    assert both.counts.ignored == 4 and both.aligning is None


def test_an_older_barrier_during_a_newer_alignment_is_ignored() -> None:
    """A barrier that is older than the attempt being aligned neither counts for it nor holds its channel."""
    three = aligner("a", "b", "c")
    put(three, "a", K2)
    put(three, "b", K1, "b1", K2)
    put(three, "c", K2)
    assert shown(three) == ["b1", K2]


def test_the_account_of_held_bytes_is_exact() -> None:
    """However attempts end, nothing is counted as held when nothing is."""
    both = aligner(limit=1000)
    for number in range(1, 60):
        attempt = JobCheckpointId(1, number)
        put(both, "a", attempt, "x", "y")
        if number % 3:
            put(both, "b", attempt)
        elif number % 2:
            both.abandon(attempt)
        shown(both)
    both.abandon(JobCheckpointId(1, 60))
    shown(both)
    assert both.held_size == 0 and both.counts.overflowed == 0
    assert both.counts.largest_held == 40


def test_closing_with_many_held_channels_clears_all(tmp_path: Path) -> None:
    """Before a restore everything that is held goes, in memory and on disk, and all channels are open again."""
    many = aligner(*"abcdef", limit=20, overflow=Overflow.SPILL, spill_directory=tmp_path)
    for channel in "abcde":
        put(many, channel, K1, b"x" * 30)
    many.close()
    many.close()
    put(many, "a", "new")
    assert shown(many) == ["new"] and many.held_size == 0
    assert list(tmp_path.iterdir()) == []


# --- the rest of the contract


def test_what_the_coordinator_abandons_is_released_and_stays_over() -> None:
    """An abandoned attempt's records come next, and its late barriers hold nothing; an unknown one changes nothing."""
    both = aligner()
    put(both, "a", K1, "a1")
    both.abandon(K1)
    assert shown(both) == ["a1"]
    put(both, "b", K1, "b1")
    assert shown(both) == ["b1"]
    both.abandon(K2)
    put(both, "a", K2)
    put(both, "b", K2)
    assert shown(both) == []
    put(both, "a", K3)
    put(both, "b", K3)
    assert shown(both) == [K3]


def test_a_channel_that_has_ended_is_not_waited_for() -> None:
    """The end of a channel, held or not, counts as its barrier; afterwards nobody waits for it."""
    both = aligner()
    put(both, "a", K1)
    both.channel("b").end()
    assert shown(both) == [K1]
    put(both, "a", K2, "a1")
    assert shown(both) == [K2, "a1"]
    three = aligner("a", "b", "c")
    put(three, "a", K1, "last")
    three.channel("a").end()
    put(three, "b", K1)
    put(three, "c", K1)
    assert shown(three) == [K1, "last"]
    put(three, "b", K2)
    put(three, "c", K2)
    assert shown(three) == [K2]


def test_a_slow_channel_costs_no_other_member_its_attempt() -> None:
    """Bounds are each member's own: one that overflows does not touch another's alignment."""
    one, other = aligner(limit=5), aligner(limit=5)
    put(one, "a", K1, "too much")
    put(other, "a", K1)
    put(other, "b", K1)
    assert type(one.take()) is Overflowed
    assert shown(other) == [K1]


def test_the_time_of_an_alignment_is_measured() -> None:
    """The mark and the counts say how long it took from the first barrier to the last, and how much was held."""
    now = [0.0]
    both = aligner(clock=lambda: now[0])
    put(both, "a", K1, "a1")
    now[0] = 1.5
    assert both.age_s == 1.5
    put(both, "b", K1)
    (mark, record) = both.drain()
    assert mark == Aligned(K1, 1.5, 10, 0) and record == "a1"
    put(both, "b", K2)
    now[0] = 2.0
    put(both, "a", K2)
    assert both.counts.seconds == 2.0 and both.counts.longest_s == 1.5 and both.age_s == 0.0


def test_held_records_go_to_disk_and_come_back_in_order(tmp_path: Path) -> None:
    """Beyond the bound records are spilled, also with further barriers among them; the file has no name meanwhile."""
    both = aligner(limit=20, overflow=Overflow.SPILL, spill_directory=tmp_path)
    records = [b"%d" % number * 9 for number in range(50)]
    both.channel("a").barrier(K1)
    for number, record in enumerate(records):
        both.channel("a").put(record, len(record))
        if number == 30:
            both.channel("a").barrier(K2)
    assert both.held_size <= 20 and list(tmp_path.iterdir()) == []
    put(both, "b", K1)
    assert shown(both) == [K1, *records[:31]]
    put(both, "b", K2)
    assert shown(both) == [K2, *records[31:]]
    assert both.counts.spilled > 300 and both.held_size == 0


def test_only_bytes_can_be_spilled(tmp_path: Path) -> None:
    """A record that is no bytes is refused where it would go to disk, and nothing is pickled."""
    both = aligner(limit=0, overflow=Overflow.SPILL, spill_directory=tmp_path)
    put(both, "a", K1)
    with pytest.raises(ConfigError, match="have to be bytes"):
        both.channel("a").put({"not": "bytes"}, 10)


@pytest.mark.parametrize(
    ("channels", "said", "named"),
    [
        ((), {}, "channels"),
        (("a", "a"), {}, "different names"),
        (("a",), {"limit": -1}, "below 0"),
        (("a",), {"overflow": Overflow.SPILL}, "spill directory"),
        (("a",), {"spill_directory": Path()}, "spill directory"),
    ],
)
def test_a_wrong_aligner_is_refused(channels: tuple[str, ...], said: dict[str, Any], named: str) -> None:
    """No channels, double names and settings that do not go together are ConfigErrors."""
    with pytest.raises(ConfigError, match=named):
        BarrierAligner(channels, **{"limit": 1, **said})


def test_a_disk_that_lies_is_noticed(tmp_path: Path) -> None:
    """A flipped bit, a cut file and a full disk are errors, never another record."""
    queue = SpillFile(tmp_path)
    queue.put(b"first")
    queue.put(b"second")
    queue._file.flush()
    os.pwrite(queue._file.fileno(), b"F", 8)
    with pytest.raises(StateCorruptError, match="restore the job"):
        queue.take()
    queue.close()
    cut = SpillFile(tmp_path)
    cut.put(b"first")
    cut._file.flush()
    os.ftruncate(cut._file.fileno(), 9)
    with pytest.raises(StateCorruptError):
        cut.take()
    cut.close()


def test_a_full_disk_is_an_error_with_the_mend(tmp_path: Path) -> None:
    """What cannot be spilled raises TransientError, which says what to do."""
    full = SpillFile(tmp_path)
    full._file.close()
    full._file = open("/dev/full", "w+b", buffering=0)  # noqa: PTH123, SIM115 - unbuffered, and closed below
    with pytest.raises(TransientError, match="disk is full"):
        full.put(b"x" * (spill._BUFFER + 1))
    full._file.close()
    with pytest.raises(TransientError, match="spill held records"):
        SpillFile(tmp_path / "file-is-missing" / "deep")


# --- any order of anything


class Flow(RuleBasedStateMachine):
    """Senders that count what they sent before each barrier, and a receiver that counts what it got by each mark."""

    CHANNELS = ("a", "b", "c")

    def __init__(self) -> None:
        super().__init__()
        self.aligner = BarrierAligner(self.CHANNELS, self.limit())
        self.sent = dict.fromkeys(self.CHANNELS, 0)
        self.got = dict.fromkeys(self.CHANNELS, 0)
        self.cuts: dict[int, dict[str, int]] = {}  # attempt to what each sender had sent
        self.begun = dict.fromkeys(self.CHANNELS, 0)
        self.abandoned = 0

    def limit(self) -> int:
        return 40

    @rule(channel=st.sampled_from(CHANNELS), count=st.integers(1, 5))
    def send(self, channel: str, count: int) -> None:
        for _ in range(count):
            self.sent[channel] += 1
            self.aligner.channel(channel).put(self.record(channel, self.sent[channel]), 10)

    def record(self, channel: str, number: int) -> Any:
        return (channel, number)

    @rule(channel=st.sampled_from(CHANNELS), skip=st.sampled_from([1, 1, 1, 2]))
    def begin(self, channel: str, skip: int) -> None:
        number = self.begun[channel] = self.begun[channel] + skip
        self.cuts.setdefault(number, {})[channel] = self.sent[channel]
        self.aligner.channel(channel).barrier(JobCheckpointId(1, number))

    @rule(channel=st.sampled_from(CHANNELS), back=st.integers(0, 3))
    def repeat_a_barrier(self, channel: str, back: int) -> None:
        number = self.begun[channel] - back
        if number > 0 and channel in self.cuts.get(number, {}):
            self.aligner.channel(channel).barrier(JobCheckpointId(1, number))

    @rule(back=st.integers(0, 2))
    def abandon(self, back: int) -> None:
        number = max(self.begun.values()) - back
        if number > 0:
            self.abandoned = max(self.abandoned, number)
            self.aligner.abandon(JobCheckpointId(1, number))

    @rule(count=st.integers(1, 100))
    def take(self, count: int) -> None:
        for _ in range(count):
            item = self.aligner.take()
            if item is None:
                return
            self.took(item)

    def took(self, item: Any) -> None:
        if isinstance(item, Aligned):
            assert self.cuts[item.attempt.number] == self.got
        elif not isinstance(item, Overflowed):
            channel, number = item
            assert number == self.got[channel] + 1
            self.got[channel] = number

    @invariant()
    def the_bound_holds(self) -> None:
        assert 0 <= self.aligner.held_size
        held = sum(self.sent[c] - self.got[c] for c in self.CHANNELS)
        assert self.aligner.held_size <= 10 * held

    def teardown(self) -> None:
        self.aligner.abandon(JobCheckpointId(2, 0))
        self.take(10_000)
        assert self.got == self.sent and self.aligner.held_size == 0
        self.aligner.close()


class SpillingFlow(Flow):
    """The same with records that go to disk."""

    def __init__(self) -> None:
        super().__init__()
        self.aligner = BarrierAligner(
            self.CHANNELS,
            30,
            overflow=Overflow.SPILL,
            spill_directory=Path(os.environ.get("TMPDIR", "/tmp")),
        )

    def record(self, channel: str, number: int) -> Any:
        return f"{channel} {number}".encode()

    def took(self, item: Any) -> None:
        if isinstance(item, bytes):
            channel, number = item.decode().split()
            item = (channel, int(number))
        assert not isinstance(item, Overflowed)
        super().took(item)


TestFlow = Flow.TestCase
TestFlow.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestSpillingFlow = SpillingFlow.TestCase
TestSpillingFlow.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=30))
def test_every_mark_is_a_cut(story: list[tuple[str, int]]) -> None:
    """Whatever comes in whatever order, before the mark of an attempt are just the records sent before its barriers."""
    both = aligner()
    sent = {"a": 0, "b": 0}
    cuts: dict[JobCheckpointId, dict[str, int]] = {}
    for channel, number in story:
        if number:
            attempt = JobCheckpointId(1, number)
            if channel not in cuts.setdefault(attempt, {}):
                cuts[attempt][channel] = sent[channel]
                both.channel(channel).barrier(attempt)
        else:
            sent[channel] += 1
            both.channel(channel).put(channel, 1)
    both.abandon(K4)
    got = {"a": 0, "b": 0}
    for item in both.drain():
        if isinstance(item, Aligned):
            assert got == cuts[item.attempt]
        else:
            got[item] += 1
    assert got == sent
