"""Packets and messages of Heron's protocol, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from heron_servers import COUNT0, REQID, TOPOLOGY, save_packet
from hypothesis import given, settings
from hypothesis import strategies as st

import millpond.heron
from millpond.heron import answers, messages, peers
from millpond.heron.fields import fields, varint, without
from millpond.heron.framing import (
    LARGEST,
    NO_REQID,
    MalformedPacketError,
    decode,
    encode,
    new_reqid,
    packet_size,
    parse_head,
)
from millpond.heron.messages import NotThatMessageError, message
from millpond.heron.peers import Instance
from millpond.heron.plan import read_coordinator, read_plan, read_stream_manager
from millpond.heron.state_body import GOT, LARGEST_REST, SAVE, StateBegins, StateBody, StatePiece

REGISTER = bytes.fromhex(
    "00000070 0000002b 6865726f6e2e70726f746f2e636b70746d67722e5265676973746572544d616e6167657252657175657374"
    "30663165326433632d346235612d343937382d383739362d6135623463336432"
    "0000001d 0a0a 776f72642d636f756e74 120f 776f72642d636f756e742d37663361"
)
SAVE_PACKET = bytes.fromhex(
    "000000ae 0000002c 6865726f6e2e70726f746f2e636b70746d67722e53617665496e7374616e6365537461746552657175657374"
    "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
    "0000005a 0a2b 0a13 636f6e7461696e65725f315f636f756e745f32 1207 73746d67722d31 1a0b 0802 1000 1a05 636f756e74"
    "122b 0a1e 313731373030303030303030303030303030302d31373137303030333030 1209 00ff7b2261223a317d"
)
CHECKPOINT = "1717000000000000000-1717000300"


def test_the_coordinators_registration_has_the_bytes_of_heron():
    """A registration of the topology manager is the packet that Heron's own encoders make."""
    packet = peers.register_coordinator(TOPOLOGY, b"0f1e2d3c-4b5a-4978-8796-a5b4c3d2")

    assert packet == REGISTER
    assert len(packet) == 116


def test_a_save_has_the_bytes_of_heron():
    """A save of nine bytes of state is the packet that Heron's own encoders make."""
    packet = save_packet(Instance("count", 0, 2), CHECKPOINT, b'\0\xff{"a":1}')

    assert packet == SAVE_PACKET


def test_the_worked_packets_are_read():
    """Heron's packets give back the names, the request id and the fields that they were made of."""
    name, reqid, body = decode(REGISTER)
    asked = read_coordinator("RegisterTManagerRequest", body)
    save = messages.parse("SaveInstanceStateRequest", decode(SAVE_PACKET)[2])

    assert name == "heron.proto.ckptmgr.RegisterTManagerRequest"
    assert reqid == b"0f1e2d3c-4b5a-4978-8796-a5b4c3d2"
    assert (asked.topology, asked.topology_id, asked.slot) == ("word-count", "word-count-7f3a", None)
    assert (save.instance.info.task_id, save.checkpoint.state) == (2, b'\0\xff{"a":1}')


def test_the_answer_to_a_registration_has_no_text():
    """A successful registration is answered with 92 bytes: the status has a code and no message."""
    packet = answers.registered("RegisterTManagerRequest", REQID)

    assert packet[:4] == bytes.fromhex("00000058")
    assert packet[-8:] == bytes.fromhex("00000004 0a020801")
    assert len(packet) == 92


def test_the_answer_to_a_save_has_an_empty_text():
    """A save is answered with a status with an empty message, the instance, and the checkpoint's id."""
    instance = messages.parse("SaveInstanceStateRequest", decode(SAVE_PACKET)[2]).instance
    _, reqid, body = decode(answers.saved(REQID, instance.SerializeToString(), CHECKPOINT))

    assert reqid == REQID
    assert (
        body
        == bytes.fromhex("0a0408011200")
        + b"\x12\x2b"
        + instance.SerializeToString()
        + b"\x1a\x1e"
        + CHECKPOINT.encode()
    )


def test_the_schema_is_what_protoc_makes_of_the_proto_files(tmp_path: Path):
    """The committed descriptors are what the committed schema compiles to."""
    pytest.importorskip("grpc_tools", reason="protoc is not there: pip install grpcio-tools")
    source, made = Path(millpond.heron.__file__).parent / "proto", tmp_path / "made.binpb"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(source), "--include_imports"]
    subprocess.run([*command, "--descriptor_set_out", str(made), "heron_ckptmgr.proto"], check=True, timeout=60)

    assert made.read_bytes() == messages.schema()


def test_every_message_of_the_schema_travels_under_its_full_name():
    """The names in packets are those of the schema's messages, with their package."""
    for name in answers.REQUESTS:
        assert message(name).DESCRIPTOR.full_name == messages.full_name(name)
        assert message(answers.response_to(name).rpartition(".")[2])


