"""Each known limit of Heron's checkpoint manager and its storage, and what is different here (1 to 16 of the list)."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from heron_servers import (
    COUNT0,
    COUNT1,
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
from millpond.errors import StateCorruptError, TransientError
from millpond.heron import events, peers
from millpond.heron.folder import FolderStore
from millpond.heron.ids import text_order
from millpond.heron.messages import NOTOK, OK
from millpond.heron.metrics import Metrics
from millpond.heron.peers import Instance, Topology
from millpond.heron.rules import StateRules

LARGE = 1_200_000
ALONE = Topology(NAME, ID, (COUNT0,))


@contextmanager
def spilling(root: Path, *, allowed: bool = True) -> Iterator[tuple[Served, Topology, Path]]:
    """Serve a topology that passes its states through files."""
    folder = root / "spill"
    folder.mkdir()
    topology = Topology(NAME, ID, TOPOLOGY.instances, spill=str(folder))
    roots = (root / "spill",) if allowed else ()
    with serving(root, FolderStore(root / "states"), spill_roots=roots) as served:
        yield served, topology, folder


def leave(folder: Path, instance: Instance, state: bytes) -> str:
    """Do what an instance does before it sends the path of its state."""
    path = folder / f"container_1_{instance.component}_{instance.task}" / "state-1"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(state)
    return str(path)


# Protocol and server


def test_1_a_coordinator_and_all_stream_managers_share_one_server(tmp_path: Path):
    """1: the coordinator and each stream manager have a slot of their own; in strict mode they evict one another."""
    with serving(tmp_path) as served, served.coordinator() as tm, served.stmgr() as one, served.stmgr("stmgr-2") as two:
        assert (tm.await_registration(), one.await_registration(), two.await_registration()) == (True, True, True)
        assert one.save({COUNT0: b"x"}, "1-1") == {COUNT0}
        assert tm.clean("1-1").status.status == OK
    with serving(tmp_path, strict=True) as served, served.coordinator() as tm:
        assert tm.await_registration()
        with served.stmgr() as one:
            assert not one.await_registration()
            assert Raw(tm.wire.socket).is_closed()
            with served.stmgr() as again:
                assert again.await_registration()


def test_2_a_restarted_client_is_let_in_at_once(tmp_path: Path):
    """2: a newcomer with a registered name takes over in one round; the old connection is closed, and others stay."""
    with serving(tmp_path) as served, served.stmgr() as old, served.stmgr("stmgr-2") as other:
        assert old.await_registration()
        assert other.await_registration()
        with served.stmgr() as new:
            assert new.await_registration()
            assert new.save({COUNT0: b"x"}, "1-1") == {COUNT0}
            assert Raw(old.wire.socket).is_closed()
        assert other.save({SAY0: b"x"}, "1-1") == {SAY0}


def test_2_the_end_of_an_old_connection_does_not_free_the_slot_of_the_new_one(tmp_path: Path):
    """2: when the evicted connection ends, its successor stays registered."""
    with serving(tmp_path) as served, served.stmgr() as old:
        assert old.await_registration()
        with served.stmgr() as new:
            assert new.await_registration()
            served.ear.wait(events.Disconnected)
            held = served.ask(
                lambda: [served.server.service.registry.slot_of(each.link) for each in served.server.connections]
            )
            assert held == ["stmgr-1"]


def test_2_a_second_registration_of_one_connection_ends_that_connection(tmp_path: Path):
    """1, 3: registering twice on one connection, which ends Heron's process, ends the connection."""
    with serving(tmp_path) as served, served.raw() as raw:
        raw.send(peers.register_coordinator(TOPOLOGY, REQID) * 2)
        assert raw.answer()[2].status.status == OK
        assert raw.is_closed()
        with served.stmgr() as stmgr:
            assert stmgr.await_registration()


@pytest.mark.parametrize("packet", [bytes(4), b"\xff\xff\xff\xfe", (60).to_bytes(4, "big") + (99).to_bytes(4, "big")])
def test_3_malformed_input_ends_a_connection_and_not_the_process(tmp_path: Path, packet: bytes):
    """3: lengths of zero, negative ones and ones that overrun, which end Heron's process, end their connection."""
    with serving(tmp_path) as served, served.raw() as raw, served.stmgr() as stmgr:
        raw.send(packet + bytes(100))
        assert raw.is_closed()
        assert stmgr.save({COUNT0: b"x"}, "1-1") == {COUNT0}


