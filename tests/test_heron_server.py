"""What a served checkpoint manager answers, request by request, on real sockets."""

from __future__ import annotations

import gc
import socket
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from heron_servers import (
    COUNT0,
    COUNT1,
    HOST,
    ID,
    NAME,
    REQID,
    SAY0,
    TIMEOUT_S,
    TOPOLOGY,
    Raw,
    Served,
    key,
    save_packet,
    serving,
)

from millpond.heron import answers, events, messages, peers
from millpond.heron.double import CoordinatorDouble, StreamManagerDouble
from millpond.heron.folder import FolderStore
from millpond.heron.framing import NO_REQID, encode, new_reqid
from millpond.heron.messages import NOTOK, OK, full_name
from millpond.heron.peers import Instance, Topology


@pytest.fixture(scope="module", params=["memory", "folder"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on each kind of store: one that never waits, and one on a disk."""
    root = tmp_path_factory.mktemp("served")
    blobs = FolderStore(root / "states") if request.param == "folder" else None
    with serving(root, blobs) as one:
        yield one


@pytest.fixture
def raw(served: Served) -> Iterator[Raw]:
    """A fresh socket to it."""
    with served.raw() as sock:
        yield sock


# Registration


def test_a_coordinator_is_let_in_with_herons_answer(raw: Raw):
    """A registration with the right name and id gets the 92 bytes of Heron's answer."""
    raw.send(peers.register_coordinator(TOPOLOGY, REQID))

    assert raw.packet() == answers.registered("RegisterTManagerRequest", REQID)


def test_the_old_name_is_answered_in_kind(raw: Raw):
    """A registration in the spelling of before 2020-11 gets the response of that spelling."""
    raw.send(peers.register_coordinator(TOPOLOGY, REQID, old_name=True))

    name, reqid, answer = raw.answer()
    assert (name, reqid, answer.status.status) == ("RegisterTMasterResponse", REQID, OK)


@pytest.mark.parametrize("topology", [Topology("other", ID), Topology(NAME, "other")], ids=["name", "id"])
def test_another_topology_is_refused_and_its_connection_stays(served: Served, raw: Raw, topology: Topology):
    """A wrong name or id gets NOTOK; the connection lives on, takes other requests, and may register rightly."""
    raw.send(peers.register_coordinator(topology, REQID))
    assert raw.answer()[2].status.status == NOTOK
    raw.send(peers.register_stream_manager(TOPOLOGY, "stmgr-77", REQID))
    name, _, answer = raw.answer()

    assert (name, answer.status.status) == ("RegisterStMgrResponse", OK)
    assert served.ear.of(events.RegistrationRefused)


def test_a_plan_of_another_topology_is_no_obstacle(raw: Raw):
    """A stream manager with the right name and id is let in whatever its plan calls the topology."""
    request = messages.message("RegisterStMgrRequest")(topology_name=NAME, topology_id=ID, stmgr_id="stmgr-1")
    request.physical_plan.CopyFrom(Topology("elsewhere", "elsewhere-1", (COUNT0,)).plan())
    raw.send(encode(full_name("RegisterStMgrRequest"), REQID, request.SerializeToString()))

    assert raw.answer()[2].status.status == OK


def test_registration_gates_nothing(raw: Raw):
    """Saves, gets and cleans are served on a connection that never registered."""
    raw.send(save_packet(COUNT0, "gates-1", b"x") + peers.get(COUNT0, "gates-1", REQID) + peers.clean("", REQID))

    assert [raw.answer()[2].status.status for _ in range(3)] == [OK, OK, OK]


# Saving and getting


@pytest.mark.parametrize("size", [0, 1, 9, 1000, 70_000, 300_000, 3_000_000])
def test_what_was_saved_is_given_back(raw: Raw, size: int):
    """A state of any size comes back byte for byte, in an answer that echoes the instance and the id."""
    state = bytes(range(256)) * (size // 256 + 1)
    state = state[:size]
    raw.send(save_packet(COUNT1, f"back-{size}", state))
    saved = raw.answer()
    raw.send(peers.get(COUNT1, f"back-{size}", REQID))
    name, reqid, answer = raw.answer()

    assert saved[0] == "SaveInstanceStateResponse"
    assert (saved[2].status.status, saved[2].checkpoint_id) == (OK, f"back-{size}")
    assert saved[2].instance == answer.instance
    assert (name, reqid, answer.status.status) == ("GetInstanceStateResponse", REQID, OK)
    assert answer.checkpoint.checkpoint_id == answer.checkpoint_id == f"back-{size}"
    assert answer.checkpoint.HasField("state")
    assert answer.checkpoint.state == state
    assert not answer.checkpoint.HasField("state_location")


def test_an_answer_to_a_get_is_what_protobuf_would_write(raw: Raw):
    """The answer to a get, which is streamed by hand where it is large, has the bytes of protobuf's own writer."""
    for size in (10, 1_000_000):
        raw.send(save_packet(COUNT0, f"bytes-{size}", b"s" * size) + peers.get(COUNT0, f"bytes-{size}", REQID))
        raw.packet()
        packet = raw.packet()
        answer = messages.message("GetInstanceStateResponse")(checkpoint_id=f"bytes-{size}")
        answer.status.status, answer.status.message = OK, ""
        COUNT0.fill(answer.instance)
        answer.checkpoint.checkpoint_id, answer.checkpoint.state = f"bytes-{size}", b"s" * size

        assert packet == encode(full_name("GetInstanceStateResponse"), REQID, answer.SerializeToString())


def test_no_state_is_not_an_empty_state(raw: Raw):
    """A save without a state is read back as a checkpoint without one, and an empty state as an empty one."""
    raw.send(save_packet(COUNT0, "none-1", None) + save_packet(COUNT1, "none-1", b""))
    raw.send(peers.get(COUNT0, "none-1", REQID) + peers.get(COUNT1, "none-1", REQID))
    _, _, none, empty = (raw.answer()[2] for _ in range(4))

    assert (none.status.status, empty.status.status) == (OK, OK)
    assert not none.checkpoint.HasField("state")
    assert empty.checkpoint.HasField("state")


def test_a_key_is_overwritten(raw: Raw):
    """A second save of the same checkpoint, component and index counts, whatever the task's number."""
    other = Instance("count", 0, 99, "stmgr-9")
    raw.send(save_packet(COUNT0, "twice-1", b"first") + save_packet(other, "twice-1", b"second"))
    raw.send(peers.get(COUNT0, "twice-1", REQID))
    answer = [raw.answer()[2] for _ in range(3)][-1]

    assert answer.checkpoint.state == b"second"


def test_the_empty_id_begins_from_nothing(raw: Raw):
    """A get of the empty id is OK with an empty id and a state that is there and empty."""
    raw.send(peers.get(COUNT0, "", REQID))
    answer = raw.answer()[2]

    assert (answer.status.status, answer.checkpoint_id, answer.checkpoint.checkpoint_id) == (OK, "", "")
    assert answer.checkpoint.HasField("state")
    assert answer.checkpoint.state == b""


def test_a_state_that_never_was_is_refused_without_a_checkpoint(raw: Raw):
    """A get of what is not there is NOTOK, echoes its instance, and has no checkpoint at all."""
    raw.send(peers.get(COUNT0, "never-1", REQID))
    name, reqid, answer = raw.answer()

    assert (name, reqid, answer.status.status) == ("GetInstanceStateResponse", REQID, NOTOK)
    assert not answer.HasField("checkpoint")
    assert (answer.instance.info.component_name, answer.checkpoint_id) == ("count", "never-1")


def test_an_empty_id_cannot_be_saved(raw: Raw):
    """A save under the empty id, which means no state, is NOTOK, and lands nowhere."""
    raw.send(save_packet(COUNT0, "", b"x"))

    assert raw.answer()[2].status.status == NOTOK


# Cleaning


def test_a_clean_is_strict(served: Served, raw: Raw):
    """The named checkpoint and later ones stay, earlier ones go, and the answer says which."""
    for number in (1, 2, 3):
        raw.send(save_packet(SAY0, f"1700-{number}", b"x"))
        raw.answer()
    raw.send(peers.clean("1700-2", REQID))
    name, reqid, answer = raw.answer()

    assert (name, reqid, answer.status.status) == ("CleanStatefulCheckpointResponse", REQID, OK)
    assert "1700-1" in list(answer.cleaned_checkpoint_ids)
    assert {"1700-2", "1700-3"} <= set(served.states.checkpoints(NAME))
    assert "1700-1" not in served.states.checkpoints(NAME)


@pytest.mark.parametrize("oldest", [None, ""])
def test_a_clean_without_an_id_removes_nothing(served: Served, raw: Raw, oldest: str | None):
    """A clean with an absent or an empty id is OK and removes nothing."""
    raw.send(save_packet(SAY0, "0001-1", b"x"))
    raw.answer()
    raw.send(peers.clean(oldest, REQID))

    assert raw.answer()[2].status.status == OK
    assert "0001-1" in served.states.checkpoints(NAME)


def test_clean_all_removes_everything_whatever_the_id(tmp_path: Path):
    """A clean of all removes every checkpoint, even where the id that comes along is before them all."""
    with serving(tmp_path, FolderStore(tmp_path / "states")) as served, served.raw() as raw:
        raw.send(save_packet(SAY0, "5-1", b"x") + save_packet(SAY0, "5-2", b"x"))
        raw.send(peers.clean("0-0", REQID, everything=True) + peers.clean("0-0", REQID, everything=True))
        answer = [raw.answer()[2] for _ in range(4)]

        assert [one.status.status for one in answer] == [OK] * 4
        assert list(answer[2].cleaned_checkpoint_ids) == ["5-1", "5-2"]
        assert not list(served.blobs.list(""))
        assert not (tmp_path / "states" / NAME).exists()


# Packets


def test_a_packet_may_come_byte_by_byte(raw: Raw):
    """A save that is sent one byte at a time is a save."""
    for byte in save_packet(COUNT0, "bytewise-1", b"slow"):
        raw.send(bytes([byte]))
    raw.send(peers.get(COUNT0, "bytewise-1", REQID))
    raw.answer()

    assert raw.answer()[2].checkpoint.state == b"slow"


def test_bytes_behind_a_body_are_ignored(raw: Raw):
    """What is left over in a packet, behind a small body or a large one, is passed by."""
    for size in (10, 400_000):
        packet = save_packet(COUNT0, f"over-{size}", b"x" * size)
        raw.send((len(packet) - 4 + 7).to_bytes(4, "big") + packet[4:] + b"surplus")
        raw.send(peers.get(COUNT0, f"over-{size}", REQID))

        assert raw.answer()[2].status.status == OK
        assert len(raw.answer()[2].checkpoint.state) == size


def test_a_zero_request_id_is_answered_with_zeros(raw: Raw):
    """A request with the id of one-way messages is answered all the same, and the id echoed."""
    raw.send(save_packet(COUNT0, "zero-1", b"x", NO_REQID))

    assert raw.answer()[1] == NO_REQID


def test_pipelined_requests_are_answered_in_order(raw: Raw):
    """A registration with a hundred requests of all kinds and sizes right behind it gets its answers in that order."""
    sent = [new_reqid() for _ in range(101)]
    packets = [peers.register_stream_manager(TOPOLOGY, "stmgr-3", sent[0])]
    for number, reqid in enumerate(sent[1:]):
        size = 300_000 if number % 20 == 3 else number
        packets.append(
            save_packet(COUNT0, f"order-{number}", b"x" * size, reqid)
            if number % 3
            else peers.get(COUNT0, f"order-{number - 1}", reqid)
        )
    raw.send(b"".join(packets))

    assert [raw.answer()[1] for _ in sent] == sent


@pytest.mark.parametrize("count", [100, 1_000, 10_000])
def test_each_of_many_requests_gets_one_answer(raw: Raw, count: int):
    """As many requests as are sent on one connection are answered, once each and in order."""
    packet = [peers.get(COUNT0, "", number.to_bytes(32, "big")) for number in range(count)]
    step = 500
    for at in range(0, count, step):
        raw.send(b"".join(packet[at : at + step]))
        for number in range(at, min(at + step, count)):
            assert raw.answer()[1] == number.to_bytes(32, "big")


@pytest.mark.parametrize("name", ["heron.proto.ckptmgr.StartStatefulCheckpoint", "heron.proto.ckptmgr.Nonsense", ""])
def test_an_unknown_type_ends_the_connection(served: Served, raw: Raw, name: str):
    """A packet of a type that is not served ends its connection, without an answer, and no other."""
    with served.raw() as other:
        raw.send(encode(name, REQID, b""))

        assert raw.is_closed()
        other.send(peers.get(COUNT0, "", REQID))
        assert other.answer()[2].status.status == OK


def test_what_was_asked_before_a_hostile_packet_is_answered(raw: Raw):
    """The answer to a get that came before a malformed packet is still sent before the connection ends."""
    raw.send(peers.get(COUNT0, "", REQID) + bytes(4))

    assert raw.answer()[1] == REQID
    assert raw.is_closed()


def test_a_client_that_ends_its_side_gets_its_answers(raw: Raw):
    """Requests that were sent before a client shut its side down are answered; then the connection is closed."""
    import socket

    raw.send(b"".join(save_packet(COUNT0, f"half-{number}", b"x" * 1000) for number in range(150)))
    raw.socket.shutdown(socket.SHUT_WR)

    assert [raw.answer()[2].status.status for _ in range(150)] == [OK] * 150
    assert raw.is_closed()


# The server


def test_stopping_closes_the_listener_and_forgets_every_connection(tmp_path: Path):
    """After a stop nobody listens, clients see the end, and no thread of the server is left."""
    import threading

    before = set(threading.enumerate())
    with ExitStack() as outlasting:
        with serving(tmp_path) as served:
            raw = outlasting.enter_context(Raw(socket.create_connection((HOST, served.port), TIMEOUT_S)))
            raw.send(peers.get(COUNT0, "", REQID))
            raw.packet()
            assert served.ask(lambda: len(served.server.connections)) == 1
        assert raw.is_closed()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", served.port), 2).close()
    assert not served.server.connections
    assert set(threading.enumerate()) <= before


def test_several_topologies_are_kept_apart(tmp_path: Path):
    """Two topologies with the same components and checkpoint ids have states of their own, and a clean of one's own."""
    one, two = Topology("one", "one-1", (COUNT0,)), Topology("two", "two-1", (COUNT0,))
    with (
        serving(tmp_path, topologies={"one": "one-1", "two": "two-1"}) as served,
        served.stmgr(topology=one) as first,
        served.stmgr(topology=two) as second,
    ):
        assert first.save({COUNT0: b"1"}, "9-1") == second.save({COUNT0: b"2"}, "9-1") == {COUNT0}
        assert (first.restore("9-1"), second.restore("9-1")) == ({COUNT0: b"1"}, {COUNT0: b"2"})
        with served.coordinator(one) as coordinator:
            coordinator.clean("", everything=True)
        assert (first.restore("9-1"), second.restore("9-1")) == (None, {COUNT0: b"2"})


def test_with_several_topologies_an_unknown_client_has_to_register(tmp_path: Path):
    """Where nobody can tell whose state it is, a save is NOTOK and says to register first."""
    with serving(tmp_path, topologies={"one": "1", "two": "2"}) as served, served.raw() as raw:
        raw.send(save_packet(COUNT0, "9-1", b"x"))
        answer = raw.answer()[2]

        assert answer.status.status == NOTOK
        assert "register" in answer.status.message


def test_any_topology_may_come_under_one_id(tmp_path: Path):
    """A server for all takes whatever registers; a second id of a running topology is refused until it has gone."""
    with serving(tmp_path, topologies=None) as served:
        with served.coordinator(Topology("new", "a")) as first, served.coordinator(Topology("new", "b")) as second:
            assert first.await_registration()
            assert not second.await_registration()
        served.ear.wait(events.Disconnected, 2)
        with served.coordinator(Topology("new", "b")) as third:
            assert third.await_registration()


def test_what_happens_is_told_as_events(tmp_path: Path):
    """Connections, registrations, saves, fetches, cleans and failures are events with the topology and the numbers."""
    with serving(tmp_path) as served, served.stmgr() as stmgr, served.coordinator() as coordinator:
        stmgr.save({COUNT0: b"x" * 10, COUNT1: b"y"}, "3-1")
        stmgr.restore("3-1")
        stmgr.restore("3-2")
        coordinator.clean("3-2")
        (saved, *_), (fetched, *_) = served.ear.of(events.StateSaved), served.ear.of(events.StateFetched)
        (cleaned,) = served.ear.of(events.CheckpointsCleaned)

        assert (saved.job, saved.component, saved.index, saved.size) == (NAME, "count", 0, 10)
        assert (fetched.checkpoint, fetched.size) == ("3-1", 10)
        assert cleaned.checkpoints == ("3-1",)
        assert {event.slot for event in served.ear.of(events.Registered)} == {"stmgr-1", ""}
        assert served.ear.of(events.RequestFailed)
        assert key(COUNT0, "3-1").path == "word-count/3-1/count/0"


def test_a_test_that_fails_leaves_no_client_open(tmp_path: Path):
    """Whatever clients a test got of its server are closed when it fails, so that no later test is blamed for them."""

    def fail() -> None:
        with serving(tmp_path) as served:
            clients.extend((served.stmgr(), served.coordinator(), served.raw()))
            raise AssertionError("as a test does")

    clients: list[StreamManagerDouble | CoordinatorDouble | Raw] = []
    with pytest.raises(AssertionError, match="as a test does"):
        fail()
    sockets = [each.socket if isinstance(each, Raw) else each.wire.socket for each in clients]

    assert [sock.fileno() for sock in sockets] == [-1, -1, -1]


def test_a_server_that_stops_closes_what_it_has_just_accepted(tmp_path: Path):
    """Connections that come in the moment of the stop are closed by it, and not left to the garbage collector."""
    for count in range(1, 8):
        with ExitStack() as outlasting, warnings.catch_warnings():
            warnings.simplefilter("error")
            with serving(tmp_path / str(count)) as served:
                socks = [socket.create_connection((HOST, served.port), TIMEOUT_S) for _ in range(count)]
                for sock in socks:
                    outlasting.enter_context(sock)
            ends = [Raw(sock).is_closed() for sock in socks]
            del served
            gc.collect()
        assert ends == [True] * count
