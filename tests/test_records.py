"""Tests of ``records``: claims and numbered records, over a place that loses answers, sleeps, and turns its clock."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from attrs import define, evolve, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, SystemStreamPartition
from millpond.errors import (
    ConfigError,
    FencedError,
    FormatError,
    StateCorruptError,
    StateNotFoundError,
    TransientError,
)
from millpond.formats import record as record_format
from millpond.records import CLAIM_LIFE, RecordFolder, TaskRecords, record_name, record_number
from millpond.records.looking import LOOK_EVERY, LOOK_LIFE_S

INPUT = SystemStreamPartition("kafka", "flights.in", 0)
DAY = 86_400_000


@define
class Place(RecordFolder):
    """A folder in memory; a test may act inside its calls, and take answers away."""

    things: dict[str, bytes] = field(factory=dict)
    now: int = 1_000_000_000_000
    before_create: list[Callable[[], None]] = field(factory=list)
    answers: list[str] = field(factory=list)  # for the next creations: "lost", "never", "conflict"
    listing_costs: bool = False  # type: ignore[misc]
    listings: int = 0

    def names(self) -> list[str]:
        self.listings += 1
        return list(self.things)

    def create(self, name: str, data: bytes) -> bool:
        if self.before_create:
            self.before_create.pop()()
        answer = self.answers.pop(0) if self.answers else ""
        absent = name not in self.things
        if answer != "never":
            self.things.setdefault(name, data)
        if answer in {"lost", "never"}:
            raise TransientError("no answer")
        return absent and answer != "conflict"

    def read(self, name: str) -> bytes | None:
        return self.things.get(name)

    def delete(self, names: Collection[str]) -> None:
        for name in names:
            self.things.pop(name, None)

    def now_millis(self) -> int:
        return self.now


@frozen
class PlaceClock:
    """A machine whose clocks go with the place's."""

    place: Place

    def millis(self) -> int:
        return self.place.now

    def monotonic(self) -> float:
        return self.place.now / 1000


@define
class Host:
    """One process: its view of a task's records, its claim, and what it saw last."""

    place: Place
    pins: Place
    records: TaskRecords = field(init=False)
    held: Claim | None = None
    seen: CheckpointId | None = None

    def __attrs_post_init__(self) -> None:
        self.restart()

    @property
    def claimed(self) -> Claim:
        assert self.held is not None
        return self.held

    def restart(self) -> None:
        self.records = TaskRecords.of("t", self.place, self.pins, PlaceClock(self.place))

    def claim(self) -> Host:
        self.held = self.records.claim()
        last = self.records.read_last()
        self.seen = None if last is None else last.id
        return self

    def write(self, millis: int) -> None:
        self.records.write(self.claimed, checkpoint(millis), self.seen)
        self.seen = id_of(millis)

    def delete(self, *millis: int) -> None:
        self.records.delete(self.claimed, [id_of(m) for m in millis])


def id_of(millis: int) -> CheckpointId:
    return CheckpointId(millis, 0)


def checkpoint(millis: int) -> Checkpoint:
    return Checkpoint(id_of(millis), offsets={INPUT: str(millis)}, markers={"log": {"s": str(millis)}})


def listed(host: Host) -> list[int]:
    return [id.millis for id in host.records.ids()]


@pytest.fixture(params=[False, True], ids=["listing is free", "listing is a request"])
def place(request: pytest.FixtureRequest) -> Place:
    return Place(listing_costs=request.param)


@pytest.fixture
def pins() -> Place:
    return Place()


Hosts = Callable[[], Host]


@pytest.fixture
def hosts(place: Place, pins: Place) -> Hosts:
    return lambda: Host(place, pins)


# Names


@given(st.integers(1, 10**15 - 1), st.integers(1, 10**15 - 1))
def test_a_listing_gives_the_newest_first(one: int, other: int) -> None:
    """Names sort in the opposite order of their numbers, and give the numbers back."""
    assert one == record_number(record_name(one))
    assert (one > other) == (record_name(one) < record_name(other))