@settings(max_examples=60, deadline=None)
@given(
    name=st.from_regex(r"[a-z.]{0,40}[A-Za-z]{0,40}", fullmatch=True),
    reqid=st.binary(min_size=32, max_size=32),
    body=st.binary(max_size=300),
    more=st.binary(max_size=20),
)
def test_a_packet_is_what_was_put_in(name: str, reqid: bytes, body: bytes, more: bytes):
    """Decoding gives back type name, request id and body; the size is four more than its first field says."""
    packet = encode(name, reqid, body)

    assert decode(packet) == (name, reqid, body)
    assert packet_size(packet) == len(packet) == 4 + int.from_bytes(packet[:4], "big")
    assert len(packet) == 4 + 4 + len(name) + 32 + 4 + len(body)
    longer = (len(packet) - 4 + len(more)).to_bytes(4, "big") + packet[4:] + more
    assert decode(longer) == (name, reqid, body)


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 173))
def test_a_packet_that_is_not_complete_is_none(cut: int):
    """Every proper beginning of a packet is refused as a whole one, and read on as a part."""
    with pytest.raises(MalformedPacketError):
        decode(SAVE_PACKET[:cut])
    head = parse_head(SAVE_PACKET[:cut])
    assert (head is None) == (cut < 88)


def test_a_request_id_is_never_zero_and_has_32_bytes():
    """A request id is the first 32 characters of a random UUID, which is not the one of one-way messages."""
    made = {new_reqid() for _ in range(100)}

    assert len(made) == 100
    assert all(len(each) == 32 and each != NO_REQID and each[8:9] == b"-" for each in made)


@pytest.mark.parametrize(
    "packet",
    [
        bytes(4),
        (0xFFFFFFFF).to_bytes(4, "big"),
        (1 << 31).to_bytes(4, "big"),
        (39).to_bytes(4, "big"),
        (40).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(36),
        (100).to_bytes(4, "big") + (0xFFFFFFFF).to_bytes(4, "big") + bytes(92),
        (100).to_bytes(4, "big") + (4).to_bytes(4, "big") + b"name" + bytes(32) + (57).to_bytes(4, "big") + bytes(56),
        (400).to_bytes(4, "big") + (256).to_bytes(4, "big"),
    ],
    ids=["zero", "negative", "2 GiB", "too small", "name overruns", "huge name", "body overruns", "long name"],
)
def test_contradicting_lengths_are_refused(packet: bytes):
    """Lengths of no packet are refused as soon as they are there, and nothing is allocated for them."""
    with pytest.raises(MalformedPacketError):
        parse_head(packet)


def test_the_largest_packet_of_java_is_one():
    """A size of 2^31 - 1 is a packet's, and one byte more is not."""
    assert packet_size(LARGEST.to_bytes(4, "big")) == LARGEST + 4


# Messages

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(2**31), 2**31 - 1)


@st.composite
def saves(draw: Any) -> Any:
    """Make saves of every shape."""
    made = message("SaveInstanceStateRequest")()
    made.instance.instance_id, made.instance.stmgr_id = draw(texts), draw(texts)
    made.instance.info.task_id, made.instance.info.component_index = draw(numbers), draw(numbers)
    made.instance.info.component_name = draw(texts)
    made.instance.info.params.extend(draw(st.lists(texts, max_size=3)))
    if draw(st.booleans()):
        made.instance.info.remote_debugger_port = draw(numbers)
    made.checkpoint.checkpoint_id = draw(texts)
    if draw(st.booleans()):
        made.checkpoint.state = draw(st.binary(max_size=400))
    if draw(st.booleans()):
        made.checkpoint.state_location = draw(texts)
    return made


def feed(body: bytes, sizes: list[int], name: str = SAVE) -> tuple[Any, bytes | None]:
    """Take *body* apart, fed in pieces of *sizes*, over and over."""
    taking, state, at, turn = StateBody(len(body), name), None, 0, 0
    while at < len(body):
        size = sizes[turn % len(sizes)]
        for part in taking.feed(body[at : at + size]):
            if isinstance(part, StateBegins):
                state = b""
            elif isinstance(part, StatePiece):
                assert state is not None
                state += part.data
        at, turn = at + size, turn + 1
    return taking.message(), state


def shuffled(body: bytes, order: Any) -> bytes:
    """Give the fields of a message in another order, which means the same."""
    parts = [body[start:end] for _, start, _, end in fields(body)]
    order.shuffle(parts)
    return b"".join(parts)


@settings(max_examples=100, deadline=None)
@given(
    save=saves(),
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
    unknown=st.booleans(),
)
def test_a_save_in_pieces_is_the_save(save: Any, sizes: list[int], order: Any, unknown: bool):
    """However a save is cut and ordered, and whatever else it holds, its state and the rest are what protobuf reads."""
    extra = (
        varint(99 << 3 | 2) + b"\x03abc" + varint(98 << 3) + varint(1 << 40) + varint(97 << 3 | 1) + bytes(8)
        if unknown
        else b""
    )
    body = shuffled(save.SerializeToString() + extra, order)

    rest, state = feed(body, sizes)

    assert state == (save.checkpoint.state if save.checkpoint.HasField("state") else None)
    save.checkpoint.ClearField("state")
    assert (rest.instance, rest.checkpoint) == (save.instance, save.checkpoint)