def test_4_an_oversized_save_is_answered_with_the_limit(tmp_path: Path):
    """4: a save over the limit gets NOTOK at once, with the limit, on a connection that stays."""
    with serving(tmp_path, max_packet=1 << 20) as served, served.stmgr() as stmgr:
        answer = stmgr.answer(stmgr.begin_save(COUNT0, "1-1", b"x" * (2 << 20))).message
        assert answer.status.status == NOTOK
        assert "1,048,576" in answer.status.message
        assert stmgr.save({COUNT0: b"x"}, "1-1") == {COUNT0}


def test_4_a_large_state_is_streamed_to_storage(tmp_path: Path):
    """4: of a state of 64 MiB no more than the window is held for the network, on the way in and on the way out."""
    given = {"memory": 3 << 20, "window": 1 << 20}
    with serving(tmp_path, FolderStore(tmp_path / "states"), **given) as served, served.stmgr(topology=ALONE) as stmgr:
        state = os.urandom(1 << 20) * 64
        assert stmgr.save({COUNT0: state}, "1-1") == {COUNT0}
        assert stmgr.restore("1-1") == {COUNT0: state}


def test_5_a_missing_spill_file_is_not_an_empty_state(tmp_path: Path):
    """5: a save that names a file which is gone is NOTOK, and nothing is stored."""
    with spilling(tmp_path) as (served, topology, folder), served.stmgr(topology=topology) as stmgr:
        path = leave(folder, COUNT0, b"x")
        Path(path).unlink()
        assert not stmgr.save_spilled(COUNT0, "1-1", path)
        assert served.states.checkpoints(NAME) == []


@pytest.mark.parametrize("how", ["absolute", "dots", "link", "folder", "fifo", "relative", "zero"])
def test_5_a_file_outside_the_spill_folder_is_not_read(tmp_path: Path, how: str):
    """5: no path of a save leads out of the topology's folder, and only plain files are read."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    with spilling(tmp_path) as (served, topology, folder), served.stmgr(topology=topology) as stmgr:
        (folder / "link").symlink_to(secret)
        os.mkfifo(folder / "fifo")
        paths = {
            "absolute": str(secret),
            "dots": f"{folder}/../secret",
            "link": f"{folder}/link",
            "folder": str(folder),
            "fifo": f"{folder}/fifo",
            "relative": "null/state-1",
            "zero": f"{folder}/a\0b",
        }
        assert not stmgr.save_spilled(COUNT0, "1-1", paths[how])
        assert served.states.checkpoints(NAME) == []


def test_5_a_spill_file_that_changes_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """5: a file that an instance rewrites while it is read is NOTOK: half of two states is none."""
    with spilling(tmp_path) as (served, topology, folder), served.stmgr(topology=topology) as stmgr:
        path = leave(folder, COUNT0, b"x" * 10)
        from millpond.heron import handler

        real = handler.pieces

        def rewritten(file: Any, size: int, where: str) -> Iterator[bytes]:
            for piece in real(file, size, where):
                Path(path).write_bytes(b"y" * 20)
                yield piece

        monkeypatch.setattr(handler, "pieces", rewritten)
        answer = stmgr.answer(send_spilled(stmgr, COUNT0, path)).message
        assert answer.status.status == NOTOK
        assert "changed while it was read" in answer.status.message


def send_spilled(stmgr: Any, instance: Instance, path: str) -> bytes:
    reqid = bytes(31) + b"\x01"
    stmgr.wire.send(peers.save_spilled(instance, "1-1", path, reqid))
    return reqid


def test_5_without_a_folder_that_the_operator_allows_nothing_is_spilled(tmp_path: Path):
    """5: a location that only a client has named is not used: its saves are NOTOK, and its gets come in packets."""
    with spilling(tmp_path, allowed=False) as (served, topology, folder), served.stmgr(topology=topology) as stmgr:
        assert stmgr.await_registration()
        assert served.ear.wait(events.SpillRefused)[0].location == str(folder)
        assert not stmgr.save_spilled(COUNT0, "1-1", leave(folder, COUNT0, b"x"))
        assert stmgr.save({COUNT0: b"inline", COUNT1: b"inline"}, "1-1") == {COUNT0, COUNT1}
        assert stmgr.restore("1-1") == {COUNT0: b"inline", COUNT1: b"inline"}
        assert not (folder / "ckptmgr").exists()


def test_6_files_of_several_gets_are_there_together(tmp_path: Path):
    """6: the file named in one answer is still there after the next get; an instance's own goes after its next save."""
    with spilling(tmp_path) as (served, topology, folder), served.stmgr(topology=topology) as stmgr:
        for instance in (COUNT0, COUNT1):
            path = leave(folder, instance, str(instance).encode())
            assert stmgr.save_spilled(instance, "1-1", path)
            assert Path(path).exists()
        sent = {instance: stmgr.begin_get(instance, "1-1") for instance in (COUNT0, COUNT1)}
        places = {instance: stmgr.answer(reqid).message.checkpoint.state_location for instance, reqid in sent.items()}

        assert {each: Path(place).read_bytes() for each, place in places.items()} == {
            each: str(each).encode() for each in places
        }
        assert stmgr.restore("1-1") == {each: str(each).encode() for each in places}
        assert stmgr.save_spilled(COUNT0, "1-2", leave(folder, COUNT0, b"next"))
        assert not Path(places[COUNT0]).exists()
        assert Path(places[COUNT1]).exists()