@pytest.mark.parametrize(
    "name", ["", "5", "999999999999999-2", "999999999999999-01", ".new-ab", "x/1", "\u0660" * 15 + "-1"]
)
def test_other_names_are_no_records(name: str) -> None:
    """What no record is called is not taken for one."""
    assert record_number(name) is None


# Claims and fences


def test_what_was_written_is_read(hosts: Hosts) -> None:
    """A new task has no checkpoint; a written one is the last, with its writer, and listed newest first."""
    host = hosts().claim()
    assert host.seen is None

    host.write(1)
    host.write(2)

    assert evolve(checkpoint(2), claim=host.held) == hosts().records.read_last()
    assert evolve(checkpoint(1), claim=host.held) == hosts().records.read(id_of(1))
    assert [2, 1] == listed(hosts())


def test_a_later_claim_refuses_every_earlier_writer(hosts: Hosts) -> None:
    """A replaced writer's next write is FencedError, names the new epoch, and leaves nothing."""
    first = hosts().claim()
    first.write(1)
    second = hosts().claim()

    with pytest.raises(FencedError, match=f"belongs to epoch {second.claimed.epoch}"):
        first.write(2)

    assert second.claimed.epoch > first.claimed.epoch
    assert [1] == listed(second)


def test_a_claim_without_a_write_fences_too(hosts: Hosts) -> None:
    """Claims follow one another with nothing between them, and only the last one may write."""
    claims = [hosts().claim() for _ in range(5)]

    for host in claims[:-1]:
        with pytest.raises(FencedError):
            host.write(1)
    claims[-1].write(1)
    assert [1, 2, 3, 4, 5] == [host.claimed.epoch for host in claims]


def test_a_zombie_whose_numbers_were_collected_is_refused(hosts: Hosts, place: Place) -> None:
    """A writer that wakes after its next number, and the claims that replaced it, were all removed, changes nothing."""
    zombie = hosts().claim()
    zombie.write(1)
    number = zombie.claimed.epoch + 2
    for day in range(5):
        owner = hosts().claim()
        for n in range(10):
            owner.write(100 * day + n + 10)
        owner.delete(*(100 * day + n + 10 for n in range(9)), *((100 * day - 81,) if day else (1,)))
        place.now += 2 * CLAIM_LIFE.days * DAY
    last = hosts().claim()
    assert record_name(number) not in place.things

    before = dict(place.things)
    with pytest.raises(FencedError):
        zombie.write(2)
    with pytest.raises(FencedError):
        zombie.delete(419)
    zombie.restart()
    with pytest.raises(FencedError):
        zombie.write(3)

    assert before == place.things
    last.write(1000)


def test_a_zombie_that_slept_between_its_look_and_its_write_is_refused(hosts: Hosts, place: Place) -> None:
    """Its number stays taken though its successor's checkpoints of that time are long gone."""
    zombie = hosts().claim()
    zombie.write(1)

    def meanwhile() -> None:
        owner = hosts().claim()
        for n in range(2, 50):
            owner.write(n)
        owner.delete(*range(1, 49))

    place.before_create.append(meanwhile)
    with pytest.raises(FencedError):
        zombie.write(2)

    assert [49] == listed(hosts())


def test_a_writer_whose_records_are_all_gone_is_refused(hosts: Hosts, place: Place) -> None:
    """When someone has removed the whole place, the old owner looks some day, and begins no second history."""
    host = hosts().claim()
    host.write(1)
    place.things.clear()
    place.now += DAY

    with pytest.raises(FencedError, match="its claim is gone"):
        host.write(2)
    assert {} == place.things


def test_a_claimant_that_slept_claims_again(hosts: Hosts, place: Place) -> None:
    """A claim that lands on a number from the past is not handed out: its epoch would not be the greatest."""
    owner = hosts().claim()
    owner.write(1)

    def meanwhile() -> None:
        for n in range(2, 10):
            owner.write(n)
        owner.delete(*range(1, 9))

    place.before_create.append(meanwhile)
    late = hosts().claim()

    with pytest.raises(FencedError):
        owner.write(10)
    late.write(11)
    assert [11, 9] == listed(late)


