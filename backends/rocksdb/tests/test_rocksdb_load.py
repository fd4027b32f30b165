"""Filling a store in bulk."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond_rocksdb import bulk


def test_the_later_record_wins_whatever_the_runs_are(open_engine, monkeypatch):
    """Doubled keys, deletes before and after, over many runs: the last record of a key decides."""
    monkeypatch.setattr(bulk, "_RUN_RECORDS", 1000)
    dice = random.Random(7)
    records = [(b"%03d" % dice.randrange(500), None if dice.random() < 0.3 else b"%d" % n) for n in range(12_000)]
    want = {key: value for key, value in dict(records).items() if value is not None}
    engine = open_engine()
    engine.load(records)
    assert dict(engine.scan(None, None, False)) == want


def test_load_adds_to_what_is_there(open_engine):
    """A second load, and one after writes that are still in memory, are newer than what was there."""
    engine = open_engine()
    engine.apply([(b"a", b"applied"), (b"b", b"applied"), (b"c", b"applied")])
    engine.load([(b"b", b"loaded"), (b"c", None)])
    engine.load(iter([(b"d", b"again"), (b"a", b"again")]))
    engine.load([])
    assert list(engine.scan(None, None, False)) == [(b"a", b"again"), (b"b", b"loaded"), (b"d", b"again")]
    engine.apply([(b"b", b"newest")])
    assert engine.get(b"b") == b"newest"


def test_what_was_loaded_is_in_the_image(open_engine, tmp_path):
    """An image right after a load has the loaded records, and none of the files that it was loaded from."""
    engine = open_engine()
    engine.load((b"%06d" % i, b"v") for i in range(5000))
    engine.checkpoint(tmp_path / "image")
    assert not list((tmp_path / "live").glob(".load-*"))
    assert not list((tmp_path / "image").glob(".load-*"))
    assert len(list(open_engine(tmp_path / "image").scan(None, None, False))) == 5000


def test_a_stream_that_fails_leaves_no_half_file(open_engine, tmp_path):
    """An error of the stream passes as it is; the run that it cut short is not taken in, and its folder is gone."""

    def failing():
        yield from ((b"%06d" % i, b"v") for i in range(500))
        raise ValueError("the log ends here")

    engine = open_engine()
    with pytest.raises(ValueError, match="the log ends here"):
        engine.load(failing())
    assert list(engine.scan(None, None, False)) == []
    assert not list((tmp_path / "live").glob(".load-*"))


def cut(records):
    """Cut records into runs, each used up before the next is asked for."""
    return [[record for piece in run for record in piece] for run in bulk.Runs(iter(records))]


def test_runs_are_bounded_and_in_order(monkeypatch):
    """No run of an ascending stream outgrows its bounds by more than a piece, and together they are the stream."""
    monkeypatch.setattr(bulk, "_RUN_BYTES", 50_000)
    monkeypatch.setattr(bulk, "_PASSED_BYTES", 100_000)
    records = [(b"%06d" % i, b"x" * 10) for i in range(20_000)]
    runs = cut(records)
    assert [record for run in runs for record in run] == records
    assert len(runs[0]) <= 50_000 // 16 + 1000
    assert max(map(len, runs)) <= 100_000 // 16 + 1000


def test_a_stream_in_order_is_not_held_in_memory():
    """Behind a run that was in order the records pass as they come; only the piece that comes next is held."""
    came = 0

    def counted():
        nonlocal came
        for came in range(1, 200_001):
            yield b"%06d" % came, b"x"

    written, ahead = 0, []
    for number, run in enumerate(bulk.Runs(counted())):
        for piece in run:
            written += len(piece)
            ahead += [came - written] if number > 0 else []
    assert written == 200_000
    assert max(ahead) <= 1000


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12), st.booleans()), max_size=20))
def test_each_run_ascends_and_the_last_record_decides(stretches):
    """However stretches that ascend, repeat and fall follow one another: runs ascend strictly, and the later wins."""
    records = [
        (b"%03d" % (first + step), b"%d" % number if kept else None)
        for number, (first, count, kept) in enumerate(stretches)
        for step in range(count)
    ]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"BATCH": 3, "_RUN_RECORDS": 7, "_PASSED_RECORDS": 11, "_SORT": 4}.items():
            patch.setattr(bulk, name, value)
        runs = cut(records)
    assert all(run for run in runs)
    assert all(earlier[0] < later[0] for run in runs for earlier, later in pairwise(run))
    assert dict(record for run in runs for record in run) == dict(records)
