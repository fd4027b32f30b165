"""Where a coordinator's record lives: directories and object stores keep the contract, lose answers, and are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from attrs import define, field

from millpond.blob.memory import MemoryBlobStore
from millpond.blob.store import BlobCapabilities
from millpond.coordinator import conformance, entries
from millpond.coordinator import record as record_format
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.metadata import CoordinatorMetadata
from millpond.coordinator.numbered import NumberedMetadata, in_blob_store, in_directory
from millpond.coordinator.record import JobCheckpoint, JobRecord
from millpond.coordinator.state import InlineState, LocatedState, MemberState, NoState, Place, TaskState
from millpond.coordinator.vigil import LeaseVigil
from millpond.errors import ConfigError, FencedError, FormatError, StateCorruptError, TransientError
from millpond.records import RecordFolder, record_name

GOLDEN = Path(__file__).parent / "golden" / "formats"
LEASE_S = 5.0

Open = Callable[[], CoordinatorMetadata]


@define
class Shelf(RecordFolder):
    """A folder in memory; a test takes answers away, stops it, or acts inside a creation."""

    things: dict[str, bytes] = field(factory=dict)
    answers: list[str] = field(factory=list)  # for the next creations: "lost", "never"
    before_create: list[Callable[[], None]] = field(factory=list)
    down: bool = False
    now: int = 1_700_000_000_000

    def names(self) -> list[str]:
        self._refuse()
        return list(self.things)

    def create(self, name: str, data: bytes) -> bool:
        self._refuse()
        if self.before_create:
            self.before_create.pop()()
        answer = self.answers.pop(0) if self.answers else ""
        absent = name not in self.things
        if answer != "never":
            self.things.setdefault(name, data)
        if answer:
            raise TransientError("no answer")
        return absent

    def read(self, name: str) -> bytes | None:
        self._refuse()
        return self.things.get(name)

    def delete(self, names: Collection[str]) -> None:
        self._refuse()
        for name in names:
            self.things.pop(name, None)

    def now_millis(self) -> int:
        return self.now

    def _refuse(self) -> None:
        if self.down:
            raise TransientError("the place does not answer")


@define
class Ticking:
    """A clock that a test turns."""

    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def millis(self) -> int:
        return int(self.seconds * 1000)


def place_of(shelf: Shelf, beats: Shelf, clock: Ticking | None = None, lease_s: float = 10.0) -> NumberedMetadata:
    return NumberedMetadata(shelf, LeaseVigil(beats, lease_s, *([clock] if clock else [])))


@pytest.fixture(params=["directory", "directory-lease", "blob"])
def open_place(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Open one place anew, as another process would."""
    store = MemoryBlobStore()
    return {
        "directory": lambda: in_directory(tmp_path / "shared", "job"),
        "directory-lease": lambda: in_directory(tmp_path / "shared", "job", lease_s=LEASE_S),
        "blob": lambda: in_blob_store(store, "job", lease_s=LEASE_S),
    }[request.param]


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_each_place_keeps_the_contract(open_place: Open, check: Callable[[Open], None]) -> None:
    """Directories with a lock, directories with a lease and object stores pass every check of the role."""
    check(open_place)


# --- formats


RECORD = JobRecord(
    "flüge",
    "1",
    (
        JobCheckpoint(
            JobCheckpointId(7, 12),
            1_700_000_000_123,
            {
                "count-0": MemberState(Place("count", 0, 2, (0, 64)), TaskState("1700000000123-456789")),
                "count-1": MemberState(Place("count", 1, 2, (64, 128)), InlineState(b"\x00\xff{}")),
                "lines": MemberState(Place("lines"), LocatedState("lines/7-12-00ff", 9, "blake3:" + 64 * "0")),
                "split": MemberState(Place("split"), NoState()),
            },
            based_on=JobCheckpointId(6, 1),
        ),
        JobCheckpoint(JobCheckpointId(6, 1), 1_600_000_000_000, {}, "before the move"),
    ),
    TransactionId(7, 1),
)
ELECTION = entries.Election(7, "0" * 32, "host:1", 1_700_000_000_000)
ENTRY = entries.RecordEntry(7, "0" * 32, b"the record")


def test_the_formats_have_the_bytes_of_the_first_release() -> None:
    """The record, an election and a numbered record have the bytes that their golden files hold, and are read back."""
    assert record_format.encode(RECORD) == (GOLDEN / "coordinator-record").read_bytes()
    assert entries.encode_election(ELECTION) == (GOLDEN / "coordinator-election").read_bytes()
    assert entries.encode_record(ENTRY) == (GOLDEN / "coordinator-entry").read_bytes()
    assert record_format.decode((GOLDEN / "coordinator-record").read_bytes()) == RECORD
    assert entries.decode((GOLDEN / "coordinator-election").read_bytes()) == ELECTION
    assert entries.decode((GOLDEN / "coordinator-entry").read_bytes()) == ENTRY


