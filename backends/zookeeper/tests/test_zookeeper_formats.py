"""What the nodes hold: encoded and read back, and refused when it is anything else; names that go both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from millpond.checkpoint import CheckpointId, Claim
from millpond.errors import FencedError, FormatError, StateCorruptError, StateNotFoundError
from millpond.formats.envelope import seal
from millpond_zookeeper import head as heads
from millpond_zookeeper.coordinator_nodes import (
    Leader,
    Wrapped,
    decode_leader,
    encode_leader,
    node_version,
    unwrap,
    version_text,
    wrap,
)
from millpond_zookeeper.head import Head, Newest
from millpond_zookeeper.layout import RecordName, named
from millpond_zookeeper.lease import BEATS_PER_TIMEOUT, beat_interval_s, lease_end
from millpond_zookeeper.shelf import Shelf, Shelves

GOLDEN = Path(__file__).with_name("golden")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WRITERS = st.text("0123456789abcdef", min_size=32, max_size=32)
IDS = st.builds(CheckpointId, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
NAMES = st.builds(RecordName, st.integers(1, 10**14), IDS, st.booleans())
HEADS = st.builds(
    Head,
    st.builds(Claim, TEXTS, st.integers(1, 2**40), WRITERS),
    st.integers(0, 2**40),
    st.none() | st.builds(Newest, NAMES, WRITERS),
)


@given(HEADS)
def test_a_head_is_read_as_it_was_written(head):
    """Whatever names and numbers a head holds, it comes back."""
    assert head == heads.decode(heads.encode(head))


@given(HEADS, st.data())
def test_a_changed_head_is_never_read_as_another(head, data):
    """Cut, lengthened or with a flipped bit, a head is an error."""
    whole = heads.encode(head)
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[:place] + bytes([whole[place] ^ 1 << data.draw(st.integers(0, 7))]) + whole[place + 1 :]
    for damaged in (whole[:place], whole + b"x", flipped):
        with pytest.raises((StateCorruptError, FormatError)):
            heads.decode(damaged)


@given(NAMES)
def test_a_records_name_goes_both_ways(name):
    """Number, id and kind are read from the name."""
    assert name == RecordName.parse(str(name))


@given(st.lists(NAMES, min_size=2, max_size=5, unique_by=lambda name: name.number))
def test_a_sorted_listing_begins_with_the_newest(names):
    """By name or by number, the order is the same."""
    by_name = sorted(names, key=str)

    assert by_name == sorted(names, key=lambda name: -name.number)


@pytest.mark.parametrize(
    "name", ["", "1", "999999999999999-1", "999999999999998-1@1-1", "x@1-1", "999999999999999-1@-1-1"]
)
def test_what_is_no_records_name_is_left_alone(name):
    """A stranger's node is not taken for a record."""
    assert RecordName.parse(name) is None


def test_an_id_that_no_name_can_hold_is_refused():
    """A negative number is a FormatError before anything is written."""
    with pytest.raises(FormatError, match="below nothing"):
        named(1, CheckpointId(-1, 0), large=False)


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"task":"t","epoch":"1","writer":"w","last":0,"newest":null}', b"\xff",
             b'{"task":"t","epoch":1,"writer":"w","last":0,"newest":{"name":"x","writer":"w"}}']
)  # fmt: skip
def test_a_sealed_stranger_is_no_head(body):
    """What has a good seal and another shape is a FormatError."""
    with pytest.raises(FormatError):
        heads.decode(seal("millpond-head", 1, "head", body))


def test_a_head_of_a_later_release_asks_for_it():
    """A version that this release does not know is not guessed at."""
    with pytest.raises(FormatError, match="use a newer Millpond"):
        heads.decode(seal("millpond-head", 2, "head", b"{}"))


def test_only_the_claims_writer_may_go_on():
    """A head refuses every other writer, and its own writer's first record if that has not seen the newest."""
    first = Head(Claim("t", 1, "a" * 32))
    written = first.with_record(RecordName(1, CheckpointId(7, 0)))
    taken = written.taken_by("b" * 32)

    with pytest.raises(FencedError, match="belongs to epoch 2"):
        taken.refuse_others(first.claim)
    taken.refuse_others(taken.claim)
    taken.refuse_unseen(taken.claim, CheckpointId(7, 0))
    for after in (None, CheckpointId(6, 0)):
        with pytest.raises(FencedError, match="the newest checkpoint of task 't' is 7-0"):
            taken.refuse_unseen(taken.claim, after)
    written.refuse_unseen(first.claim, None)
    assert written.holds(first.claim, CheckpointId(7, 0))
    assert not taken.holds(taken.claim, CheckpointId(7, 0))