def test_a_claim_stays_thirty_days_and_no_longer(hosts: Hosts, place: Place) -> None:
    """Claims are removed by the clock of the place, CLAIM_LIFE after they were made, and the newest never."""
    hosts().claim()
    place.now += (CLAIM_LIFE.days - 1) * DAY
    hosts().claim()
    assert {record_name(1), record_name(2)} == set(place.things)

    place.now += 2 * DAY
    hosts().claim()
    assert {record_name(2), record_name(3)} == set(place.things)

    place.now += 10 * CLAIM_LIFE.days * DAY
    hosts().claim().write(1)
    assert {record_name(4), record_name(5)} == set(place.things)


def test_a_writer_that_has_not_read_the_last_checkpoint_is_refused(hosts: Hosts) -> None:
    """Whoever claims and does not build on what was there may not write over it."""
    hosts().claim().write(1)
    careless = hosts().claim()
    careless.seen = None

    with pytest.raises(FencedError, match=r"newest checkpoint .* is 1-0"):
        careless.write(2)
    careless.claim().write(2)


# Looks


@pytest.mark.parametrize("place", [True], indirect=True)
def test_one_look_serves_many_writes_where_a_look_is_a_request(hosts: Hosts, place: Place) -> None:
    """A writer that stays awake lists once for as many records as one look serves, and then again."""
    host = hosts().claim()
    host.write(1)
    place.listings = 0

    for number in range(2, 2 + 2 * (LOOK_EVERY + 1)):
        host.write(number)

    assert 2 == place.listings
    assert 2 * (LOOK_EVERY + 1) + 1 == len(listed(host))


@pytest.mark.parametrize("place", [True], indirect=True)
@pytest.mark.parametrize("seconds", [LOOK_LIFE_S, -1])
def test_a_writer_that_slept_or_whose_clock_went_back_looks_again(hosts: Hosts, place: Place, seconds: float) -> None:
    """A look serves no longer than LOOK_LIFE_S, far less than claims stay; a clock that went back says nothing."""
    host = hosts().claim()
    host.write(1)
    host.write(2)
    place.listings, place.now = 0, place.now + int(seconds * 1000)

    host.write(3)

    assert 1 == place.listings
    assert CLAIM_LIFE.total_seconds() > 10 * LOOK_LIFE_S


@pytest.mark.parametrize("place", [True], indirect=True)
def test_removing_costs_one_look_and_one_request(hosts: Hosts, place: Place) -> None:
    """An owner that removes superseded records lists once, and reads none of its own again."""
    host = hosts().claim()
    for number in range(1, 9):
        host.write(number)
    place.listings, place.things = 0, Unread(place.things)

    host.delete(*range(1, 8))

    assert 1 == place.listings
    assert [8] == listed(host)


class Unread(dict[str, bytes]):
    """Things of which none may be read."""

    def get(self, name: str, default: object = None) -> bytes:  # type: ignore[override]
        raise AssertionError(f"{name} was read")


# Lost answers


def test_a_write_whose_answer_was_lost_is_a_success_when_repeated(hosts: Hosts, place: Place) -> None:
    """The same checkpoint again is not refused by itself, and is there once, be it the first one or a later one."""
    host = hosts().claim()
    for millis in (1, 2):
        place.answers = ["lost"]
        with pytest.raises(TransientError):
            host.write(millis)
        host.write(millis)

    assert [2, 1] == listed(host)
    assert 3 == len(place.things)


def test_a_driver_that_repeated_its_own_request_is_not_fenced_by_it(hosts: Hosts, place: Place) -> None:
    """A creation that reports a conflict with what it created itself is a success, for writes and for claims."""
    place.answers = ["conflict"]
    host = hosts().claim()
    place.answers = ["conflict"]
    host.write(1)

    assert (1, [1]) == (host.claimed.epoch, listed(host))