@pytest.mark.parametrize("name", ["coordinator-record", "coordinator-election", "coordinator-entry"])
def test_no_damaged_byte_is_believed(name: str) -> None:
    """Whichever byte of a format is changed, cut or added, reading it is an error of ours and never a value."""
    read = record_format.decode if name == "coordinator-record" else entries.decode
    data = (GOLDEN / name).read_bytes()
    damaged = [bytes([*data[:i], data[i] ^ 1, *data[i + 1 :]]) for i in range(len(data))]
    for bad in [*damaged, *(data[:i] for i in range(len(data))), data + b"x"]:
        with pytest.raises((StateCorruptError, FormatError)):
            read(bad)


def test_a_record_of_a_later_version_is_refused() -> None:
    """A record that a later release wrote is a FormatError that says so."""
    newer = record_format.encode(RECORD).replace(b"coordinator 1 ", b"coordinator 2 ", 1)
    with pytest.raises(FormatError, match="use a newer Millpond"):
        record_format.decode(newer)


# --- lost answers, and leaders that sleep


def test_a_write_whose_answer_was_lost_is_there() -> None:
    """A write that happened without an answer is unknown; the same write again finds it, and the next goes on."""
    shelf, beats = Shelf(), Shelf()
    place = place_of(shelf, beats)
    leadership = place.lead("one", 5)
    version = place.write(leadership, b"1", None)
    shelf.answers = ["lost"]
    with pytest.raises(TransientError):
        place.write(leadership, b"2", version)
    second = place.write(leadership, b"2", version)
    assert place.read().data == b"2"  # type: ignore[union-attr]
    place.write(leadership, b"3", second)
    place.close()


def test_a_write_that_never_arrived_is_made_again() -> None:
    """A write that did not happen and had no answer is made by the next call."""
    shelf, beats = Shelf(), Shelf()
    place = place_of(shelf, beats)
    leadership = place.lead("one", 5)
    shelf.answers = ["never"]
    with pytest.raises(TransientError):
        place.write(leadership, b"1", None)
    place.write(leadership, b"1", None)
    assert place.read().data == b"1"  # type: ignore[union-attr]
    place.close()


def test_a_leader_that_sleeps_in_its_write_is_refused() -> None:
    """Another is elected between a leader's look and its write: the write is refused, and the record is the other's."""
    shelf, beats, clock = Shelf(), Shelf(), Ticking()
    old, new = place_of(shelf, beats, clock), place_of(shelf, beats)
    sleeper = old.lead("sleeper", 5)
    version = old.write(sleeper, b"1", None)
    beats.things.clear()  # to everybody else it is dead
    taken: list[str] = []

    def take_over() -> None:
        shelf.before_create.clear()
        taken.append(new.write(new.lead("other", 5), b"2", version))

    shelf.before_create = [take_over]
    with pytest.raises(FencedError, match="replaced by 'other'"):
        old.write(sleeper, b"late", version)
    assert taken
    assert new.read().data == b"2"  # type: ignore[union-attr]
    old.close()
    new.close()


def test_a_lease_that_cannot_be_renewed_ends_the_leader_first() -> None:
    """A leader whose place is gone says so itself after a lease, by its own clock, before a standby has waited one."""
    shelf, beats, clock = Shelf(), Shelf(), Ticking()
    place = place_of(shelf, beats, clock, 8.0)
    leadership = place.lead("one", 5)
    beats.down = True
    clock.seconds += 7.9
    leadership.check()
    clock.seconds += 0.2
    with pytest.raises(FencedError, match="renew its lease"):
        leadership.check()
    with pytest.raises(FencedError):
        place.write(leadership, b"1", None)
    beats.down = False
    place.close()


def test_a_standby_waits_for_a_whole_lease_without_a_sign() -> None:
    """A standby counts a lease by its own clock from the last change that it saw, and each sign begins it anew."""
    beats, clock = Shelf(), Ticking(1_700_000_000.0)
    vigil = LeaseVigil(beats, 8.0, clock)
    now = beats.now
    beats.create(f"{now}-00", b"")
    signs = iter([1.0, 7.9, 8.1])
    began = clock.seconds

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock.seconds += next(signs)
            if clock.seconds - began < 2:
                beats.things = {f"{now}-01": b""}  # the leader lives
            return False

    vigil.wait(lambda: 0, 60, Ended())
    assert clock.seconds - began == pytest.approx(17.0)


def test_a_leader_that_died_long_ago_is_not_waited_for() -> None:
    """A sign of life that is older than ten leases by the place's own clock is believed to be a dead one's."""
    shelf, beats = Shelf(), Shelf()
    beats.create(f"{beats.now - 200_000}-00", b"")
    place = place_of(shelf, beats, None, 10.0)
    assert place.lead("one", 0.0).epoch == 1
    assert len(beats.things) == 1
    place.close()


