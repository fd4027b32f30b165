"""After any history of commits, failures, owners and compactions, a restore at the marker is what was committed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millpond.errors import FencedError, MillpondError
from millpond.spi import Size
from millpond.testing.kit.backend_bench import BackendBench
from millpond.testing.kit.backend_owner import Owner
from millpond.testing.kit.bench import Profile
from millpond_changelog.backend import ChangelogBackend
from millpond_changelog.embedded.compaction import Rules, compact
from millpond_changelog.embedded.log import EmbeddedLog
from millpond_changelog.marker import decode
from millpond_changelog.opening import open_log
from millpond_changelog.settings import ChangelogSettings

STORES = ("a", "b")
KEYS = [b"", b"\x00", *(b"k%d" % number for number in range(5))]
WRITES = st.dictionaries(
    st.sampled_from(STORES),
    st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=30), min_size=1),
    min_size=1,
)


class Histories(RuleBasedStateMachine):
    """One task, its owners one after the other, and the log below them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="millpond-histories-"))
        settings = self.settings()
        self.bench = BackendBench(self.folder, Profile(), None, lambda: ChangelogBackend("main", settings))
        self.log = open_log(settings)
        self.owner = self.bench.owner(STORES)
        self.before: list[Owner] = []

    def settings(self) -> ChangelogSettings:
        """Say which log."""
        return ChangelogSettings(
            directory=self.folder / "log", min_compaction_lag=timedelta(0), segment_bytes=Size(400)
        )

    def teardown(self) -> None:
        self.log.close()
        self.bench.close()
        shutil.rmtree(self.folder)

    @rule(writes=WRITES, based=st.booleans())
    def commit(self, writes: Mapping[str, Mapping[bytes, bytes | None]], based: bool) -> None:
        """Publish a commit; the changes since the last may not be at hand."""
        self.owner.publish(self.owner.upload(writes, based=based))
        del self.bench.published[self.owner.place][1:]

    @rule(writes=WRITES, fail_at=st.integers(0, 4))
    def fail(self, writes: Mapping[str, Mapping[bytes, bytes | None]], fail_at: int) -> None:
        """Let an upload fail while its changes are read."""
        snapshot = self.owner.snapshot(writes, fail_at=fail_at)
        try:
            self.owner.send(snapshot)
        except MillpondError:
            self.owner.abandon(snapshot.id)

    @rule(writes=WRITES, abandoned=st.booleans())
    def upload_in_vain(self, writes: Mapping[str, Mapping[bytes, bytes | None]], abandoned: bool) -> None:
        """Upload all, and never publish it: the records are in the log, and no checkpoint knows them."""
        upload = self.owner.upload(writes)
        if abandoned:
            self.owner.abandon(upload.id)

    @rule()
    def take_over(self) -> None:
        """Let another owner restore the newest checkpoint; the bench compares."""
        self.before = [self.owner]
        self.owner = self.bench.owner(STORES)

    @precondition(lambda self: self.before)
    @rule(store=st.sampled_from(STORES), value=st.binary(max_size=5))
    def wake_the_zombie(self, store: str, value: bytes) -> None:
        """Let a replaced owner upload something: it is refused."""
        try:
            self.before[0].upload({store: {b"zombie": value}})
        except FencedError:
            return
        raise AssertionError("a replaced owner's upload was taken")

    @precondition(lambda self: self.owner.last is not None)
    @rule(store=st.sampled_from(STORES), share=st.floats(0, 1), keep_deletions=st.booleans())
    def compact(self, store: str, share: float, keep_deletions: bool) -> None:
        """Compact a part of what lies before the newest marker."""
        assert self.owner.last is not None and isinstance(self.log, EmbeddedLog)
        text = self.owner.last.markers["main"][store]
        place = self.owner.place
        owner = f"{place.job}\0{place.job_id}\0{place.task}\0{place.backend}\0{store}"
        marker = decode(text, owner)
        partition = self.log.partition(marker.ssp.stream, 0)
        rules = Rules(0, 86_400_000 if keep_deletions else 0, 400, round(marker.stop * share), worth=0)
        compact(partition, rules, self.log.clock.millis() + 1000, lambda: None)

    @invariant()
    def newest_is_restored(self) -> None:
        """A reader finds the newest checkpoint as it was committed."""
        if self.owner.last is not None:
            self.bench.expect_restored(self.owner.last)


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=int(os.environ.get("MILLPOND_HISTORIES", "12")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def test_a_store_whose_newest_record_was_a_deletion_is_restored_when_compaction_took_it() -> None:
    """Where the marker's own record was a deletion it may be gone, and the store is as it was: empty."""
    state = Histories()
    try:
        state.commit(based=False, writes={"a": {b"": None}})
        state.commit(based=True, writes={"a": {b"": None}})
        state.compact(keep_deletions=False, share=1.0, store="a")
        state.newest_is_restored()
    finally:
        state.teardown()
