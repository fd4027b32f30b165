"""A coordinator's record beside its tasks' records, found by the job's configuration, and looked at by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millpond.cli import main
from millpond.coordinator import JobCheckpointId, Place, TransactionId, in_directory, open_metadata
from millpond.coordinator import record as record_format
from millpond.coordinator.record import JobCheckpoint, JobRecord
from millpond.coordinator.state import InlineState, LocatedState, MemberState, NoState, TaskState
from millpond.errors import ConfigError, TransientError

STATES = (TaskState("17-1"), InlineState(b"secret words"), LocatedState("x/y", 7, "blake3:00"), NoState())
MEMBERS = {f"m-{at}": MemberState(Place("m", at, 4), state) for at, state in enumerate(STATES)}


def record(*names: str) -> bytes:
    """Write a record with a job checkpoint for each of *names*, newest first."""
    found = [
        JobCheckpoint(JobCheckpointId(1, len(names) - at), 1_700_000_000_000, MEMBERS, name)
        for at, name in enumerate(names)
    ]
    return record_format.encode(JobRecord("flights", "1", tuple(found), TransactionId(1, 1)))


def config(tmp_path: Path, manager: str = "directory", **more: Any) -> dict[str, Any]:
    given = {"path": str(tmp_path / "records")} if manager == "directory" else more
    return {
        "job": {"name": "flights", "state_dir": str(tmp_path / "state")},
        "checkpoint": {"manager": manager, **given},
        "stores": {"counts": {"engine": "memory", "ephemeral": True}},
    }


def written(tmp_path: Path) -> Path:
    """Write the same as a file for the command."""
    file = tmp_path / "job.toml"
    file.write_text(
        f"""
        [job]
        name = "flights"
        state_dir = "{tmp_path / "state"}"
        [checkpoint]
        manager = "directory"
        path = "{tmp_path / "records"}"
        [stores.counts]
        engine = "memory"
        ephemeral = true
        """
    )
    return file


def test_a_directory_keeps_it_where_the_tasks_records_are(tmp_path: Path) -> None:
    """What is written beside a directory manager's records is what ``in_directory`` finds there; a lock elects."""
    with open_metadata(config(tmp_path)) as place:
        leadership = place.lead("one", 5.0)
        place.write(leadership, record(""), None)
        with open_metadata(config(tmp_path)) as other, pytest.raises(TransientError):
            other.lead("two", 0.1)
    with in_directory(tmp_path / "records", "flights") as same:
        stored = same.read()
        assert stored is not None and stored.data == record("")
        assert same.lead("three", 5.0).epoch > leadership.epoch


def test_an_object_store_keeps_it_too(tmp_path: Path) -> None:
    """The same with a checkpoint manager on an object store, which is closed with the block."""
    pytest.importorskip("millpond_fsspec")
    given = config(tmp_path, "fsspec", url=f"file://{tmp_path}/store")
    with open_metadata(given, lease_s=1.0) as place:
        place.write(place.lead("one", 10.0), record(""), None)
    with open_metadata(given) as place:
        stored = place.read()
        assert stored is not None and stored.data == record("")
        assert place.leader() == (1, "one")


def test_a_manager_that_cannot_keep_it_says_so(tmp_path: Path) -> None:
    """Where records live in one process only, the error names what to use instead."""
    refused = pytest.raises(ConfigError, match=r"'memory' cannot keep a coordinator's record.*ZooKeeper")
    with refused, open_metadata(config(tmp_path, "memory")):
        pass


def test_the_command_shows_the_record(tmp_path: Path) -> None:
    """``millpond coordinator`` shows leader, job checkpoints and members, never state, and nothing where nothing is."""
    file = str(written(tmp_path))
    look = CliRunner().invoke(main, ["coordinator", "-c", file])
    assert look.exit_code == 0 and "nobody has led yet" in look.output and "no job checkpoint" in look.output
    with open_metadata(file) as place:
        place.write(place.lead("one", 5.0), record("", "before the move"), None)
        look = CliRunner().invoke(main, ["coordinator", "-c", file, "--members"])
    assert look.exit_code == 0, look.output
    assert "last elected: one with epoch 1" in look.output
    assert "1 elsewhere, 1 inline, 1 none, 1 task checkpoint" in look.output
    assert "before the move" in look.output and "m 1 of 4" in look.output
    assert "12 B in the record" in look.output and "secret" not in look.output


def test_the_command_gives_it_as_json(tmp_path: Path) -> None:
    """Programs get the same, with stable fields."""
    file = str(written(tmp_path))
    with open_metadata(file) as place:
        place.write(place.lead("one", 5.0), record("", "before the move"), None)
    look = CliRunner().invoke(main, ["coordinator", "-c", file, "--json"])
    said = json.loads(look.stdout)
    assert said["leader"] == {"candidate": "one", "epoch": 1}
    assert [(each["id"], each["name"]) for each in said["job_checkpoints"]] == [
        ("1-2", None),
        ("1-1", "before the move"),
    ]
    assert said["job_checkpoints"][0]["members"]["m-0"] == {
        "place": "m 0 of 4", "kind": "task checkpoint", "state": "checkpoint 17-1"
    }  # fmt: skip
    assert "secret" not in look.stdout


def test_the_command_refuses_a_damaged_record(tmp_path: Path) -> None:
    """A record that cannot be read is an error that names its file, never 'there is none'."""
    file = str(written(tmp_path))
    with open_metadata(file) as place:
        place.write(place.lead("one", 5.0), record(""), None)
    newest = min((tmp_path / "records" / "flights" / ".coordinator" / "records").iterdir())
    newest.write_bytes(b"")
    look = CliRunner().invoke(main, ["coordinator", "-c", file])
    assert look.exit_code != 0 and "cannot be read" in look.output and newest.name in look.output