def test_damage_to_the_record_is_never_an_empty_job() -> None:
    """A damaged newest entry is an error that names it, for readers and for leaders."""
    shelf, beats = Shelf(), Shelf()
    place = place_of(shelf, beats)
    leadership = place.lead("one", 5)
    version = place.write(leadership, b"1", None)
    shelf.things[record_name(int(version))] = b""
    with pytest.raises(StateCorruptError, match=record_name(int(version))):
        place.read()
    place.close()


def test_no_number_is_used_twice_though_records_are_removed() -> None:
    """Of a thousand records the newest stays, and elections: whoever slept meets the number that it would take."""
    shelf, beats = Shelf(), Shelf()
    place = place_of(shelf, beats)
    leadership = place.lead("one", 5)
    version = None
    for number in range(1000):
        version = place.write(leadership, str(number).encode(), version)
    assert len(shelf.things) == 2
    leadership.resign()
    assert place.lead("two", 5).epoch == 1002
    assert record_name(1) in shelf.things
    place.close()


def test_an_object_store_without_conditional_put_is_refused() -> None:
    """A place where two leaders could not be told apart is a ConfigError, with what to use instead."""
    store = MemoryBlobStore(capabilities=BlobCapabilities(conditional_put=False))
    with pytest.raises(ConfigError, match="cannot keep checkpoint records"):
        in_blob_store(store, "job")


def test_a_candidate_between_its_sign_and_its_election_is_not_overtaken() -> None:
    """Of two that see no leader exactly one is elected, also if one looks while the other is just taking its number."""
    shelf, beats = Shelf(), Shelf()
    first, second = place_of(shelf, beats), place_of(shelf, beats)
    refused: list[BaseException] = []

    def look() -> None:
        try:
            second.lead("second", 0.0)
        except TransientError as error:
            refused.append(error)

    shelf.before_create = [look]
    leadership = first.lead("first", 5)
    leadership.check()
    assert len(refused) == 1
    assert first.leader() == (leadership.epoch, "first") == (1, "first")
    first.close()
    second.close()


@pytest.mark.parametrize("lease_s", [0, -1.0, float("nan")])
def test_a_lease_has_to_last(tmp_path: Path, lease_s: float) -> None:
    """A lease of no time is a ConfigError."""
    with pytest.raises(ConfigError, match="lease"):
        in_directory(tmp_path, "job", lease_s=lease_s)


# --- killed at each step


LEADS_AND_WRITES = """
import os, signal, sys
from pathlib import Path
from millpond.checkpoints import directory
from millpond.coordinator.numbered import in_directory

left = int(sys.argv[2])

def dying(verb):
    def call(self, *arguments):
        global left
        for moment in (0, 1):
            if moment:
                given = verb(self, *arguments)
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return given
    return call

for name in ("create", "delete", "read"):
    setattr(directory.DirectoryFolder, name, dying(getattr(directory.DirectoryFolder, name)))
place = in_directory(Path(sys.argv[1]), "job")
leadership = place.lead("victim", 10)
stored = place.read()
version = None if stored is None else stored.version
number = 0 if stored is None else int(stored.data)
for _ in range(3):
    number += 1
    version = place.write(leadership, str(number).encode(), version)
    print(number, flush=True)
"""


def test_a_leader_killed_at_each_step_loses_nothing(tmp_path: Path) -> None:
    """However far a leader came before it was killed, the next one is elected at once and finds what it was told."""
    said = 0
    deaths = 0
    for step in range(0, 42, 6):
        done = subprocess.run(
            [sys.executable, "-c", LEADS_AND_WRITES, str(tmp_path), str(step)],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
        deaths += done.returncode != 0
        said = max([said, *map(int, done.stdout.split())])
        with in_directory(tmp_path, "job") as place:
            place.lead("next", 0.5).resign()
            stored = place.read()
            found = 0 if stored is None else int(stored.data)
            assert said <= found <= said + 1
            said = found
    assert deaths > 3


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    """A standby on the same machine leads as soon as the leader's process is gone, without any time-out."""
    code = (
        "import sys, pathlib; from millpond.coordinator.numbered import in_directory\n"
        "place = in_directory(pathlib.Path(sys.argv[1]), 'job'); place.lead('victim', 10)\n"
        "print('leads', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"leads\n"
        with in_directory(tmp_path, "job") as standby:
            with pytest.raises(TransientError, match="another coordinator holds"):
                standby.lead("standby", 0.1)
            os.kill(child.pid, signal.SIGKILL)
            child.wait(10)
            assert standby.lead("standby", 1.0).epoch == 2
