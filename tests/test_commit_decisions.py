"""What a commit decides, as tables."""

from __future__ import annotations

import pytest

from millpond.answers import note_problem
from millpond.checkpoint import CheckpointId
from millpond.commit.decisions import (
    Admission,
    admit,
    checkpoint_markers,
    marker_problems,
    mixed_stores,
    outcome,
    over_the_allowance,
    superseded,
)
from millpond.errors import CommitFailedError, CommitUnknownError, FencedError

IDS = tuple(CheckpointId(n, 0) for n in (5, 4, 3, 2, 1))


@pytest.mark.parametrize(
    ("age_s", "decision"),
    [(None, Admission.START), (0.0, Admission.SKIP), (9.9, Admission.SKIP), (10.0, Admission.REFUSE)],
)
def test_a_commit_is_admitted_only_alone(age_s, decision):
    """A second commit is skipped while the first is young, and refused once it is too old."""
    assert decision is admit(age_s, 10.0)


@pytest.mark.parametrize(
    ("failures", "tolerated", "raised"), [(1, 0, True), (1, 1, False), (2, 1, True), (0, 0, False)]
)
def test_failures_are_raised_beyond_the_allowance(failures, tolerated, raised):
    """N failures in a row are tolerated, and the one after them is not."""
    assert raised is over_the_allowance(failures, tolerated)


@pytest.mark.parametrize(("retain", "dropped"), [(1, IDS[1:]), (3, IDS[3:]), (5, ()), (9, ())])
def test_only_what_is_beyond_retain_is_superseded(retain, dropped):
    """The newest records stay, whatever their number."""
    assert dropped == superseded(IDS, retain)


def test_a_clean_store_keeps_its_marker():
    """A checkpoint names for a clean store what the last one named."""
    markers = checkpoint_markers({"a": ["x"], "b": ["x"]}, {"x": {"a": "1", "b": "1"}}, {"x": {"a": "2"}}, ())

    assert {"x": {"a": "2", "b": "1"}} == markers


def test_no_older_marker_stands_in_for_a_failed_backend():
    """An optional backend that failed has no marker for its dirty store, and keeps those of clean ones."""
    last = {"x": {"a": "1", "b": "1"}, "y": {"a": "1"}}

    markers = checkpoint_markers({"a": ["x", "y"], "b": ["x"]}, last, {"y": {"a": "2"}}, {"x\0a"})

    assert {"x": {"b": "1"}, "y": {"a": "2"}} == markers


def test_markers_of_stores_that_are_gone_are_not_carried_on():
    """A store or a backend that the configuration no longer names leaves the next checkpoint."""
    assert {} == checkpoint_markers({}, {"x": {"a": "1"}}, {}, ())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"a": "m"}, None),
        (None, "gave NoneType"),
        ({}, "no marker for a"),
        ({"a": "m", "b": "m"}, "'b', which it was not asked for"),
        ({"a": 5}, "no text"),
    ],
)
def test_rubbish_markers_are_named(given, problem):
    """What a plugin gives back is checked, and the message says what is wrong with it."""
    said = marker_problems(given, ["a"])

    assert (problem is None and said is None) or problem in said


@pytest.mark.parametrize("error", [FencedError("x"), CommitUnknownError("x"), CommitFailedError("x")])
def test_an_outcome_of_its_own_stays_what_it_is(error):
    """What the caller would handle differently is not wrapped."""
    assert error is outcome(error, "upload")


def test_any_other_error_means_that_nothing_was_committed():
    """The cause stays chained, and its text is in the message."""
    cause = OSError("disk on fire")

    told = outcome(cause, "upload to backend 'x'")

    assert isinstance(told, CommitFailedError) and told.__cause__ is cause
    assert "upload to backend 'x' failed and nothing was committed: disk on fire" == str(told)


def test_what_the_next_checkpoint_builds_on_is_not_superseded():
    """After time travel the current checkpoint is not the newest: it stays, however old it is."""
    assert (IDS[1], IDS[2], IDS[4]) == superseded(IDS, 1, current=IDS[3])


@pytest.mark.parametrize(
    ("given", "problem"),
    [({}, None), ({"a": "m"}, None), (None, "NoneType"), ("ab", "str"), ({"a": 1}, "no text"), ({1: "m"}, "no text")],
)
def test_rubbish_notes_are_named(given, problem):
    """What ``snapshot`` gives is a mapping of text, or the message says what it is."""
    said = note_problem(given)

    assert (problem is None and said is None) or problem in said


@pytest.mark.parametrize(
    ("imaged", "markers", "uploaded", "mixed"),
    [
        ({"a"}, {"x": {"a": "2"}}, {"x": {"a": "2"}}, []),
        ({"a"}, {"x": {"a": "1"}}, {}, ["a"]),
        ({"a"}, {"x": {"a": "2"}, "y": {"a": "1"}}, {"x": {"a": "2"}}, ["a"]),
        ({"a"}, {"x": {"a": "2"}, "y": {}}, {"x": {"a": "2"}}, []),
        (set(), {"x": {"a": "1"}}, {}, []),
        ({"b", "a"}, {"x": {"a": "1", "b": "1"}}, {"x": {}}, ["a", "b"]),
    ],
)
def test_a_checkpoint_names_no_image_that_its_markers_are_not_of(imaged, markers, uploaded, mixed):
    """A store with a new image has a new marker of each backend that has one."""
    assert mixed == mixed_stores(imaged, markers, uploaded)
