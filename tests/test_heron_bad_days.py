"""Bad days of a served checkpoint manager: hostile packets, slow and silent clients, full disks, kills, crowds."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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

from millpond.blob.memory import MemoryBlobStore
from millpond.errors import StateNotFoundError, TransientError
from millpond.heron import events, peers
from millpond.heron.double import StreamManagerDouble
from millpond.heron.folder import FolderStore
from millpond.heron.framing import encode
from millpond.heron.inflow import Spooling
from millpond.heron.messages import NOTOK, OK, full_name
from millpond.heron.scratch import Scratch

LARGE = 1_500_000


class SlowMemory(MemoryBlobStore):
    """A store in memory that may wait, so that its works go to threads as those of a disk do."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()
        self.entered = threading.Semaphore(0)
        self.before = self._wait

    def _wait(self, _verb: str, _key: str) -> None:
        self.entered.release()
        assert self.go_on.wait(TIMEOUT_S)


@contextmanager
def waiting(root: Path, **given: object) -> Iterator[tuple[Served, SlowMemory]]:
    """Serve a store that a test can hold up."""
    blobs = SlowMemory()
    with serving(root, blobs, **given) as served:
        served.states.instant = False
        try:
            yield served, blobs
        finally:
            blobs.go_on.set()


def lives(served: Served) -> bool:
    """Tell whether the server serves somebody else."""
    with served.raw() as other:
        other.send(peers.clean("", REQID))
        return bool(other.answer()[2].status.status == OK)


# Packets


HOSTILE = {
    "zero length": bytes(4),
    "negative length": b"\xff\xff\xff\xfe" + bytes(100),
    "name overruns": (50).to_bytes(4, "big") + (60).to_bytes(4, "big") + bytes(46),
    "body overruns": save_packet(COUNT0, "x", b"y")[:84] + b"\x7f\xff\xff\xff" + bytes(60),
    "unknown type": encode("heron.proto.ckptmgr.Unknown", REQID, b""),
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60),
    "no message": encode(full_name("SaveInstanceStateRequest"), REQID, b"\xff" * 20),
    "missing fields": encode(full_name("GetInstanceStateRequest"), REQID, b""),
    "no UTF-8": peers.get(COUNT0, "1-1", REQID).replace(b"count", b"c\xff\xfe\xfdt"),
    "a large save that is none": (encode(full_name("SaveInstanceStateRequest"), REQID, b"\x0a\x7f" + b"\xff" * LARGE)),
}


@pytest.mark.parametrize("packet", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_packet_ends_its_connection_and_nothing_else(tmp_path: Path, packet: bytes):
    """Truncated, contradicting, unknown and random packets end their own connection; an event says why."""
    with (
        serving(tmp_path, FolderStore(tmp_path / "states")) as served,
        served.stmgr() as neighbour,
        served.raw() as raw,
    ):
        assert neighbour.await_registration()
        try:
            raw.send(packet)
        except ConnectionError:
            pass
        assert raw.is_closed()
        assert served.ear.wait(events.Disconnected)[0].reason

        assert neighbour.save({COUNT0: b"x"}, "1-1") == {COUNT0}
        assert lives(served)
        assert served.ask(lambda: served.server.service.budget.held) == 0


@pytest.mark.parametrize("size", [100, LARGE])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.999])
def test_a_packet_that_breaks_off_leaves_nothing(tmp_path: Path, size: int, part: float):
    """A connection that ends within a save, small or large, leaves no state, no file and no memory held."""
    packet = save_packet(COUNT0, "1-1", b"x" * size)
    with serving(tmp_path, FolderStore(tmp_path / "states")) as served:
        with served.raw() as raw:
            raw.send(packet[: max(90, int(len(packet) * part))])
            served.ear.wait(events.Connected)
        served.ear.wait(events.Disconnected)
        assert lives(served)

        with pytest.raises(StateNotFoundError):
            served.states.fetch(key(COUNT0, "1-1"))
        assert served.ask(lambda: served.server.service.budget.held) == 0
        served.server.service.submit(lambda: None).result(TIMEOUT_S)
    assert not [path for path in (tmp_path / "states").rglob("*") if path.is_file()]


