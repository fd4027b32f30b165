"""What a child process does for the cases of a state backend: it uploads, and dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.spi import Change, FileEntry
from millpond.testing.kit.backend_bench import BackendBench
from millpond.testing.kit.backend_owner import STORE, Owner, numbered
from millpond.testing.kit.child import answer
from millpond.testing.kit.snapshots import KitSnapshot
from millpond.testing.kit.suite import Suite


def upload_and_die(suite: Suite[Any], folder: Path, job: str) -> NoReturn:
    """Upload a first commit, say its markers, and die before anything can be closed or flushed."""
    bench: BackendBench = suite.bench(folder, job=job)
    upload = bench.owner().upload({STORE: numbered(1)})
    answer({"id": str(upload.id), "markers": dict(upload.markers)})
    _die()


def die_within_upload(
    suite: Suite[Any], folder: Path, job: str, id: str, markers: Mapping[str, str], epoch: int
) -> NoReturn:
    """Take the task over from the checkpoint *id*, and die while the snapshot is read."""
    bench: BackendBench = suite.bench(folder, job=job)
    bench.epoch = epoch - 1
    last = Checkpoint(CheckpointId.parse(id), markers={bench.place().backend: markers})
    owner = bench.owner(at=last)
    answer("begun")
    owner.send(_deadly(owner))
    _die()


class _DeadlySnapshot(KitSnapshot):
    """Kills the process when half of it has been read."""

    def _counted(self, records: Iterator[Change]) -> Iterator[Change]:
        for number, record in enumerate(records):
            if number == 300:
                _die()
            yield record

    def directory(self, store: str) -> Sequence[FileEntry]:
        """Give an image whose last file is gone: the backend dies when it asks for the next store."""
        if list(self.states).index(store) > 0:
            _die()
        return super().directory(store)


def _deadly(owner: Owner) -> KitSnapshot:
    owner.stores = (STORE, "other")
    owner.state.setdefault("other", {})
    made = owner.snapshot({name: {b"x%04d" % n: b"v" for n in range(600)} for name in owner.stores})
    return _DeadlySnapshot(
        id=made.id,
        states=made.states,
        facets=made.facets,
        writer=made.writer,
        folder=made.folder,
        violations=made.violations,
    )


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process does not get here")