def test_6_an_empty_state_is_spilled_too(tmp_path: Path):
    """3.5: with spilling on, every get is answered with a file only, also for an empty state."""
    with spilling(tmp_path) as (_, topology, _folder), topology_stmgr(_, topology) as stmgr:
        assert stmgr.save({COUNT0: b""}, "1-1") == {COUNT0}
        answer = stmgr.answer(stmgr.begin_get(COUNT0, "1-1")).message

        assert not answer.checkpoint.HasField("state")
        assert Path(answer.checkpoint.state_location).read_bytes() == b""


def topology_stmgr(served: Served, topology: Topology) -> Any:
    return served.stmgr(topology=topology)


def test_7_a_refused_registration_changes_nothing(tmp_path: Path):
    """7: the plan of a topology that is refused makes no folder, empties none, and does not turn spilling on."""
    folder = tmp_path / "spill"
    (folder / "ckptmgr").mkdir(parents=True)
    (folder / "ckptmgr" / "theirs").write_bytes(b"x")
    wrong = Topology("other", ID, TOPOLOGY.instances, spill=str(folder))
    with serving(tmp_path, spill_roots=(folder,)) as served, served.stmgr(topology=wrong) as stmgr:
        assert not stmgr.await_registration()
        assert (folder / "ckptmgr" / "theirs").exists()
        with served.stmgr() as right:
            assert right.save({COUNT0: b"x", COUNT1: b"y"}, "1-1")
            assert right.restore("1-1") == {COUNT0: b"x", COUNT1: b"y"}
        assert sorted(path.name for path in (folder / "ckptmgr").iterdir()) == ["theirs"]


def test_8_no_name_leads_out_of_its_folder(tmp_path: Path):
    """8: states of components and checkpoints whose names climb up lie inside the topology's folder."""
    evil = Instance("../../../evil", 0)
    with serving(tmp_path, FolderStore(tmp_path / "a" / "b" / "states")) as served, served.raw() as raw:
        raw.send(save_packet(evil, "../../evil", b"x") + peers.get(evil, "../../evil", REQID))
        assert raw.answer()[2].status.status == OK
        assert raw.answer()[2].checkpoint.state == b"x"
        files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "LOCK"]
        assert [path.relative_to(tmp_path / "a/b/states").parts[0] for path in files] == [NAME]