def test_interleaved_packets_are_put_together_by_connection(tmp_path: Path):
    """Twenty large saves whose pieces arrive in turn are each what their client sent."""
    count, chance = 20, random.Random(7)
    states = {number: chance.randbytes(400_000 + number) for number in range(count)}
    with serving(tmp_path, FolderStore(tmp_path / "states")) as served, ExitStack() as stack:
        raws = {number: stack.enter_context(served.raw()) for number in range(count)}
        packets = {
            number: save_packet(peers.Instance("count", number), "1-1", state) for number, state in states.items()
        }
        at = dict.fromkeys(packets, 0)
        while at:
            number = chance.choice(list(at))
            step = chance.randrange(1, 90_000)
            raws[number].send(packets[number][at[number] : at[number] + step])
            at[number] += step
            if at[number] >= len(packets[number]):
                del at[number]

        assert all(raw.answer()[2].status.status == OK for raw in raws.values())
        for number, state in states.items():
            assert served.stored(peers.Instance("count", number), "1-1") == state


def test_random_bytes_harm_nobody(tmp_path: Path):
    """A hundred connections that send random bytes end, while a neighbour's saves and gets go on."""
    chance = random.Random(11)
    with serving(tmp_path) as served, served.stmgr() as neighbour:
        for number in range(100):
            with served.raw() as raw:
                raw.send(chance.randbytes(chance.randrange(1, 3000)))
            if number % 20 == 0:
                assert neighbour.save({COUNT0: b"%d" % number}, f"1-{number}") == {COUNT0}
        assert neighbour.restore("1-80") is None  # count/1 was never saved
        assert lives(served)


# Sizes


def limit_for(packet: bytes) -> int:
    return len(packet) - 4


@pytest.mark.parametrize("size", [200, LARGE])
def test_a_packet_of_exactly_the_limit_is_served_and_one_byte_more_is_not(tmp_path: Path, size: int):
    """The limit counts as Heron counts it: N itself is allowed; one more gets NOTOK, and the connection stays."""
    packet, more = save_packet(COUNT0, "1-1", b"x" * size), save_packet(COUNT0, "1-2", b"x" * (size + 1))
    assert len(more) == len(packet) + 1
    with serving(tmp_path, max_packet=limit_for(packet)) as served, served.raw() as raw:
        raw.send(packet + more + peers.get(COUNT0, "1-1", REQID))
        fits, refused, got = (raw.answer()[2] for _ in range(3))

        assert (fits.status.status, refused.status.status) == (OK, NOTOK)
        assert f"{limit_for(packet):,}" in refused.status.message
        assert (refused.instance.info.component_name, refused.checkpoint_id) == ("count", "1-2")
        assert len(got.checkpoint.state) == size


def test_in_strict_mode_a_large_packet_is_cut(tmp_path: Path):
    """As with Heron, one byte over the limit closes the connection without an answer."""
    packet = save_packet(COUNT0, "1-1", b"x" * 200)
    with serving(tmp_path, max_packet=limit_for(packet) - 1, strict=True) as served, served.raw() as raw:
        raw.send(packet)

        assert raw.is_closed()


@pytest.mark.parametrize("name", ["RegisterTManagerRequest", "RegisterStMgrRequest", "CleanStatefulCheckpointRequest"])
def test_other_large_requests_are_refused_without_being_held(tmp_path: Path, name: str):
    """A registration or a clean over the limit gets NOTOK while its bytes pass by."""
    with serving(tmp_path, max_held_packet=1000) as served, served.raw() as raw:
        raw.send(encode(full_name(name), REQID, bytes(500_000)) + peers.get(COUNT0, "", REQID))

        assert raw.answer()[2].status.status == NOTOK
        assert raw.answer()[2].status.status == OK


def test_a_large_get_ends_its_connection(tmp_path: Path):
    """A get has no reason to be large: its connection ends, since its answer could not echo what it asked."""
    with serving(tmp_path, max_held_packet=1000) as served, served.raw() as raw:
        raw.send(peers.get(peers.Instance("c" * 2000, 0), "1-1", REQID))

        assert raw.is_closed()


# Slow and silent clients


def test_a_packet_that_stalls_ends_its_connection(tmp_path: Path):
    """A client that sends half a packet and no more is dropped after the time for a packet."""
    with serving(tmp_path, packet_timeout=0.3) as served, served.raw() as raw:
        raw.send(save_packet(COUNT0, "1-1", b"x" * 1000)[:500])

        assert raw.is_closed()
        assert "nothing of a packet" in served.ear.wait(events.Disconnected)[0].reason


