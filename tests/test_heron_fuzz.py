"""
A fuzzer of the served protocol: random and damaged conversations, while a neighbour's saves and gets have to be right.

    MILLPOND_HERON_FUZZ=20000 python -m pytest --import-mode=importlib -q -s tests/test_heron_fuzz.py

The number is how many hostile connections are tried; ``MILLPOND_HERON_SEED`` chooses others. It prints its figures.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from heron_servers import COUNT0, HOST, ID, NAME, REQID, SAY0, TIMEOUT_S, TOPOLOGY, Served, save_packet, serving

from millpond.errors import MillpondError
from millpond.events import Event
from millpond.heron import events, peers
from millpond.heron.folder import FolderStore
from millpond.heron.framing import encode
from millpond.heron.messages import OK, full_name
from millpond.heron.peers import Instance, Topology
from millpond.progress.lines import line

CONNECTIONS = int(os.environ.get("MILLPOND_HERON_FUZZ", "300"))
SEED = int(os.environ.get("MILLPOND_HERON_SEED", "1"))
SIBLING = Topology(NAME, ID, (Instance("victim", 0, 7, "sibling"),))
STRANGER = Topology("other", "other-1", (Instance("victim", 0, 7, "stranger"),))
NAMES = ("RegisterTManagerRequest", "RegisterStMgrRequest", "SaveInstanceStateRequest", "GetInstanceStateRequest",
         "CleanStatefulCheckpointRequest", "StartStatefulCheckpoint")  # fmt: skip


def good_packet(chance: random.Random) -> bytes:
    """Give a packet as a client might send it; now and then it cleans all checkpoints of its topology."""
    reqid = chance.randbytes(32)
    checkpoint = f"0-{chance.randrange(100)}"
    instance = Instance(chance.choice(["count", "say", "../x", "é", ""]), chance.randrange(-2, 4))
    makers = (
        lambda: save_packet(instance, checkpoint, chance.randbytes(chance.choice([0, 1, 300, 5_000, 400_000])), reqid),
        lambda: save_packet(instance, checkpoint, None, reqid),
        lambda: peers.get(instance, checkpoint, reqid),
        lambda: peers.get(instance, "", reqid),
        lambda: peers.clean(checkpoint, reqid, everything=chance.random() < 0.02),
        lambda: peers.save_spilled(instance, checkpoint, chance.choice(["/etc/passwd", "x", ""]), reqid),
        lambda: peers.register_stream_manager(TOPOLOGY, f"stmgr-{chance.randrange(3)}", reqid),
        lambda: peers.register_coordinator(TOPOLOGY, reqid, old_name=chance.random() < 0.5),
    )
    return chance.choice(makers)()


def hostile_packet(chance: random.Random) -> bytes:
    """Give a packet that is damaged in one of many ways."""
    packet = bytearray(good_packet(chance))
    how = chance.randrange(8)
    if how == 0:
        return chance.randbytes(chance.randrange(1, 400))
    if how == 1:  # flipped bits
        for _ in range(chance.randrange(1, 8)):
            packet[chance.randrange(len(packet))] ^= 1 << chance.randrange(8)
    elif how == 2:  # cut
        del packet[chance.randrange(len(packet)) :]
    elif how == 3:  # a length changed
        at = chance.choice([0, 4, max(0, len(packet) - 40)])
        packet[at : at + 4] = chance.choice([bytes(4), b"\xff" * 4, chance.randbytes(4), b"\0\0\0\x28"])
    elif how == 4:  # random body
        return encode(full_name(chance.choice(NAMES)), chance.randbytes(32), chance.randbytes(chance.randrange(300)))
    elif how == 5:  # bytes put in
        at = chance.randrange(len(packet))
        packet[at:at] = chance.randbytes(chance.randrange(1, 30))
    elif how == 6:  # bytes taken out
        at = chance.randrange(len(packet))
        del packet[at : at + chance.randrange(1, 30)]
    return bytes(packet)


def converse(served: Served, chance: random.Random) -> str:
    """Have one hostile connection; say how it ended."""
    with socket.create_connection((HOST, served.port), TIMEOUT_S) as sock:
        sock.settimeout(0.02)
        try:
            if chance.random() < 0.5:
                sock.sendall(peers.register_stream_manager(TOPOLOGY, f"stmgr-{chance.randrange(3)}", REQID))
            for _ in range(chance.randrange(1, 6)):
                packet = hostile_packet(chance) if chance.random() < 0.6 else good_packet(chance)
                cut = chance.randrange(len(packet) + 1)
                sock.sendall(packet[:cut])
                sock.sendall(packet[cut:])
            if chance.random() < 0.7 and sock.recv(chance.randrange(1, 5000)) == b"":
                return "closed by the server"
        except TimeoutError:
            return "left waiting"
        except ConnectionError:
            return "reset by the server"
    return "left"


class Neighbour:
    """
    A stream manager that saves and restores all the while.

    Where the hostile ones speak for its topology, one of them may clean it: a single flipped bit makes a clean of old
    checkpoints one of all. So its state may be gone, but only if the server has told that the checkpoint was cleaned.
    """

    def __init__(self, served: Served, topology: Topology) -> None:
        self.served, self.topology, (self.instance,) = served, topology, topology.instances
        self.double = served.stmgr(self.instance.stmgr, topology)

    def save_and_restore(self, state: bytes, checkpoint: str) -> bool:
        """Give whether it went well; False: the checkpoint was cleaned meanwhile."""
        answer = self.double.answer(self.double.begin_save(self.instance, checkpoint, state)).message
        if answer.status.status != OK:
            return self.check_cleaned(checkpoint, answer.status.message)
        found = self.double.restore(checkpoint)
        if found is None:
            return self.check_cleaned(checkpoint, "the get was refused")
        assert found == {self.instance: state}
        return True

    def check_cleaned(self, checkpoint: str, what: str) -> bool:
        """Give False once the server has told of the clean; fail with all that it told where it has not."""
        assert self.topology is SIBLING, f"{self.topology.name} lost {checkpoint}: {what}\n{told(self.served)}"
        assert self.served.ear.comes(lambda event: checkpoint in getattr(event, "checkpoints", ())), (
            f"{checkpoint} is lost, and nobody cleaned it: {what}\n{told(self.served)}"
        )
        return False


def told(served: Served) -> str:
    """Give the last events of the server as its log would have them."""
    return "\n".join(
        ["the server told:", *(f"{event.job}: {line(event).text}" for event in served.ear.of(Event)[-60:])]
    )


@pytest.mark.parametrize("shared", [False, True], ids=["one topology", "two topologies"])
def test_hostile_conversations_harm_nobody(tmp_path: Path, shared: bool):
    """
    Through all of them the neighbours' every state comes back as it was saved, and in the end nothing is held.

    A neighbour of another topology has nothing to fear at all; one of their own topology, only a clean that was told.
    """
    ends, begun, cleaned, count = Counter[str](), time.monotonic(), 0, CONNECTIONS // 2
    given = {"packet_timeout": 5.0, "memory": 16 << 20, "max_packet": 4 << 20}
    topologies = {each.name: each.id for each in ((TOPOLOGY, STRANGER) if shared else (TOPOLOGY,))}
    with serving(tmp_path, FolderStore(tmp_path / "states"), topologies=topologies, **given) as served:
        neighbours = [Neighbour(served, each) for each in (SIBLING, STRANGER) if each.name in topologies]
        for number in range(count):
            # Each conversation has its own dice: how an earlier one ended changes nothing about it.
            chance = random.Random(f"{SEED} {shared} {number}")
            ends[converse(served, chance)] += 1
            if number % 10 == 0:
                state = chance.randbytes(chance.choice([10, 10_000, 500_000]))
                cleaned += [each.save_and_restore(state, f"9-{number}") for each in neighbours].count(False)
        for neighbour in neighbours:
            neighbour.double.close()
        served.ear.wait(events.Disconnected, count + len(neighbours))
        with served.coordinator() as coordinator:
            assert coordinator.clean(None, everything=True).status.status == OK
        assert not [each for each in served.ear.of(events.RequestFailed) if not isinstance(each.error, MillpondError)]
        assert served.ask(lambda: (served.server.service.budget.held, len(served.server.connections))) in (
            (0, 0),
            (0, 1),
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["states"]
    alls = sum(any(id.startswith("9-") for id in each.checkpoints) for each in served.ear.of(events.CheckpointsCleaned))
    took, who = time.monotonic() - begun, "two topologies" if shared else "one topology"
    sys.stdout.write(
        f"\n{count} hostile connections, {who}, seed {SEED}, {took:.0f} s: {dict(ends)}; "
        f"{alls - 1} cleans of all were legal, and {cleaned} times one took what was being saved\n"
    )


def test_one_flipped_bit_makes_a_clean_one_of_all(tmp_path: Path):
    """It is legal, so the topology's own states go, and later saves of those checkpoints say so; no other's go."""
    packet = bytearray(peers.clean("0-1", REQID))
    packet[-1] ^= 1
    with serving(tmp_path, topologies={each.name: each.id for each in (TOPOLOGY, STRANGER)}) as served:
        stranger, sibling = Neighbour(served, STRANGER), Neighbour(served, SIBLING)
        assert stranger.save_and_restore(b"theirs", "9-1")
        assert sibling.save_and_restore(b"mine", "9-1")
        with served.raw() as raw:
            raw.send(peers.register_coordinator(TOPOLOGY, REQID) + bytes(packet))
            raw.answer()
            assert list(raw.answer()[2].cleaned_checkpoint_ids) == ["9-1"]

        assert not sibling.save_and_restore(b"mine", "9-1")
        assert "has been cleaned" in told(served)
        assert sibling.save_and_restore(b"mine", "9-2")
        assert stranger.double.restore("9-1") == {stranger.instance: b"theirs"}


def test_the_fuzzer_reaches_what_it_is_for():
    """Its packets are not all refused for the same reason: good ones, damaged ones and every request are among them."""
    chance = random.Random(3)
    packets = [good_packet(chance) for _ in range(200)]

    assert len({packet[8:60].split(b"Request")[0] for packet in packets}) == 6
    assert len({hostile_packet(chance)[:4] for _ in range(200)}) > 20
    assert save_packet(COUNT0, "1", b"")[:4] != save_packet(SAY0, "1", b"", REQID)[:4]