class Gate(MemoryBlobStore):
    """A store whose puts wait until several are inside."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        barrier = threading.Barrier(parties)

        def meet(verb: str, _key: str) -> None:
            if verb == "put":
                barrier.wait(TIMEOUT_S)

        self.before = meet


def test_9_saves_are_stored_side_by_side_and_answered_in_order(tmp_path: Path):
    """9: four saves of one connection are in the store at once, and answered in order; one key keeps its order."""
    with serving(tmp_path, Gate(4)) as served, served.stmgr() as stmgr:
        served.states.instant = False
        instances = [Instance("many", number) for number in range(4)]
        assert stmgr.save(dict.fromkeys(instances, b"x"), "1-1") == set(instances)
    with serving(tmp_path) as served, served.stmgr(topology=ALONE) as stmgr:
        served.states.instant = False
        sent = [stmgr.begin_save(COUNT0, "1-1", b"%d" % number * 400_000 * (number % 2 + 1)) for number in range(8)]
        assert all(stmgr.answer(reqid).message.status.status == OK for reqid in sent)
        assert served.stored(COUNT0, "1-1") == b"7" * 800_000


def test_10_cleans_say_what_went_and_the_server_counts(tmp_path: Path):
    """10: a clean's answer lists what it removed, and the counters of the server say what happened and how long."""
    metrics = Metrics()
    with serving(tmp_path) as served, served.stmgr() as stmgr, served.coordinator() as coordinator:
        stmgr.save({COUNT0: b"x" * 100, COUNT1: b"y"}, "1-1")
        stmgr.restore("1-1")
        assert list(coordinator.clean("1-2").cleaned_checkpoint_ids) == ["1-1"]
        for event in served.ear.of(events.HeronEvent):
            metrics(event)
        counted = metrics.snapshot()
        gauges = served.ask(served.server.gauges)

    assert {name: counted[name] for name in ("saves", "saved_bytes", "fetches", "cleaned_checkpoints", "failures")} == {
        "saves": 2,
        "saved_bytes": 101,
        "fetches": 2,
        "cleaned_checkpoints": 1,
        "failures": 0,
    }
    assert counted["save_seconds"] > 0
    text = metrics.text(gauges)
    assert "millpond_heron_saved_bytes_total 101" in text
    assert "millpond_heron_open_connections 2" in text
    assert text.endswith("# EOF\n")


def test_10_a_strict_server_does_not_say_what_went(tmp_path: Path):
    """10: in strict mode the answer to a clean has no ids, as Heron's has none."""
    with serving(tmp_path, strict=True) as served, served.raw() as raw:
        raw.send(save_packet(COUNT0, "1-1", b"x") + peers.clean("1-2", REQID))
        raw.answer()
        assert list(raw.answer()[2].cleaned_checkpoint_ids) == []


# Storage


def test_11_a_damaged_file_is_refused_and_not_given_out(tmp_path: Path):
    """11: a byte that changed on the disk makes the get NOTOK; Heron would hand it to the instance."""
    with serving(tmp_path, FolderStore(tmp_path / "states")) as served, served.stmgr(topology=ALONE) as stmgr:
        for size in (100, LARGE):
            stmgr.save({COUNT0: b"x" * size}, "1-1")
            path = tmp_path / "states" / key(COUNT0, "1-1").path
            data = bytearray(path.read_bytes())
            data[size // 2] ^= 1
            path.write_bytes(data)
            assert stmgr.restore("1-1") is None
        assert all(isinstance(each.error, StateCorruptError) for each in served.ear.of(events.RequestFailed))


def test_12_a_manifest_says_that_a_checkpoint_is_complete(tmp_path: Path):
    """12: once the last instance is saved, notes list every state with its size and digest, and each parallelism."""
    with serving(tmp_path) as served, served.stmgr() as one, served.stmgr("stmgr-2") as two:
        one.save({COUNT0: b"x", COUNT1: b"yy"}, "1-1")
        assert not served.states.is_whole(NAME, "1-1")
        two.save({SAY0: b"zzz"}, "1-1")
        assert served.states.is_whole(NAME, "1-1")
        listed = {place: seal for part in served.states.parts(NAME, "1-1") for place, seal in part.states.items()}

        assert {place: seal.size for place, seal in listed.items()} == {("count", 0): 1, ("count", 1): 2, ("say", 0): 3}
        assert all(len(seal.digest) == 64 for seal in listed.values())
        assert served.states.components(NAME) == {"count": 2, "say": 1}


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "as Heron"])
def test_13_ids_are_compared_as_numbers(tmp_path: Path, text: bool):
    """13: 100-10 is after 100-2, and stays when 100-2 is the oldest to keep; compared as texts it would go."""
    rules = StateRules(order=text_order, by_age_too=False) if text else None
    with serving(tmp_path, rules=rules) as served, served.stmgr() as stmgr, served.coordinator() as coordinator:
        for id in ("100-1", "100-2", "100-10"):
            stmgr.save({COUNT0: b"x"}, id)
        gone = list(coordinator.clean("100-2").cleaned_checkpoint_ids)

        assert gone == (["100-1", "100-10"] if text else ["100-1"])