def test_a_packet_that_trickles_ends_its_connection(tmp_path: Path):
    """A client that keeps sending, a byte now and then, is dropped once the packet took too long for its size."""
    gone = threading.Event()
    with serving(tmp_path, packet_timeout=0.5, slowest=1 << 20) as served, served.raw() as raw:
        packet = save_packet(COUNT0, "1-1", b"x" * 1000)
        for at in range(len(packet)):
            if served.ear.of(events.Disconnected):
                break
            try:
                raw.send(packet[at : at + 1])
            except ConnectionError:
                break
            gone.wait(0.05)  # the client's pace

        assert "took longer than" in served.ear.wait(events.Disconnected)[0].reason


def test_a_client_that_never_reads_is_dropped_and_holds_little(tmp_path: Path):
    """A client that asks for megabytes again and again and reads nothing is dropped; the rest is not even read."""
    with serving(tmp_path, FolderStore(tmp_path / "states"), write_timeout=1.0, memory=8 << 20) as served:
        served.states.save(key(COUNT0, "1-1"), b"x" * LARGE)
        sock = served.socket()
        sock.settimeout(0.5)
        ask = peers.get(COUNT0, "1-1", REQID) * 50
        sent = 0
        try:
            for _ in range(100_000):
                sent += sock.send(ask)
        except (TimeoutError, ConnectionError):
            pass
        (ended,) = served.ear.wait(events.Disconnected)
        sock.close()

        assert "not read its answers" in ended.reason
        assert len(served.ear.of(events.StateFetched)) <= 200
        assert lives(served)
        assert served.ask(lambda: served.server.service.budget.held) == 0


def test_a_registered_client_may_be_silent(tmp_path: Path):
    """A registered client that asks for nothing stays; one that never registered is dropped after its time."""
    with serving(tmp_path, idle_timeout=0.3) as served, served.stmgr() as stmgr, served.raw() as raw:
        assert stmgr.await_registration()

        assert raw.is_closed()
        assert "never registered" in served.ear.wait(events.Disconnected)[0].reason
        assert stmgr.save({COUNT0: b"x"}, "1-1") == {COUNT0}


# Who is there


def test_a_second_topology_manager_takes_over(tmp_path: Path):
    """A second coordinator of the topology is let in at once, and the first one's connection ends with the reason."""
    with serving(tmp_path) as served, served.coordinator() as first:
        assert first.await_registration()
        with served.coordinator() as second:
            assert second.await_registration()
            assert Raw(first.wire.socket).is_closed()
            assert second.clean("1-1").status.status == OK
        reasons = [event.reason for event in served.ear.wait(events.Disconnected, 2)]
        assert any("in its place" in reason for reason in reasons)
        assert [event.replaced for event in served.ear.of(events.Registered)] == [False, True]


# Checkpoints


def test_a_save_for_a_cleaned_checkpoint_is_refused(tmp_path: Path):
    """A late save for a checkpoint that was cleaned is NOTOK and says so; nothing of it is there."""
    with serving(tmp_path) as served, served.stmgr() as stmgr, served.coordinator() as coordinator:
        stmgr.save({COUNT0: b"a"}, "1-1")
        stmgr.save({COUNT0: b"a", COUNT1: b"b"}, "1-2")
        assert list(coordinator.clean("1-2").cleaned_checkpoint_ids) == ["1-1"]
        answer = stmgr.answer(stmgr.begin_save(COUNT1, "1-1", b"late")).message

        assert answer.status.status == NOTOK
        assert "has been cleaned" in answer.status.message
        assert served.states.checkpoints(NAME) == ["1-2"]


def test_a_get_of_what_never_was_fails_its_five_tries(tmp_path: Path):
    """A restore to a checkpoint that never was is refused five times, and the connection stays."""
    with serving(tmp_path) as served, served.stmgr(topology=peers.Topology(NAME, ID, (COUNT0,))) as stmgr:
        assert stmgr.restore("9-9") is None

        assert len(served.ear.of(events.RequestFailed)) == 5
        assert stmgr.save({COUNT0: b"x"}, "1-1") == {COUNT0}


# The store


