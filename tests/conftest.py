"""What several test modules share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

import engines
from coordinator_rigs import rigs  # noqa: F401 - a fixture
from services.kafka_fixtures import kafka_address, own_kafka  # noqa: F401 - fixtures

settings.register_profile("unhurried", settings(), deadline=None)  # on a busy machine an example may take its time
settings.load_profile("unhurried")


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[engines.Rig]:
    """A job made by hand, with faults; everything is closed in the end."""
    made = engines.Rig(tmp_path)
    monkeypatch.setattr("millpond.job.SystemClock", lambda: made.clock)
    yield made
    for faults in (made.records, *made.faults.values()):
        faults.release()
    made.close()


@pytest.fixture
def disks(rig: engines.Rig) -> engines.Rig:
    """The job with two backends that keep images on disks of their own."""
    rig.sections = {"main": engines.Section("rocksdb-local"), "second": engines.Section("rocksdb-local")}
    return rig
