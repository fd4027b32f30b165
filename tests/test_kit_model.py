"""A whole job against a dict for each checkpoint, with the plugins that need no service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from millpond.testing.model import JobModel

SHRUNK = bool(os.environ.get("MILLPOND_MODEL_SHRINKS"))  # takes minutes: a step opens a job

BOUNDED = settings(
    max_examples=8,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if SHRUNK else [])],
    report_multiple_bugs=False,
)


class MemoryModel(JobModel):
    """Everything in memory."""

    ephemeral = True

    @classmethod
    def sections(cls, folder: Path) -> Mapping[str, Any]:
        return {"checkpoint": {"manager": "memory"}, "backends": {"main": {"type": "memory"}}}


class DirectoryModel(JobModel):
    """RocksDB, rocksdb-local and the directory manager."""

    engine = "rocksdb"

    @classmethod
    def sections(cls, folder: Path) -> Mapping[str, Any]:
        return {
            "checkpoint": {"manager": "directory", "path": folder / "records"},
            "backends": {"disk": {"type": "rocksdb-local", "path": folder / "images"}},
        }


@pytest.mark.parametrize("model", [MemoryModel, DirectoryModel])
def test_a_job_is_what_its_model_says(model: type[JobModel]):
    """Whatever is written, committed, failed, killed and restored, a task is what its last checkpoint says."""
    run_state_machine_as_test(model, settings=BOUNDED)


def test_the_model_finds_a_lost_delete(monkeypatch: pytest.MonkeyPatch):
    """The model itself can fail: a script of its steps finds a backend that forgets deletions."""
    from millpond import memory

    keep = memory._collect
    monkeypatch.setattr(
        memory, "_collect", lambda snapshot, changes: tuple(e for e in keep(snapshot, changes) if e[1] is not None)
    )
    state = MemoryModel()
    state.put(store="a", key=b"k1", value=b"1")
    state.commit()
    state.delete(store="a", at=0)
    state.commit()
    with pytest.raises(AssertionError, match="restored"):
        state.teardown()