@pytest.mark.parametrize("answer", ["lost", "never"])
def test_the_next_checkpoint_follows_an_unknown_one(hosts: Hosts, place: Place, answer: str) -> None:
    """After an unknown outcome another checkpoint can be written, whether the first is there or not."""
    host = hosts().claim()
    place.answers = [answer]
    with pytest.raises(TransientError):
        host.write(1)

    host.write(2)

    assert ([2, 1] if answer == "lost" else [2]) == listed(host)


def test_a_lost_answer_is_not_taken_for_success_by_another_owner(hosts: Hosts, place: Place) -> None:
    """When another has taken the number with the same checkpoint id, the writer is refused."""
    first = hosts().claim()
    place.answers = ["never"]
    with pytest.raises(TransientError):
        first.write(7)
    hosts().claim().write(7)

    with pytest.raises(FencedError):
        first.write(7)


def test_a_new_object_goes_on_with_an_old_claim(hosts: Hosts) -> None:
    """A writer that lost count finds its place by its own records, though most of them are removed."""
    host = hosts().claim()
    for n in range(1, 6):
        host.write(n)
    host.delete(1, 2, 3)
    host.restart()

    host.write(6)
    host.restart()
    host.write(6)

    assert [6, 5, 4] == listed(host)


# Damage


def cut(data: bytes) -> bytes:
    return data[:-5]


def emptied(_: bytes) -> bytes:
    return b""


def flipped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


def foreign(_: bytes) -> bytes:
    return b'{"not": "ours"}'


def newer(data: bytes) -> bytes:
    return data.replace(b"millpond-record 1 ", b"millpond-record 2 ", 1)


def of_another_task(data: bytes) -> bytes:
    found = record_format.decode(data)
    if isinstance(found, record_format.ClaimRecord):
        return record_format.encode_claim(evolve(found.claim, task="u"), found.millis)
    theirs = evolve(found.checkpoint, claim=Claim("u", 1, "ab"))
    return record_format.encode_checkpoint(theirs)


DAMAGE = [cut, emptied, flipped, foreign, newer, of_another_task]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("number", [3, 4])
def test_an_unreadable_newest_record_is_never_passed_over(
    hosts: Hosts, place: Place, damage: Callable[[bytes], bytes], number: int
) -> None:
    """A damaged checkpoint, or a damaged claim after it, makes read_last raise and name it: never None or older."""
    host = hosts().claim()
    host.write(1)
    host.write(2)
    hosts().claim()
    place.things[record_name(number)] = damage(place.things[record_name(number)])

    with pytest.raises((FormatError, StateCorruptError), match=record_name(number)):
        hosts().records.read_last()


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_elsewhere_hides_no_other_checkpoint(
    hosts: Hosts, place: Place, damage: Callable[[bytes], bytes]
) -> None:
    """An id is found in spite of a damaged record of another; one that is not found may be the damaged one."""
    host = hosts().claim()
    for n in (1, 2, 3):
        host.write(n)
    place.things[record_name(3)] = damage(place.things[record_name(3)])

    assert id_of(1) == hosts().records.read(id_of(1)).id
    with pytest.raises((FormatError, StateCorruptError), match=record_name(3)):
        hosts().records.read(id_of(2))
    with pytest.raises((FormatError, StateCorruptError), match=record_name(3)):
        hosts().records.ids()


def test_a_record_of_a_later_release_at_our_number_fences(hosts: Hosts, place: Place) -> None:
    """What stands at the next number and cannot be read by this release is another owner's."""
    host = hosts().claim()
    host.write(1)

    def meanwhile() -> None:
        hosts().claim()
        place.things[record_name(3)] = newer(place.things[record_name(3)])

    place.before_create.append(meanwhile)
    with pytest.raises(FencedError):
        host.write(2)


# Removing and keeping


