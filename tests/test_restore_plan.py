"""Where each store may come from, as a table of checkpoints and configurations."""

from __future__ import annotations

import pytest

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Layout
from millpond.errors import ConfigError, StateNotFoundError
from millpond.restore.plan import StorePlan, StoreWants, older_than, plan_restore, refuse_other_layout

ID, OURS = CheckpointId(7, 0), Claim("t", 3, "ab" * 16)
BACKENDS = {"x": "x", "y": "y", "samza.Factory": "log"}
A = StoreWants("a", (("x", "x"), ("y", "y")))


def checkpoint(markers=None, images=None, claim=OURS):
    return Checkpoint(id=ID, markers=markers or {}, images=images or {}, claim=claim)


def test_without_a_checkpoint_every_store_is_new():
    """A task that has never committed begins with empty stores."""
    plan = plan_restore(None, [A], {"a": ["some-image"]}, BACKENDS)

    assert (None, (StorePlan("a", new=True),)) == (plan.checkpoint, plan.stores)


@pytest.mark.parametrize(
    ("markers", "images", "local", "wanted"),
    [
        ({"x": {"a": "1"}}, {}, [], StorePlan("a", None, (("x", "1"),))),
        ({"x": {"a": "1"}, "y": {"a": "2"}}, {}, [], StorePlan("a", None, (("x", "1"), ("y", "2")))),
        ({"y": {"a": "2"}}, {}, [], StorePlan("a", None, (("y", "2"),))),
        ({"x": {"a": "1"}}, {"a": "7-0-w"}, ["7-0-w"], StorePlan("a", "7-0-w", (("x", "1"),))),
        ({"x": {"a": "1"}}, {"a": "7-0-w"}, ["7-0-v", "6-0-w"], StorePlan("a", None, (("x", "1"),))),
        ({"x": {"b": "1"}}, {"b": "7-0-w"}, [], StorePlan("a", new=True)),
    ],
    ids=["first", "fallback", "only-second", "local", "other-writers-image", "added-store"],
)
def test_a_store_comes_from_the_first_that_holds_it(markers, images, local, wanted):
    """The local image counts only by id and writer; then the restore list's order."""
    plan = plan_restore(checkpoint(markers, images), [A], {"a": local}, BACKENDS)

    assert (wanted,) == plan.stores


def test_a_store_held_only_elsewhere_is_a_mistake_of_the_configuration():
    """It names the backend that holds it, so that the operator can add it."""
    with pytest.raises(ConfigError, match="holds it in log, which its restore list"):
        plan_restore(checkpoint({"samza.Factory": {"a": "1"}}), [A], {}, BACKENDS)


def test_a_renamed_backend_section_is_told():
    """A marker under a name that no section has is not taken for a new store."""
    with pytest.raises(ConfigError, match="was the section renamed"):
        plan_restore(checkpoint({"old-name": {"a": "1"}}), [A], {}, BACKENDS)


@pytest.mark.parametrize(
    ("images", "claim"), [({"a": "7-0-w"}, OURS), ({}, None)], ids=["known-to-our-record", "samzas-record"]
)
def test_a_store_without_a_marker_is_not_taken_for_a_new_one(images, claim):
    """Only a record of our own that has never held the store proves it new."""
    with pytest.raises(StateNotFoundError):
        plan_restore(checkpoint({}, images, claim), [A], {}, BACKENDS)


def test_an_unknown_stores_marker_is_left_alone():
    """A store that was removed from the configuration is told and not restored."""
    plan = plan_restore(checkpoint({"x": {"a": "1", "gone": "1"}}), [A], {}, BACKENDS)

    assert (("gone", "x"),) == plan.ignored


def test_an_ephemeral_store_begins_empty_where_nobody_holds_it():
    """Its operator said so; a backend that still holds it is asked all the same."""
    ephemeral = StoreWants("a", (("x", "x"),), ephemeral=True)

    nobody = plan_restore(checkpoint({}, {"a": "7-0-w"}), [ephemeral], {}, BACKENDS)
    somebody = plan_restore(checkpoint({"x": {"a": "1"}}), [ephemeral], {}, BACKENDS)

    assert (StorePlan("a", new=True),) == nobody.stores
    assert (StorePlan("a", None, (("x", "1"),)),) == somebody.stores


@pytest.mark.parametrize(
    ("recorded", "configured", "refused"),
    [
        (None, Layout(("a",), "p"), False),
        (Layout(("a",), "p"), None, False),
        (Layout(("a", "b"), "p"), Layout(("a", "b"), "p"), False),
        (Layout(("a", "b"), "p"), Layout(("b", "a"), "p"), True),
        (Layout(("a", "b"), "p"), Layout(("a",), "p"), True),
        (Layout(("a",), "p"), Layout(("a",), "q"), True),
    ],
)
def test_another_layout_is_refused(recorded, configured, refused):
    """State is placed by task: other tasks, another order or another partitioner do not fit it."""
    if not refused:
        refuse_other_layout(recorded, configured, "t")
        return
    with pytest.raises(ConfigError, match="was made with"):
        refuse_other_layout(recorded, configured, "t")


@pytest.mark.parametrize(
    ("claim", "parent", "listed", "chosen"),
    [
        (OURS, 5, (7, 6, 5), 5),
        (OURS, 6, (7, 6, 5), 6),
        (OURS, 4, (7, 6, 5), None),
        (OURS, None, (7, 6, 5), None),
        (None, None, (8, 7, 6, 5), 6),
        (None, None, (7,), None),
    ],
    ids=["travelled", "in-line", "parent-gone", "first", "samzas", "samzas-only"],
)
def test_an_older_checkpoint_is_one_that_the_damaged_one_built_on(claim, parent, listed, chosen):
    """What is merely listed before it may be of a history that has ended; Samza's records do not say."""
    id_of = {number: CheckpointId(number, 0) for number in range(1, 9)} | {None: None}
    damaged = Checkpoint(id=ID, claim=claim, parent=id_of[parent])

    assert id_of[chosen] == older_than(damaged, [id_of[number] for number in listed])
