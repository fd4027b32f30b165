"""Small saves that are read without a parser."""

from __future__ import annotations

from pathlib import Path

from heron_servers import COUNT0, NAME, REQID, TOPOLOGY, save_packet, serving
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.heron import messages, peers, small_save
from millpond.heron.events import Connected
from millpond.heron.fields import bytes_field
from millpond.heron.framing import decode, encode
from millpond.heron.messages import NOTOK, OK, NotThatMessageError, full_name
from millpond.heron.peers import Instance

SAVE = "SaveInstanceStateRequest"
LENGTHS = st.sampled_from([0, 1, 5, 127, 128, 200, 16_383, 16_384, 100_000])
INSTANCES = st.builds(Instance, st.text(max_size=60), st.integers(0, 300), st.integers(0, 300), st.just("stmgr-1"))


def parsed(packet: bytes) -> tuple[str, int, bytes, str, bytes | None]:
    """Give what the parser finds in a save."""
    request = messages.parse(SAVE, decode(packet)[2])
    about, checkpoint = request.instance, request.checkpoint
    state = checkpoint.state if checkpoint.HasField("state") else None
    place = messages.text(about.info.component_name), about.info.component_index
    return *place, about.SerializeToString(), messages.text(checkpoint.checkpoint_id), state


def read(packet: bytes, at: int = 0) -> tuple[str, int, bytes, str, bytes | None] | None:
    """Give what is read without it."""
    found = small_save.read(packet, at)
    return None if found is None else (*found.instance, found.checkpoint, found.state)


@settings(deadline=None)
@given(INSTANCES, st.text(max_size=200), LENGTHS | st.none())
def test_every_save_of_herons_form_is_read_as_it_is_parsed(instance: Instance, checkpoint: str, size: int | None):
    """A save is read to the same place, id and state, also between others; long names are left to the parser."""
    packet = save_packet(instance, checkpoint, None if size is None else bytes(size))
    wanted = parsed(packet)
    if max(len(wanted[2]), len(checkpoint.encode())) > 127:
        wanted = None

    assert read(packet) == wanted
    assert read(b"before" + packet + b"behind", 6) == wanted
    assert small_save.read(packet[:-1], 0) is None


@settings(deadline=None)
@given(
    st.integers(0, 200),
    st.binary(min_size=1, max_size=3),
    st.integers(0, 2),
    st.sampled_from([b"x", b"y" * 130, None]),
)
def test_a_changed_save_is_never_read_otherwise_than_parsed(place: int, change: bytes, cut: int, state: bytes | None):
    """Where bytes of a body are changed, added or taken away, it is read as it is parsed, or left to the parser."""
    body = decode(save_packet(Instance("count-" * 9, 7), "1717-1", state))[2]
    place %= len(body)
    packet = encode(full_name(SAVE), REQID, body[:place] + change + body[place + cut :])

    if (found := read(packet)) is not None:
        assert found == parsed(packet)


def test_what_is_of_another_form_is_left_to_the_parser_and_saved(tmp_path: Path):
    """The checkpoint before the instance, and a field that nobody knows, are saved like any other."""
    about, inner = peers_instance(), bytes_field(1, b"7-1") + bytes_field(2, b"state")
    bodies = [
        bytes_field(2, inner) + bytes_field(1, about),
        bytes_field(1, about) + bytes_field(2, inner) + bytes_field(99, b"?"),
        bytes_field(1, about) + bytes_field(2, bytes_field(2, b"state") + bytes_field(1, b"7-1")),
    ]
    with serving(tmp_path) as served, served.raw() as raw:
        for body in bodies:
            packet = encode(full_name(SAVE), REQID, body)
            assert small_save.read(packet, 0) is None
            raw.send(packet)
            assert raw.answer()[2].status.status == OK
            assert served.stored(COUNT0, "7-1") == b"state"
            served.blobs.delete([f"{NAME}/7-1/count/0"])