def test_13_a_clock_that_went_back_costs_no_new_state(tmp_path: Path):
    """13: a checkpoint that was written after the oldest to keep stays, though its id sorts before it."""
    clock = iter(range(1_000_000))
    with serving(tmp_path, MemoryBlobStore(lambda: next(clock))) as served, served.stmgr() as stmgr:
        stmgr.save({COUNT0: b"x"}, "1795963938000000000-1795963938")
        stmgr.save({COUNT0: b"x"}, "1795960000000000000-1795960000")
        with served.coordinator() as coordinator:
            assert list(coordinator.clean("1795963938000000000-1795963938").cleaned_checkpoint_ids) == []
            stmgr.save({COUNT0: b"x"}, "1795963939000000000-1795963939")
            gone = list(coordinator.clean("1795963939000000000-1795963939").cleaned_checkpoint_ids)

        assert len(gone) == 2


def test_13_failed_attempts_push_no_consistent_checkpoint_out(tmp_path: Path):
    """13: eleven attempts that never became whole do not cost the whole one; Heron would keep the ten newest names."""
    rules = StateRules(keep=10)
    with serving(tmp_path, rules=rules) as served, served.stmgr() as one, served.stmgr("stmgr-2") as two:
        one.save({COUNT0: b"x", COUNT1: b"x"}, "1-0")
        two.save({SAY0: b"x"}, "1-0")
        for number in range(1, 12):
            one.save({COUNT0: b"x"}, f"1-{number}")

        assert "1-0" in served.states.checkpoints(NAME)


def test_15_one_clean_reaches_what_every_node_has_saved(tmp_path: Path):
    """15: two servers that share a store are both cleaned by the one that the coordinator speaks to."""
    blobs = MemoryBlobStore()
    with (
        serving(tmp_path / "0", blobs) as zero,
        serving(tmp_path / "1", blobs) as one,
        one.stmgr() as stmgr,
        zero.coordinator() as coordinator,
    ):
        stmgr.save({COUNT0: b"x"}, "1-1")
        assert list(coordinator.clean("1-2").cleaned_checkpoint_ids) == ["1-1"]
        assert stmgr.restore("1-1") is None


def test_15_a_node_with_a_disk_of_its_own_keeps_a_number(tmp_path: Path):
    """15: where no clean arrives, a node removes what is older than the whole checkpoints that it is to keep."""
    with serving(tmp_path, FolderStore(tmp_path / "states"), StateRules(keep=3)) as served:
        with served.stmgr() as one, served.stmgr("stmgr-2") as two:
            for number in range(8):
                one.save({COUNT0: b"x", COUNT1: b"x"}, f"1-{number}")
                two.save({SAY0: b"x"}, f"1-{number}")
        assert served.states.checkpoints(NAME) == ["1-5", "1-6", "1-7"]
        assert sorted(path.name for path in (tmp_path / "states" / NAME).iterdir()) == ["1-5", "1-6", "1-7"]


def test_16_a_missing_instance_says_that_the_topology_was_scaled(tmp_path: Path):
    """16: a get for an instance that did not exist at the checkpoint is NOTOK, and names the parallelism."""
    grown = Topology(NAME, ID, (*TOPOLOGY.instances, Instance("count", 2, 9)))
    with serving(tmp_path) as served:
        with served.stmgr() as one, served.stmgr("stmgr-2") as two:
            one.save({COUNT0: b"x", COUNT1: b"x"}, "1-1")
            two.save({SAY0: b"x"}, "1-1")
        with served.stmgr(topology=grown) as one:
            answer = one.answer(one.begin_get(Instance("count", 2, 9), "1-1")).message

            assert answer.status.status == NOTOK
            assert "count had 2 instances" in answer.status.message


