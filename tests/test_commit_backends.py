"""Several backends of one store: optional ones, late ones, side by side, and what each of them may read."""

from __future__ import annotations

import pytest
from engines import Section, at_points, expected, write

from millpond.errors import CommitError, ConfigError
from millpond.events import (
    OptionalBackendFailed,
)
from millpond.testing.faults import Fault

BROKEN = OSError("the network is down")


def test_an_optional_backends_failure_leaves_its_marker_out(rig):
    """Its marker is missing, no older one stands in; the next commit retries it from its own base."""
    rig.sections = {"main": Section(), "spare": Section(required=False)}
    task = rig.open()
    write(task, 0)
    first = task.commit_now(30)
    write(task, 1)
    rig.fault("spare").add("upload", Fault(BROKEN))
    second = task.commit_now(30)

    assert {"main"} == set(second.markers) and [BROKEN] == [e.error for e in rig.told(OptionalBackendFailed)]

    bases = {}
    rig.fault("spare").arguments["upload"].clear()

    def hook(point: str) -> None:
        if point == "commit.uploaded":
            bases.update(spare=rig.fault("spare").arguments["upload"][0].base("a"))

    with at_points(hook):
        third = task.commit_now(30)
    assert (first.id, first.markers["spare"]["a"]) == bases["spare"]
    assert third.id > second.id and second.markers["main"] == third.markers["main"]
    assert {"a", "b"} == set(third.markers["spare"])
    assert third is task.commit_now(30), "nobody lacks anything any more"
    rig.changes = {name: {"restore": ("spare",)} for name in "ab"}
    rig.state = "another disk"
    assert expected(1) == rig.restored()


def test_an_optional_backend_whose_base_was_tidied_away_begins_anew(rig):
    """After its clean-up removed what its last marker names, the next upload gets no base."""
    rig.sections = {"main": Section(), "spare": Section(required=False)}
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    write(task, 1)
    rig.fault("spare").add("upload", Fault(BROKEN))
    rig.records.add("write", Fault(BROKEN))  # not written: doubtful, so every backend is called to tidy
    rig.fault("spare").add("upload", Fault(BROKEN))
    with pytest.raises(CommitError):
        task.commit_now(30)
    task.commit_now(30)
    assert 1 <= rig.fault("spare").calls["cleanup"]

    seen = []

    def hook(point: str) -> None:
        if point == "commit.uploaded":
            seen.append(rig.fault("spare").arguments["upload"][-1].base("a"))

    with at_points(hook):
        task.commit_now(30)

    assert [None] == seen
    rig.changes = {name: {"restore": ("spare",)} for name in "ab"}
    rig.state = "another disk"
    assert expected(1) == rig.restored()


def test_a_store_without_a_backends_marker_is_dirty_for_it(rig):
    """A backend that was added gets everything at the next commit although nothing changed."""
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    rig.close()
    rig.sections = {"main": Section(), "late": Section()}
    task = rig.open()
    calls = rig.fault("main").calls["upload"]

    checkpoint = task.commit_now(30)

    assert {"main", "late"} == set(checkpoint.markers) and calls == rig.fault("main").calls["upload"]
    rig.changes = {name: {"restore": ("late",)} for name in "ab"}
    rig.state = "another disk"
    assert expected(0) == rig.restored()


def test_backends_upload_side_by_side(rig):
    """Each is at work before the other has ended."""
    rig.sections = {"main": Section(), "other": Section()}
    task = rig.open()
    write(task, 0)
    gates = [rig.fault(name).hang("upload") for name in rig.sections]
    future = task.commit()

    for name in rig.sections:
        rig.fault(name).await_call("upload")
    for gate in gates:
        gate.set()

    assert {"main", "other"} == set(future.result(30).markers)


def test_a_backend_gets_only_the_facets_and_stores_that_are_its_own(rig):
    """A facet that was not declared, and a store that is not the backend's, are refused by name."""
    task = rig.open()
    write(task, 0)
    uploads = rig.fault().arguments.setdefault("upload", [])
    errors = []

    def look(point: str) -> None:
        if point == "commit.uploaded":
            asked = (lambda s: s.directory("a"), lambda s: list(s.items("strange")), lambda s: s.changes("strange"))
            for ask in asked:
                with pytest.raises(ConfigError) as raised:
                    ask(uploads[-1])
                errors.append(str(raised.value))
            assert [b"0", None] == uploads[-1].get_many("a", [b"last", b"missing"])

    with at_points(look):
        task.commit_now(30)

    assert 3 == len(errors) and "DIRECTORY" in errors[0] and "'strange'" in errors[1]
