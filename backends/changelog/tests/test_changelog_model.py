"""Whatever a job does on the embedded log, every checkpoint comes back key for key, with compaction and without."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings

from millpond.testing.model import JobModel
from millpond_changelog.embedded import compaction

pytest.importorskip("rocksdict")


class LogModel(JobModel):
    """A job whose stores are backed up to a changelog alone."""

    engine: ClassVar[str] = "rocksdb"

    @classmethod
    def sections(cls, folder: Path) -> Mapping[str, Mapping[str, Any]]:
        """Say which plugins."""
        return {
            "checkpoint": {"manager": "directory", "path": folder / "records"},
            "backends": {"log": {"type": "changelog", "directory": folder / "log", **cls.log()}},
        }

    @classmethod
    def log(cls) -> Mapping[str, Any]:
        """Say how the log is made: nothing is compacted, so every retained checkpoint can be gone back to."""
        return {}


class CompactedLogModel(LogModel):
    """Everything below the newest checkpoint is compacted at once."""

    retain = 1
    point_in_time = False

    def __init__(self) -> None:
        super().__init__()
        self.worth, compaction.WORTH = compaction.WORTH, 1

    def teardown(self) -> None:
        """Put things back."""
        compaction.WORTH = self.worth
        super().teardown()

    @classmethod
    def log(cls) -> Mapping[str, Any]:
        """Let no record be too young, and segments be small."""
        return {"min_compaction_lag": "0s", "segment_bytes": "300B"}


_SETTINGS = settings(
    max_examples=int(os.environ.get("MILLPOND_MODEL", "8")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)

TestLogModel = LogModel.TestCase
TestLogModel.settings = _SETTINGS
TestCompactedLogModel = CompactedLogModel.TestCase
TestCompactedLogModel.settings = _SETTINGS