def test_removed_records_are_gone_and_missing_ones_fine(hosts: Hosts) -> None:
    """Only the named records go, and a second removal of them is no error."""
    host = hosts().claim()
    for n in (1, 2, 3):
        host.write(n)

    host.delete(1, 2)
    host.delete(1, 2, 99)

    assert [3] == listed(hosts())
    with pytest.raises(StateNotFoundError):
        hosts().records.read(id_of(1))


def test_a_replaced_writer_removes_nothing(hosts: Hosts) -> None:
    """Removal is refused to whoever may not write."""
    first = hosts().claim()
    first.write(1)
    first.write(2)
    hosts().claim()

    with pytest.raises(FencedError):
        first.delete(1)
    assert [2, 1] == listed(hosts())


def test_the_fence_stands_when_the_newest_checkpoint_is_removed(hosts: Hosts) -> None:
    """Removing all checkpoints frees no number: the next claim is still later, and the writer goes on until then."""
    first = hosts().claim()
    first.write(1)
    first.delete(1)
    assert hosts().records.read_last() is None
    first.write(2)
    first.delete(2)

    second = hosts().claim()

    with pytest.raises(FencedError):
        first.write(3)
    second.write(4)
    assert [4] == listed(hosts())


def test_a_pin_outlives_its_record(hosts: Hosts) -> None:
    """A pinned checkpoint is read though its record is gone, is not listed, and can be pinned again from its pin."""
    host = hosts().claim()
    host.write(1)
    host.write(2)
    host.records.pin(id_of(1), "before / the ünion")
    host.delete(1)

    reader = hosts().records
    reader.pin(id_of(1), "second")
    reader.unpin("before / the ünion")
    reader.unpin("never was")

    assert {"second": id_of(1)} == reader.pins()
    assert evolve(checkpoint(1), claim=host.held) == reader.read(id_of(1))
    assert [2] == listed(hosts())


@pytest.mark.parametrize("kept", [True, False], ids=["held-by-another-pin", "by-nothing"])
def test_a_pin_that_comes_too_late_is_taken_back(hosts: Hosts, pins: Place, kept: bool) -> None:
    """A record that went while it was being pinned may have lost its data already: the pin would promise too much."""
    host = hosts().claim()
    host.write(1)
    host.write(2)
    if kept:
        host.records.pin(id_of(1), "earlier")
    pins.before_create.append(lambda: host.delete(1))

    reader = hosts().records
    if kept:
        reader.pin(id_of(1), "late")
        assert {"earlier": id_of(1), "late": id_of(1)} == reader.pins()
    else:
        with pytest.raises(StateNotFoundError, match="superseded while it was being pinned"):
            reader.pin(id_of(1), "late")
        assert {} == reader.pins()


def test_a_pin_is_not_moved(hosts: Hosts) -> None:
    """The same pin again is fine; another id under its name, or one that is not there, is refused."""
    host = hosts().claim()
    host.write(1)
    host.write(2)
    host.records.pin(id_of(1), "p")

    host.records.pin(id_of(1), "p")
    with pytest.raises(ConfigError, match="pins 1-0"):
        host.records.pin(id_of(2), "p")
    with pytest.raises(StateNotFoundError):
        host.records.pin(id_of(3), "q")
    assert {"p": id_of(1)} == host.records.pins()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_pin_is_named(hosts: Hosts, pins: Place, damage: Callable[[bytes], bytes]) -> None:
    """A pin that cannot be read is an error with its name, not a missing pin: what it needs must not be removed."""
    host = hosts().claim()
    host.write(1)
    host.records.pin(id_of(1), "p")
    pins.things["p"] = damage(pins.things["p"])

    with pytest.raises((FormatError, StateCorruptError), match="the record p "):
        hosts().records.pins()


def test_a_reader_sees_the_newest_while_records_are_removed(hosts: Hosts, place: Place) -> None:
    """A record that vanishes between the listing and the read makes the reader look again."""
    host = hosts().claim()
    host.write(1)
    reader = hosts()
    stale = [place.names()]
    host.write(2)
    host.delete(1)

    class Racing(Place):
        def names(self) -> list[str]:
            return stale.pop() if stale else super().names()

    racing = TaskRecords.of("t", Racing(place.things), reader.pins, PlaceClock(place))
    last = racing.read_last()
    assert last is not None
    assert id_of(2) == last.id