@settings(max_examples=60, deadline=None)
@given(save=saves(), second=st.binary(max_size=60), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3))
def test_the_last_state_of_a_save_counts(save: Any, second: bytes, sizes: list[int]):
    """A second checkpoint field is merged as protobuf merges it: the later state counts."""
    again = message("InstanceStateCheckpoint")(checkpoint_id="later", state=second)
    inner = again.SerializeToString()
    body = save.SerializeToString() + b"\x12" + varint(len(inner)) + inner
    whole = message("SaveInstanceStateRequest").FromString(body)

    rest, state = feed(body, sizes)

    assert state == second == whole.checkpoint.state
    assert rest.checkpoint.checkpoint_id == "later" == whole.checkpoint.checkpoint_id


@settings(max_examples=100, deadline=None)
@given(
    save=saves(),
    at=st.integers(0, 500),
    byte=st.integers(0, 255),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3),
)
def test_a_damaged_save_is_refused_or_read_as_protobuf_reads_it(save: Any, at: int, byte: int, sizes: list[int]):
    """One changed byte leads to a refusal or to what protobuf makes of it, and never to another error."""
    body = bytearray(save.SerializeToString())
    body[at % len(body)] = byte
    try:
        rest, state = feed(bytes(body), sizes)
    except NotThatMessageError:
        return
    whole = messages.parse("SaveInstanceStateRequest", bytes(body))

    assert state == (whole.checkpoint.state if whole.checkpoint.HasField("state") else None)
    whole.checkpoint.ClearField("state")
    assert rest.instance == whole.instance


def test_an_answer_to_a_get_is_taken_apart_too():
    """The state in an answer to a get is given piece by piece, and the status with the rest."""
    answer = message("GetInstanceStateResponse")(checkpoint_id="c")
    answer.status.status = 1
    COUNT0.fill(answer.instance)
    answer.checkpoint.checkpoint_id, answer.checkpoint.state = "c", b"s" * 1000

    rest, state = feed(answer.SerializeToString(), [7], GOT)

    assert state == b"s" * 1000
    assert (rest.status.status, rest.checkpoint.checkpoint_id) == (1, "c")


def test_what_a_save_may_hold_beside_its_state_is_bounded():
    """A save with a name of a megabyte is refused before it is held."""
    packet = save_packet(Instance("c" * (LARGEST_REST + 1), 0), "c", b"")
    body = decode(packet)[2]

    with pytest.raises(NotThatMessageError, match="beside its state"):
        feed(body, [1 << 16])


@pytest.mark.parametrize(
    "body", [b"\x0a\xff", b"\x0a\x03ab", b"\x0b", b"\x00", b"\xff" * 11, b"\x0a\xff\xff\xff\xff\x0f"]
)
def test_what_is_no_message_is_refused(body: bytes):
    """Bytes that are no fields are refused by name, whether they are parsed whole or in pieces."""
    with pytest.raises(NotThatMessageError):
        messages.parse("SaveInstanceStateRequest", body)
    with pytest.raises(NotThatMessageError):
        feed(body, [1])


def test_a_required_field_that_is_missing_is_named():
    """A registration without an id is refused, and the error says what is missing."""
    with pytest.raises(NotThatMessageError, match="topology_id"):
        read_coordinator("RegisterTManagerRequest", b"\x0a\x01t")


def test_a_name_that_is_no_text_is_refused():
    """A component's name that is no UTF-8 is refused where it is read."""
    with pytest.raises(NotThatMessageError, match="UTF-8"):
        read_coordinator("RegisterTManagerRequest", b"\x0a\x02\xff\xfe\x12\x01i")


# Plans


def test_a_plan_says_who_runs_what_and_whether_states_are_spilled():
    """Instances by stream manager, each component's number of instances, and the folder for spilled states are read."""
    spilling = peers.Topology("t", "i", TOPOLOGY.instances, spill="/spill")

    plan = read_plan(spilling.plan())

    assert plan.instances == {"stmgr-1": {("count", 0), ("count", 1)}, "stmgr-2": {("say", 0)}}
    assert plan.parallelism == {"count": 2, "say": 1}
    assert plan.spill_location == "/spill"
    assert read_plan(TOPOLOGY.plan()).spill_location is None


@pytest.mark.parametrize("damage", ["missing", "garbage", "cut"])
def test_a_plan_that_cannot_be_read_is_no_obstacle(damage: str):
    """A registration stands without a plan, with a plan of random bytes, and with one that is cut."""
    body = decode(peers.register_stream_manager(TOPOLOGY, "stmgr-1", REQID, with_plan=False))[2]
    if damage == "garbage":
        body = b"\x22\x05\xff\xff\xff\xff\xff" + body
    elif damage == "cut":
        body += b"\x22\x7f\x0a\x05abc"

    asked = read_stream_manager(body)

    assert (asked.topology, asked.topology_id, asked.slot, asked.plan) == (
        "word-count",
        "word-count-7f3a",
        "stmgr-1",
        None,
    )


def test_without_leaves_everything_else():
    """Taking a field out leaves the others byte for byte."""
    assert without(b"\x0a\x01a\x22\x01b\x10\x05\x22\x00", 4) == b"\x0a\x01a\x10\x05"