@pytest.mark.parametrize("size", [100, LARGE])
def test_a_full_disk_fails_the_save_and_nothing_else(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch):
    """With the disk full a save is NOTOK and says so; the connection stays, and with room again a save is OK."""
    full, real = threading.Event(), os.write

    def write(descriptor: int, data: bytes) -> int:
        if full.is_set() and "/states/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    fsync = os.fsync

    def sync(descriptor: int) -> None:
        if full.is_set() and "/states/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "fsync", sync)
    with serving(tmp_path, FolderStore(tmp_path / "states")) as served, served.stmgr() as stmgr:
        full.set()
        answer = stmgr.answer(stmgr.begin_save(COUNT0, "1-1", b"x" * size)).message
        assert answer.status.status == NOTOK
        assert "the disk is full" in answer.status.message
        full.clear()

        assert stmgr.save({COUNT0: b"y" * size}, "1-1") == {COUNT0}
        assert served.stored(COUNT0, "1-1") == b"y" * size
        assert served.ask(lambda: served.server.service.budget.held) == 0
        assert len([path for path in (tmp_path / "states" / NAME).rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize("size", [100, LARGE])
def test_a_store_that_hangs_is_answered_for(tmp_path: Path, size: int):
    """A save that the store does not take in time is NOTOK; what comes late does not overwrite a later save."""
    with waiting(tmp_path, store_timeout=0.4) as (served, blobs), served.stmgr() as stmgr:
        assert stmgr.await_registration()
        blobs.go_on.clear()
        answer = stmgr.answer(stmgr.begin_save(COUNT0, "1-1", b"old" * size)).message
        assert answer.status.status == NOTOK
        assert "did not answer" in answer.status.message
        later = stmgr.begin_save(COUNT0, "1-1", b"new" * size)
        blobs.go_on.set()
        stmgr.answer(later)
        assert stmgr.save({COUNT0: b"new" * size}, "1-1") == {COUNT0}

        assert served.stored(COUNT0, "1-1") == b"new" * size
        assert served.ask(lambda: served.server.service.budget.held) == 0


def test_a_store_that_times_out_in_mid_save_fails_that_save(tmp_path: Path):
    """A store that raises in the middle of a save makes it NOTOK with the store's words; the next one is OK."""
    blobs = MemoryBlobStore()
    calls: list[str] = []

    def fail_once(verb: str, name: str) -> None:
        if verb == "put" and not calls:
            calls.append(name)
            raise TransientError("s3://bucket did not answer within 60 s")

    blobs.before = fail_once
    with serving(tmp_path, blobs) as served, served.stmgr() as stmgr:
        answer = stmgr.answer(stmgr.begin_save(COUNT0, "1-1", b"x" * LARGE)).message
        assert answer.status.status == NOTOK
        assert "did not answer within 60 s" in answer.status.message
        assert stmgr.save({COUNT0: b"x"}, "1-1") == {COUNT0}


def test_a_store_that_breaks_does_not_show_its_insides(tmp_path: Path):
    """An error that nobody expected makes its request NOTOK; a client sees its kind and not its text."""
    blobs = MemoryBlobStore()

    def bug(verb: str, _name: str) -> None:
        if verb == "put":
            raise RuntimeError("secret-token")

    blobs.before = bug
    with serving(tmp_path, blobs) as served, served.stmgr() as stmgr:
        answer = stmgr.answer(stmgr.begin_save(COUNT0, "1-1", b"x")).message

        assert answer.status.status == NOTOK
        assert "secret-token" not in answer.status.message
        assert "RuntimeError" in answer.status.message
        assert lives(served)


def test_a_blocked_store_does_not_block_the_loop(tmp_path: Path):
    """While every thread waits for the store, registrations and empty gets are answered."""
    with waiting(tmp_path, threads=2) as (served, blobs), served.stmgr() as stmgr:
        blobs.go_on.clear()
        sent = [stmgr.begin_save(COUNT0, f"1-{number}", b"x") for number in range(4)]
        assert blobs.entered.acquire(timeout=TIMEOUT_S)
        assert blobs.entered.acquire(timeout=TIMEOUT_S)

        with served.coordinator() as coordinator:
            assert coordinator.await_registration()
        with served.raw() as other:
            other.send(peers.get(COUNT0, "", REQID))
            assert other.answer()[2].status.status == OK
        blobs.go_on.set()
        assert [stmgr.answer(reqid).message.status.status for reqid in sent] == [OK] * 4


# Kills


def child(folder: Path, hook: str = "") -> subprocess.Popen[str]:
    """Start a server on *folder* in a process of its own, which prints its port; *hook* is run before."""
    code = f"""
import os, signal, threading
from pathlib import Path
from millpond.heron.folder import FolderStore
from millpond.heron.running import running
from millpond.heron.settings import ServerSettings
from millpond.heron.states import StateStore
{hook}
blobs = FolderStore(Path({str(folder)!r}))
with running(StateStore(blobs, blobs.scratch), ServerSettings(topologies={{{NAME!r}: {ID!r}}})) as server:
    print(server.port, flush=True)
    input()
blobs.close()
"""
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


DIE = """
import millpond.heron.folder as folder
real = folder.fsync_directory
def die(path):
    real(path)
    if path.parts[-2:] == ("1-2", "count"):
        os.kill(os.getpid(), signal.SIGKILL)
folder.fsync_directory = die
"""


@pytest.mark.parametrize("size", [100, LARGE])
def test_a_kill_between_write_and_answer_loses_nothing_that_was_answered(tmp_path: Path, size: int):
    """Killed after a state is durable and before its answer: what was answered is there, and the other is whole."""
    process = child(tmp_path / "states", DIE)
    try:
        with StreamManagerDouble(HOST, port_of(process), TOPOLOGY, "stmgr-1") as stmgr:
            assert stmgr.save({COUNT0: b"a" * size}, "1-1") == {COUNT0}
            with pytest.raises(TransientError):
                stmgr.save({COUNT0: b"b" * size}, "1-2")
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL
    finally:
        end(process)
    process = child(tmp_path / "states")
    try:
        with StreamManagerDouble(HOST, port_of(process), peers.Topology(NAME, ID, (COUNT0,)), "stmgr-1") as stmgr:
            assert stmgr.restore("1-1") == {COUNT0: b"a" * size}
            assert stmgr.restore("1-2") == {COUNT0: b"b" * size}
    finally:
        end(process)
    assert not list((tmp_path / "states").rglob("spool-*"))


def end(process: subprocess.Popen[str]) -> None:
    """Let a child end, or kill it."""
    try:
        process.communicate("\n", timeout=TIMEOUT_S)
    except (subprocess.TimeoutExpired, BrokenPipeError, ValueError):
        process.kill()
        process.wait(TIMEOUT_S)


# Crowds


@pytest.fixture
def crowd() -> Iterator[int]:
    """How many connections this process may try: ten thousand, or what the hard limit of open files leaves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 10_500 if hard == resource.RLIM_INFINITY else min(10_500, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    yield most - 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ten_thousand_connections_are_tried(tmp_path: Path, crowd: int):
    """Of ten thousand connections the allowed number is served and all others are turned away; then all is well."""
    count, allowed = crowd, 500
    process = child(tmp_path / "states", f"ServerSettings.__init__.__kwdefaults__['max_connections'] = {allowed}")
    try:
        port = port_of(process)
        socks: list[socket.socket] = []
        try:
            for _ in range(count):
                socks.append(socket.create_connection((HOST, port), TIMEOUT_S))
            served = turned_away = 0
            ask = peers.get(COUNT0, "", REQID)
            for sock in socks:
                sock.settimeout(TIMEOUT_S)
                try:
                    sock.sendall(ask)
                    served, turned_away = (served + 1, turned_away) if sock.recv(1) else (served, turned_away + 1)
                except ConnectionError:
                    turned_away += 1
            assert (served, turned_away) == (allowed, count - allowed)
        finally:
            for sock in socks:
                sock.close()
        waiting_for_room(port)
        with StreamManagerDouble(HOST, port, TOPOLOGY, "stmgr-2") as stmgr:
            assert stmgr.save({SAY0: b"x"}, "1-1") == {SAY0}
    finally:
        end(process)


def waiting_for_room(port: int, attempts: int = 200) -> None:
    """Connect until somebody is served: the server may not have noticed yet that the crowd has gone."""
    pause = threading.Event()
    for _ in range(attempts):
        with socket.create_connection((HOST, port), TIMEOUT_S) as sock:
            try:
                sock.sendall(peers.get(COUNT0, "", REQID))
                if sock.recv(1):
                    return
            except ConnectionError:
                pass
        pause.wait(0.05)
    raise AssertionError("nobody is served any more")


# Names


@pytest.mark.parametrize("name", ["../../../outside", "/outside", "a/b", "..", ".", "", "x\0y", "ü" * 20])
@pytest.mark.parametrize("size", [10, LARGE])
def test_names_with_slashes_and_dots_stay_inside(tmp_path: Path, name: str, size: int):
    """A component or a checkpoint with any name is saved inside the root, comes back, and is cleaned."""
    instance = peers.Instance(name, 0)
    topology = peers.Topology(NAME, ID, (instance,))
    with serving(tmp_path, FolderStore(tmp_path / "states")) as served, served.stmgr(topology=topology) as stmgr:
        checkpoint = name or "1-1"
        assert stmgr.save({instance: b"x" * size}, checkpoint) == {instance}
        assert stmgr.restore(checkpoint) == {instance: b"x" * size}
        with served.coordinator() as coordinator:
            assert list(coordinator.clean(None, everything=True).cleaned_checkpoint_ids) == [checkpoint]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["states"]


def test_a_name_that_is_too_long_is_refused(tmp_path: Path):
    """A component whose name no file can have is NOTOK with the limit, and the connection stays."""
    instance = peers.Instance("c" * 5000, 0)
    with serving(tmp_path, FolderStore(tmp_path / "states")) as served, served.stmgr() as stmgr:
        answer = stmgr.answer(stmgr.begin_save(instance, "1-1", b"x")).message

        assert answer.status.status == NOTOK
        assert "at most 200" in answer.status.message


# Memory


def test_what_all_connections_hold_is_bounded(tmp_path: Path):
    """Thirty saves that wait for the store and thirty half-sent ones hold no more than the limit together."""
    with waiting(tmp_path, memory=1 << 20, held_state=200_000) as (served, blobs), ExitStack() as stack:
        blobs.go_on.clear()
        packet = save_packet(COUNT0, "1-1", b"x" * 150_000)
        raws = [stack.enter_context(served.raw()) for _ in range(60)]
        for number, raw in enumerate(raws):
            raw.send(packet[: len(packet) - 1] if number % 2 else packet.replace(b"1-1", b"1-%d" % (number % 10)))
        served.ear.wait(events.Connected, 60)
        assert blobs.entered.acquire(timeout=TIMEOUT_S)
        highest = max(served.ask(lambda: served.server.service.budget.held) for _ in range(50))
        assert 150_000 <= highest <= 1 << 20
        blobs.go_on.set()
        for number, raw in enumerate(raws):
            if number % 2:
                raw.send(packet[-1:])
        assert all(raw.answer()[2].status.status == OK for raw in raws)
        assert served.ask(lambda: served.server.service.budget.held) == 0


def test_a_server_without_its_scratch_says_so(tmp_path: Path):
    """Where large states cannot be spooled, a large save is NOTOK with the reason, and a small one is OK."""
    scratch = Scratch(tmp_path / "s")
    with serving(tmp_path) as served, served.stmgr() as stmgr:
        served.states.scratch.close()
        answer = stmgr.answer(stmgr.begin_save(COUNT0, "1-1", b"x" * LARGE)).message

        assert answer.status.status == NOTOK
        assert "cannot write" in answer.status.message
        assert stmgr.save({COUNT0: b"x"}, "1-1") == {COUNT0}
    scratch.close()


@pytest.mark.parametrize("window", [1, 4096, 1 << 20])
def test_a_window_of_any_size_lets_large_states_pass(tmp_path: Path, window: int):
    """What waits for the disk never exceeds the window, or one read; and no save stands still before its state."""
    packet, most = save_packet(COUNT0, "1-1", os.urandom(LARGE)), []
    given = {"window": window, "read_size": 8192}
    with serving(tmp_path, FolderStore(tmp_path / "states"), **given) as served, served.raw() as raw:
        spooling = served.server.service.new_spooling

        def watched(written: Callable[[Spooling, int], None]) -> Spooling:
            made = spooling(written)
            real = made.add
            made.add = lambda pieces: (real(pieces), most.append(made.unwritten))[0]
            return made

        served.server.service.new_spooling = watched
        raw.send(packet[:90])  # its head, and not yet its state
        served.ear.wait(events.Connected)
        raw.send(packet[90:])
        assert raw.answer()[2].status.status == OK
        assert served.stored(COUNT0, "1-1") == packet[-LARGE:]
    assert max(most) <= max(window, 8192)
