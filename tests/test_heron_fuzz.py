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

from heron_servers import COUNT0, HOST, ID, NAME, REQID, SAY0, TIMEOUT_S, TOPOLOGY, Served, save_packet, serving

from millpond.heron import events, peers
from millpond.heron.folder import FolderStore
from millpond.heron.framing import encode
from millpond.heron.messages import full_name
from millpond.heron.peers import Instance, Topology

CONNECTIONS = int(os.environ.get("MILLPOND_HERON_FUZZ", "300"))
SEED = int(os.environ.get("MILLPOND_HERON_SEED", "1"))
VICTIM = Topology(NAME, ID, (Instance("victim", 0, 7, "stmgr-7"),))
NAMES = ("RegisterTManagerRequest", "RegisterStMgrRequest", "SaveInstanceStateRequest", "GetInstanceStateRequest",
         "CleanStatefulCheckpointRequest", "StartStatefulCheckpoint")  # fmt: skip


def good_packet(chance: random.Random) -> bytes:
    """Give a packet as a client might send it; no clean of the neighbour's checkpoints."""
    reqid = chance.randbytes(32)
    checkpoint = f"0-{chance.randrange(100)}"
    instance = Instance(chance.choice(["count", "say", "../x", "é", ""]), chance.randrange(-2, 4))
    makers = (
        lambda: save_packet(instance, checkpoint, chance.randbytes(chance.choice([0, 1, 300, 5_000, 400_000])), reqid),
        lambda: save_packet(instance, checkpoint, None, reqid),
        lambda: peers.get(instance, checkpoint, reqid),
        lambda: peers.get(instance, "", reqid),
        lambda: peers.clean(checkpoint, reqid),
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


def test_hostile_conversations_harm_nobody(tmp_path: Path):
    """Through all of them the neighbour's every state comes back as it was saved, and in the end nothing is held."""
    chance, ends, begun = random.Random(SEED), Counter[str](), time.monotonic()
    given = {"packet_timeout": 5.0, "memory": 16 << 20, "max_packet": 4 << 20}
    with serving(tmp_path, FolderStore(tmp_path / "states"), **given) as served:
        neighbour = served.stmgr("stmgr-7", topology=VICTIM)
        (victim,) = VICTIM.instances
        for number in range(CONNECTIONS):
            ends[converse(served, chance)] += 1
            if number % 10 == 0:
                state = chance.randbytes(chance.choice([10, 10_000, 500_000]))
                checkpoint = f"9-{number % 200}"
                assert neighbour.save({victim: state}, checkpoint) == {victim}
                assert neighbour.restore(checkpoint) == {victim: state}
        neighbour.close()
        served.ear.wait(events.Disconnected, CONNECTIONS + 1)
        with served.coordinator() as coordinator:
            assert coordinator.clean(None, everything=True).status.status == 1
        assert not [each for each in served.ear.of(events.RequestFailed) if not _expected(each.error)]
        assert served.ask(lambda: (served.server.budget.held, len(served.server.connections))) in ((0, 0), (0, 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["states"]
    took = time.monotonic() - begun
    sys.stdout.write(f"\n{CONNECTIONS} hostile connections, seed {SEED}, {took:.0f} s: {dict(ends)}\n")


def _expected(error: BaseException) -> bool:
    from millpond.errors import MillpondError

    return isinstance(error, MillpondError)


def test_the_fuzzer_reaches_what_it_is_for():
    """Its packets are not all refused for the same reason: good ones, damaged ones and every request are among them."""
    chance = random.Random(3)
    packets = [good_packet(chance) for _ in range(200)]

    assert len({packet[8:60].split(b"Request")[0] for packet in packets}) == 6
    assert len({hostile_packet(chance)[:4] for _ in range(200)}) > 20
    assert save_packet(COUNT0, "1", b"")[:4] != save_packet(SAY0, "1", b"", REQID)[:4]