def test_a_damaged_instance_is_left_to_the_parser():
    """An instance without its place, or whose component is no text, is not read."""
    whole = messages.message("Instance", messages.SYSTEM)()
    COUNT0.fill(whole)
    for damaged in (b"", whole.SerializeToString()[:-1], whole.SerializeToString().replace(b"count", b"c\xffunt")):
        body = bytes_field(1, damaged) + bytes_field(2, bytes_field(1, b"7-1"))
        packet = encode(full_name(SAVE), REQID, body)
        assert small_save.read(packet, 0) is None
        try:
            parsed(packet)
        except NotThatMessageError:
            continue
        raise AssertionError("the parser takes it")


def test_a_failed_small_save_is_answered_in_full(tmp_path: Path):
    """A save with an id that cannot be stored is NOTOK, names its instance and id, and the connection goes on."""
    with serving(tmp_path) as served, served.raw() as raw:
        raw.send(save_packet(COUNT0, "x" * 300, b"state") + save_packet(COUNT0, "7-1", b"state"))
        _, reqid, refused = raw.answer()
        assert (reqid, refused.status.status, refused.checkpoint_id) == (REQID, NOTOK, "x" * 300)
        assert refused.instance.SerializeToString() == peers_instance()
        assert raw.answer()[2].status.status == OK
        assert served.stored(COUNT0, "7-1") == b"state"


def test_saves_that_are_cut_anywhere_are_put_together(tmp_path: Path):
    """A hundred saves in pieces that end anywhere are answered in order, and each is stored."""
    ids = [f"7-{number}" for number in range(100)]
    stream = b"".join(save_packet(COUNT0, id, id.encode() * 50, bytes([int(id[2:])]) * 32) for id in ids)
    with serving(tmp_path, read_size=1000) as served, served.raw() as raw:
        for at in range(0, len(stream), 777):
            raw.send(stream[at : at + 777])
        for number, id in enumerate(ids):
            _, reqid, answer = raw.answer()
            assert (reqid[0], answer.status.status, answer.checkpoint_id) == (number, OK, id)
            assert served.stored(COUNT0, id) == id.encode() * 50


def test_a_small_save_waits_for_the_memory_that_others_hold_no_longer_than_they_do(tmp_path: Path):
    """A save that came in two pieces gives back what it reserved for its second one."""
    packet = save_packet(COUNT0, "7-1", b"s" * 5000)
    with serving(tmp_path) as served, served.raw() as raw:
        raw.send(packet[:3000])
        raw.send(packet[3000:])
        assert raw.answer()[2].status.status == OK
        assert served.ask(lambda: served.server.service.budget.held) == 0


def test_each_packet_of_a_stream_has_its_own_time(tmp_path: Path):
    """A client whose every read ends within a packet is not taken for one that trickles: the time begins anew."""
    packet = save_packet(COUNT0, "7-1", b"state")
    with serving(tmp_path) as served, served.raw() as raw:
        raw.send(packet[:50])
        served.ear.wait(Connected)
        (connection,) = served.server.connections
        while (begun := served.ask(lambda: connection.reader.packet_since)) is None:
            pass  # until it was read; the time-out of tests ends it
        raw.send(packet[50:] + packet[:50])
        assert raw.answer()[2].status.status == OK
        assert served.ask(lambda: connection.reader.packet_since) > begun


def test_a_registered_client_completes_its_part_by_small_saves(tmp_path: Path):
    """The save that completes a stream manager's part writes the part's note before it is answered."""
    with serving(tmp_path) as served, served.stmgr() as stmgr:
        mine = TOPOLOGY.of("stmgr-1")
        assert stmgr.save(dict.fromkeys(mine, b"state"), "7-1") == set(mine)
        assert [part.stmgr for part in served.states.parts(NAME, "7-1")] == ["stmgr-1"]


def peers_instance() -> bytes:
    """Give COUNT0 as it travels."""
    request = messages.parse(SAVE, decode(peers.save_head(COUNT0, "7-1", None, REQID))[2])
    return bytes(request.instance.SerializeToString())