@pytest.mark.parametrize("how", ["refused", "allowed", "strict"])
def test_16_a_failed_restore_does_not_fall_through_to_nothing(tmp_path: Path, how: str):
    """16: after a get of an existing job's state failed, the empty id is refused, unless that is allowed."""
    given = {"refused": {}, "allowed": {"allow_empty": True}, "strict": {"strict": True}}[how]
    grown = Topology(NAME, ID, (COUNT0, COUNT1))
    with serving(tmp_path, **given) as served, served.stmgr(topology=grown) as stmgr:
        assert stmgr.restore("") == {COUNT0: b"", COUNT1: b""}  # a first start
        stmgr.save({COUNT0: b"x"}, "1-1")
        assert stmgr.restore("1-1") is None

        assert stmgr.restore("") == (None if how == "refused" else {COUNT0: b"", COUNT1: b""})
        if how == "refused":
            with served.coordinator() as coordinator:
                coordinator.clean("", everything=True)
            assert stmgr.restore("") == {COUNT0: b"", COUNT1: b""}


def test_29_a_plan_that_cannot_be_read_keeps_the_earlier_one(tmp_path: Path):
    """29: a stream manager that re-registers with a damaged plan is let in, and checkpoints are still marked whole."""
    with serving(tmp_path) as served:
        with served.stmgr("stmgr-2") as two, served.stmgr() as one:
            assert one.await_registration()
            two.save({SAY0: b"x"}, "1-1")
        with served.raw() as raw:
            packet = peers.register_stream_manager(TOPOLOGY, "stmgr-1", REQID, with_plan=False)
            body = packet[packet.index(REQID) + 36 :] + b"\x22\x05\xff\xff\xff\xff\xff"
            from millpond.heron.framing import encode

            raw.send(encode("heron.proto.ckptmgr.RegisterStMgrRequest", REQID, body))
            assert raw.answer()[2].status.status == OK
            assert served.ear.of(events.PlanIgnored)
            raw.send(save_packet(COUNT0, "1-1", b"x") + save_packet(COUNT1, "1-1", b"x"))
            assert [raw.answer()[2].status.status for _ in range(2)] == [OK, OK]
        assert served.states.is_whole(NAME, "1-1")


def test_27_a_lost_save_is_tried_again(tmp_path: Path):
    """27: our client repeats a save that a store refused once or whose connection broke; the double gives it up."""
    from millpond.heron.client import CheckpointClient

    blobs, failing = MemoryBlobStore(), [True, True]

    def fail(verb: str, _name: str) -> None:
        if verb == "put" and failing:
            failing.pop()
            raise TransientError("slow down")

    blobs.before = fail
    with serving(tmp_path, blobs) as served:
        with served.stmgr() as stmgr:
            assert stmgr.save({COUNT0: b"x"}, "1-1") == set()
        failing.append(True)
        with CheckpointClient("127.0.0.1", served.port, TOPOLOGY, stmgr="stmgr-1") as client:
            client.save(COUNT0, "1-1", b"x")
            assert client.get(COUNT0, "1-1") == b"x"


def test_the_page_about_the_limits_names_tests_that_exist():
    """Each of the 34 limits has a row in the documentation, and each row names tests that are in the file it says."""
    checkout, numbers = Path(__file__).parents[1], set[int]()
    for section in (checkout / "docs" / "heron-limits.md").read_text("utf-8").split("\n## ")[1:]:
        said = re.search(r"^In `(tests/\w+\.py)`", section, re.MULTILINE)
        usual = said[1] if said else "tests/test_heron_pitfalls.py"
        for first, last in re.findall(r"^\| (.+?) \| .*\| (.*`.*) \|$", section, re.MULTILINE) or _short_rows(section):
            file = usual
            for other, test in re.findall(r"`(tests/\w+\.py)`|`(test_\w+)`", last):
                file = other or file
                assert other or f"\ndef {test}(" in (checkout / file).read_text("utf-8"), f"{test} is not in {file}"
            numbers.update(int(number) for number in re.findall(r"[0-9]+", first) if "limit" not in first)
    assert numbers == set(range(1, 35))


def _short_rows(section: str) -> list[tuple[str, str]]:
    """Give the rows of a table without numbers."""
    return [("limit", last) for last in re.findall(r"^\| .+? \| (.*`.*) \|$", section, re.MULTILINE)]