@given(st.integers(1, 2**40), WRITERS, st.none() | st.text("0123456789abcdef-", max_size=9), st.binary(max_size=300))
def test_a_coordinators_record_is_read_as_it_was_written(epoch, token, after, data):
    """Any bytes come back, with who wrote them in place of what."""
    wrapped = Wrapped(epoch, token, after, data)

    assert wrapped == unwrap(wrap(wrapped))


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_a_version_goes_both_ways(version, zxid):
    """The node's version is read from the word for it; other words are none."""
    assert version == node_version(version_text(version, zxid))
    for stranger in (str(version), "", f"{version}-", f"-{zxid:x}", "x-1"):
        assert node_version(stranger) is None
    assert 0 == node_version(None)


@given(st.integers(0, 2**40), TEXTS, WRITERS)
def test_a_leader_is_read_as_it_was_written(epoch, candidate, token):
    """Whatever a candidate is called."""
    assert Leader(epoch, candidate, token) == decode_leader(encode_leader(Leader(epoch, candidate, token)))


@given(st.floats(0, 1e9), st.floats(1, 600))
def test_a_lease_ends_before_its_session_can(sent, timeout_s):
    """Though only the last sign of life but one counts, and half a tick late, the session outlives the lease."""
    earliest_end = sent - timeout_s / BEATS_PER_TIMEOUT - timeout_s / 4 + timeout_s

    assert lease_end(sent, timeout_s) < earliest_end
    assert sent + 2 * beat_interval_s(timeout_s) < lease_end(sent, timeout_s)


# The bytes of the first release

CLAIM = Claim("Partition 0/é", 3, "00112233445566778899aabbccddeeff")
NEWEST = Newest(RecordName(7, CheckpointId(1_700_000_000_123, 456_789), True), "ffeeddccbbaa99887766554433221100")


def test_the_formats_have_the_bytes_of_the_first_release():
    """Heads, leaders and coordinators' records are written as golden files hold them, and read back from there."""
    token = "0123456789abcdef" * 2
    for name, value, encode, decode in (
        ("head", Head(CLAIM, 7, NEWEST), heads.encode, heads.decode),
        ("head-new", Head(CLAIM), heads.encode, heads.decode),
        ("leader", Leader(5, "host ä:17", token), encode_leader, decode_leader),
        ("coordinated", Wrapped(5, token, "4-1f", b"the record\n\x00\xff"), wrap, unwrap),
    ):
        golden = (GOLDEN / name).read_bytes()
        assert golden == encode(value)
        assert value == decode(golden)


@define
class Table(Shelf):
    """A shelf in memory."""

    things: dict[str, bytes] = field(factory=dict)
    kind = "parts"

    def put(self, name: str, data: bytes) -> None:
        self.things[name] = data

    def read(self, name: str, size: int) -> bytes | None:
        return self.things.get(name)

    def names(self) -> list[str]:
        return list(self.things)

    def delete(self, name: str) -> None:
        self.things.pop(name, None)


def test_a_handle_of_the_first_release_leads_to_its_thing():
    """A golden handle is followed; what is there in its place, cut or changed, is an error, and so is nothing."""
    table = Table({f"5-{'0011' * 8}": b"large thing"})
    shelves, handle = Shelves(table, (), 100), (GOLDEN / "handle").read_bytes()

    assert b"large thing" == shelves.get(handle)
    for damaged in (b"", b"large thinG", b"large thing and more"):
        table.things[f"5-{'0011' * 8}"] = damaged
        with pytest.raises(StateCorruptError, match="not what was put there"):
            shelves.get(handle)
    table.things.clear()
    with pytest.raises(StateNotFoundError, match="is gone"):
        shelves.get(handle)


@given(st.binary(max_size=300))
def test_a_thing_of_any_size_comes_back_from_its_node(data):
    """Small things stay in the node, also those that look like a handle; large ones go on the shelf and are found."""
    for thing in (data, (GOLDEN / "handle").read_bytes() + data):
        table = Table()
        shelves = Shelves(table, (), 100)
        kept = shelves.put(thing, 3)
        assert thing == shelves.get(kept)
        assert len(thing) > 100 or kept == thing
        shelves.sweep(4, lambda kept=kept: [kept])
        assert thing == shelves.get(kept)
        shelves.sweep(3, list)
        assert thing == shelves.get(kept)
        shelves.drop(kept)
        assert {} == table.things


@given(st.binary(max_size=60))
def test_a_damaged_handle_leads_nowhere(noise):
    """What only looks like a handle is an error, and opens no path."""
    table = Table({f"5-{'0011' * 8}": b"large thing"})
    shelves, whole = Shelves(table, (), 100), (GOLDEN / "handle").read_bytes()
    hostile = seal("millpond-handle", 1, "parts", b'{"name":"../../etc/passwd","size":1,"digest":"blake3:00"}')
    for damaged in (whole[:-1], whole + noise + b"x", b"millpond-handle " + noise, hostile):
        with pytest.raises((StateCorruptError, FormatError)):
            shelves.get(damaged)