# A model


class Claimants(RuleBasedStateMachine):
    """Three processes claim, write, lose answers, forget, remove and sleep; a list says what must be there."""

    @initialize(listing_costs=st.booleans())
    def begin(self, listing_costs: bool) -> None:
        self.place, self.pins = Place(listing_costs=listing_costs), Place()
        self.hosts = [Host(self.place, self.pins) for _ in range(3)]
        self.owner: Host | None = None
        self.kept: list[int] = []
        self.pinned: dict[str, int] = {}
        self.unknown: int | None = None
        self.millis = 0
        self.epoch = 0

    hosts_numbers = st.integers(0, 2)

    @rule(number=hosts_numbers)
    def claim(self, number: int) -> None:
        self.owner = self.hosts[number].claim()
        assert self.owner.claimed.epoch > self.epoch
        self.epoch = self.owner.claimed.epoch
        assert self.owner.seen == (id_of(self.kept[-1]) if self.kept else None)

    @rule(number=hosts_numbers, answer=st.sampled_from(["", "", "lost", "never", "conflict"]))
    def write(self, number: int, answer: str) -> None:
        host = self.hosts[number]
        if host.held is None:
            return
        self.millis += 1
        self.place.answers = [answer]
        if host is not self.owner:
            before = dict(self.place.things)
            # Who need not look before each write hears of its successor by an answer, and that may be lost.
            unheard = self.place.listing_costs and answer in ("lost", "never")
            with pytest.raises((FencedError, TransientError) if unheard else FencedError):
                host.write(self.millis)
            assert before == self.place.things
        elif answer in ("lost", "never"):
            with pytest.raises(TransientError):
                host.write(self.millis)
            if answer == "lost":
                self.kept.append(self.millis)
        else:
            host.write(self.millis)
            self.kept.append(self.millis)
        self.place.answers = []

    @precondition(lambda self: self.owner is not None and self.kept)
    @rule()
    def repeat(self) -> None:
        last = record_format.decode(self.place.things[min(self.place.things)])
        mine = isinstance(last, record_format.CheckpointRecord) and last.checkpoint.claim == self.owner.held
        if mine:
            self.owner.write(self.kept[-1])

    @rule(number=hosts_numbers)
    def restart(self, number: int) -> None:
        self.hosts[number].restart()

    @rule(number=hosts_numbers, count=st.integers(1, 5), all_of_them=st.booleans())
    def delete(self, number: int, count: int, all_of_them: bool) -> None:
        host = self.hosts[number]
        doomed = self.kept[:] if all_of_them else self.kept[:-1][:count]
        if host.held is None:
            return
        if host is not self.owner:
            with pytest.raises(FencedError):
                host.delete(*doomed)
            return
        host.delete(*doomed)
        self.kept = [m for m in self.kept if m not in doomed]

    @precondition(lambda self: self.kept)
    @rule(number=hosts_numbers, name=st.sampled_from("ab"))
    def pin(self, number: int, name: str) -> None:
        if name not in self.pinned:
            self.hosts[number].records.pin(id_of(self.kept[0]), name)
            self.pinned[name] = self.kept[0]

    @rule(name=st.sampled_from("ab"))
    def unpin(self, name: str) -> None:
        self.hosts[0].records.unpin(name)
        self.pinned.pop(name, None)

    @rule(days=st.sampled_from([1, 31]))
    def sleep(self, days: int) -> None:
        self.place.now += days * DAY

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        reader = Host(self.place, self.pins)
        last = reader.records.read_last()
        assert (self.kept[-1] if self.kept else None) == (None if last is None else last.id.millis)
        assert self.kept[::-1] == listed(reader)
        for millis in self.pinned.values():
            assert str(millis) == reader.records.read(id_of(millis)).offsets[INPUT]


Claimants.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestClaimants = Claimants.TestCase
