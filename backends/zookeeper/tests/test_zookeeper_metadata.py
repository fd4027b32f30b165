"""The coordinator's metadata on a real server: elections, a lost session, compare-and-set, large records."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import READ_ACL_UNSAFE
from zookeeper_managers import LONG_SESSION, SESSION, connection_of, expire, metadata_at

from millpond.blob.folder import BlobFolder
from millpond.blob.memory import MemoryBlobStore
from millpond.coordinator import conformance
from millpond.coordinator.metadata import MAX_RECORD, StoredRecord
from millpond.errors import ConfigError, FencedError, StateCorruptError, StoreClosedError, TransientError
from millpond_zookeeper import ZooKeeperMetadata, ZooKeeperSettings
from millpond_zookeeper.connection import Connection
from millpond_zookeeper.failures import LostAnswerError

PROGRAM = Path(__file__).with_name("programs") / "leader_or_writer.py"
SESSION_S = SESSION.total_seconds()
Make = Callable[..., ZooKeeperMetadata]


@pytest.fixture
def make(hosts: str, root: str) -> Iterator[Make]:
    """Make one more coordinator's metadata of the same job."""
    made: list[ZooKeeperMetadata] = []

    def another(**settings: Any) -> ZooKeeperMetadata:
        made.append(metadata_at(hosts, root, **settings))
        return made[-1]

    yield another
    for each in made:
        each.close()


def nodes(root: str) -> str:
    return f"{root}/flights/coordinator"


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract_of_the_role(hosts, root, check):
    """Every check of the role that the core has passes."""
    check(lambda: metadata_at(hosts, root))


# The record


def test_a_new_place_has_no_record_and_no_leader(make):
    """Nothing is there before the first write, also once the place was prepared; preparing again is fine."""
    metadata = make()

    assert metadata.read() is None
    assert metadata.leader() is None
    for _ in range(2):
        metadata.create_resources()
        metadata.validate_resources()
    assert metadata.read() is None
    assert metadata.leader() is None


def test_a_record_is_replaced_by_who_leads_and_knows_what_is_there(make):
    """Each write has a version of its own, is seen by others at once, and is refused for a version of the past."""
    metadata, standby = make(), make()
    leadership = metadata.lead("a", 30)

    first = metadata.write(leadership, b"one", None)
    assert StoredRecord(b"one", first) == standby.read()
    second = metadata.write(leadership, b"two", first)
    assert StoredRecord(b"two", second) == standby.read()
    assert first != second
    for stale in (None, first):
        with pytest.raises(TransientError, match=r"is not of version .* any more"):
            metadata.write(leadership, b"three", stale)
    assert StoredRecord(b"two", second) == standby.read()
    assert (1, "a") == standby.leader()


@pytest.mark.parametrize("size", [0, 1, 999_000, 1_000_001, MAX_RECORD])
def test_a_record_of_any_size_is_kept(make, size):
    """What is larger than a node lies in parts, is given back whole, and leaves nothing when it is replaced."""
    metadata, standby = make(), make()
    leadership = metadata.lead("a", 30)
    data = bytes(range(251)) * (size // 251 + 1)

    version = metadata.write(leadership, data[:size], None)
    assert data[:size] == standby.read().data
    version = metadata.write(leadership, b"small", version)

    assert StoredRecord(b"small", version) == standby.read()
    connection = connection_of(metadata)
    assert size < 1_000_000 or [] == connection.children(f"{metadata._opened().paths.parts}", "look")


def test_a_record_beyond_every_size_is_refused(make):
    """More than 32 MiB is a ConfigError, and what was there stays."""
    metadata = make()
    leadership = metadata.lead("a", 30)
    version = metadata.write(leadership, b"one", None)

    with pytest.raises(ConfigError, match="larger than any"):
        metadata.write(leadership, bytes(MAX_RECORD + 1), version)

    assert b"one" == metadata.read().data


def test_large_records_may_lie_elsewhere(hosts, root):
    """With an object store beside it, ZooKeeper holds a handle; a lost object is an error that names the node."""
    store = MemoryBlobStore()
    folder = BlobFolder(store, "coordinator/")
    settings = ZooKeeperSettings(hosts=hosts, root=root, session_timeout=LONG_SESSION)
    with ZooKeeperMetadata(settings, "flights", elsewhere=folder) as metadata:
        leadership = metadata.lead("a", 30)
        version = metadata.write(leadership, b"x" * 2_000_000, None)
        assert b"x" * 2_000_000 == metadata.read().data
        assert 1 == len(folder.names())
        version = metadata.write(leadership, b"y" * 2_000_000, version)
        assert 1 == len(folder.names())
        folder.delete(folder.names())
        with pytest.raises(StateCorruptError, match=re.escape(f"{nodes(root)}/record cannot be read")):
            metadata.read()


def test_a_folder_that_settings_name_takes_large_records(make, tmp_path):
    """`large` leads there; a reader without it says what to set, and one with it finds what older parts hold."""
    metadata, blind = make(large=tmp_path / "large"), make()
    leadership = metadata.lead("a", 30)

    metadata.write(leadership, b"x" * 2_000_000, None)

    assert b"x" * 2_000_000 == make(large=tmp_path / "large").read().data
    assert 1 == len([path for path in (tmp_path / "large").rglob("*") if path.is_file()])
    with pytest.raises(StateCorruptError, match="set large to the folder"):
        blind.read()


@pytest.mark.parametrize("damage", [b"", b"millpond-coordinated 1 record 5 ", b"someone else's"])
def test_a_damaged_record_is_an_error(make, root, damage):
    """What cannot be read is never taken for no record."""
    metadata = make()
    leadership = metadata.lead("a", 30)
    metadata.write(leadership, b"one", None)
    connection_of(metadata).change(lambda client: client.set_async(f"{nodes(root)}/record", damage), "damage")

    with pytest.raises((StateCorruptError, ValueError), match=re.escape(f"{nodes(root)}/record")):
        metadata.read()


def test_a_record_that_is_gone_is_an_error(make, root):
    """Where somebody led, a missing node is damage."""
    metadata = make()
    metadata.lead("a", 30)
    connection_of(metadata).change(lambda client: client.delete_async(f"{nodes(root)}/record"), "damage")

    with pytest.raises(StateCorruptError, match="is gone, though 'a'"):
        metadata.read()


@pytest.mark.parametrize("when", ["never sent", "done"])
def test_a_write_whose_answer_was_lost_is_there(monkeypatch, make, when):
    """The record is found to be there, or is written now; its version is what a reader sees."""
    metadata = make()
    leadership = metadata.lead("a", 30)
    first = metadata.write(leadership, b"one", None)
    lose(monkeypatch, when)

    version = metadata.write(leadership, b"two", first)

    assert StoredRecord(b"two", version) == make().read()


@pytest.mark.parametrize("when", ["never sent", "done"])
def test_an_election_whose_answer_was_lost_is_won_once(monkeypatch, make, when):
    """A candidate finds that it was elected, or stands again; it takes one epoch."""
    metadata = make()
    metadata.create_resources()
    lose(monkeypatch, when)

    leadership = metadata.lead("a", 30)

    assert 1 == leadership.epoch
    leadership.check()
    metadata.write(leadership, b"one", None)


def test_a_write_that_was_sent_and_then_overtaken_is_not_said_to_have_failed(monkeypatch, make):
    """Where the answer was lost and another one leads meanwhile, nobody claims that nothing was written."""
    metadata, standby = make(), make()
    leadership = metadata.lead("a", 30)
    first = metadata.write(leadership, b"one", None)

    def overtaken() -> None:
        leadership.resign()
        successor = standby.lead("b", 30)
        standby.write(successor, b"other", standby.read().version)

    lose(monkeypatch, "done", overtaken)

    with pytest.raises(TransientError, match="nobody knows whether"):
        metadata.write(leadership, b"two", first)


def lose(monkeypatch: pytest.MonkeyPatch, when: str, then: Callable[[], None] = lambda: None) -> None:
    """Lose the answer to the next multi-operation, and do something else then."""
    multi, lost = Connection.multi, list[bool]()

    def losing(connection: Connection, *args: Any) -> Any:
        if lost:
            return multi(connection, *args)
        lost.append(True)
        if when == "done":
            multi(connection, *args)
        then()
        raise LostAnswerError("nobody answered")

    monkeypatch.setattr(Connection, "multi", losing)


# Elections


def test_a_leader_that_resigns_is_followed_at_once(make):
    """A standby that waits takes over long before a session could end; the earlier leader is refused."""
    metadata, standby = make(), make()
    first = metadata.lead("a", 30)
    version = metadata.write(first, b"one", None)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(standby.lead, "b", 60)
        assert not waiting.done()
        begun = time.monotonic()
        first.resign()
        first.resign()
        second = waiting.result(10)

    assert time.monotonic() - begun < 8
    assert (2, "b") == (second.epoch, second.candidate) == metadata.leader()
    with pytest.raises(FencedError, match="given back"):
        first.check()
    with pytest.raises(FencedError):
        metadata.write(first, b"zombie", version)
    assert b"one" == standby.read().data
    standby.write(second, b"two", version)


def test_a_leader_that_closes_is_followed_at_once(make):
    """Closing resigns; the standby leads by then."""
    metadata, standby = make(), make()
    leadership = metadata.lead("a", 30)
    metadata.close()
    metadata.close()

    assert 2 == standby.lead("b", 10).epoch
    with pytest.raises(FencedError):
        leadership.check()
    with pytest.raises(StoreClosedError):
        metadata.read()


def test_a_leadership_that_may_not_be_given_back_ends_with_its_session(make, root):
    """Where the ACL has been changed meanwhile, resigning ends, nothing goes on trying, and closing makes room."""
    metadata, standby = make(), make()
    leadership = metadata.lead("a", 30)
    connection_of(standby).change(lambda client: client.set_acls_async(nodes(root), READ_ACL_UNSAFE), "lock")

    leadership.resign()

    assert not leadership.is_running()
    with pytest.raises(TransientError, match="leads still"):
        standby.lead("b", 0.5)
    metadata.close()
    assert connection_of(standby).children(nodes(root), "look") == ["epoch", "record"]


def test_a_leader_that_lives_is_not_overthrown(make):
    """A candidate gives up when its time is over, and says who leads."""
    session = timedelta(seconds=6)
    metadata, standby = make(session_timeout=session), make(session_timeout=session)
    leadership = metadata.lead("a", 30)

    with pytest.raises(TransientError, match=r"'a' \(epoch 1\) leads still"):
        standby.lead("b", 7.0)

    leadership.check()
    metadata.write(leadership, b"one", None)


def test_close_ends_a_candidate_that_waits(make):
    """Whoever waits to lead is told that the place was closed."""
    metadata, standby = make(), make()
    metadata.lead("a", 30)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(standby.lead, "b", 60)
        standby.read()
        standby.close()
        with pytest.raises(StoreClosedError):
            waiting.result(20)


def test_of_many_candidates_one_leads_at_a_time(make):
    """Eight candidates that lead and resign in turns never overlap, and each has an epoch of its own."""
    inside, overlaps, epochs = threading.Lock(), list[int](), list[int]()

    def stand(number: int) -> None:
        metadata = make()
        for _ in range(3):
            leadership = metadata.lead(f"candidate {number}", 60)
            if not inside.acquire(blocking=False):
                overlaps.append(leadership.epoch)
                continue
            epochs.append(leadership.epoch)
            record = metadata.read()
            metadata.write(leadership, str(leadership.epoch).encode(), record.version if record else None)
            leadership.check()
            inside.release()
            leadership.resign()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(stand, range(4)))

    assert [] == overlaps
    assert list(range(1, 13)) == sorted(epochs)
    assert b"12" == make().read().data


# A session that is lost


def test_an_expired_session_ends_a_leadership(hosts, make):
    """Once the servers have ended its session, a leader may not act nor write, and a standby leads."""
    metadata, standby = make(), make()
    leadership = metadata.lead("a", 30)
    version = metadata.write(leadership, b"one", None)

    expire(hosts, connection_of(metadata))

    with pytest.raises(FencedError, match="session"):
        leadership.check()
    with pytest.raises(FencedError):
        metadata.write(leadership, b"zombie", version)
    assert 2 == standby.lead("b", 10).epoch
    assert b"one" == standby.read().data


def test_the_place_refuses_a_leader_that_does_not_know_yet(hosts, make, monkeypatch):
    """Though its own check still says yes, a leader whose session has ended cannot write."""
    metadata, standby = make(), make()
    leadership = metadata.lead("a", 30)
    version = metadata.write(leadership, b"one", None)
    expire(hosts, connection_of(metadata))
    monkeypatch.setattr(type(leadership), "check", lambda _self: None)

    with pytest.raises(FencedError, match="nothing was written"):
        metadata.write(leadership, b"zombie", version)
    successor = standby.lead("b", 10)
    with pytest.raises(FencedError, match="epoch 2 is the newest"):
        metadata.write(leadership, b"zombie", version)
    assert b"one" == standby.read().data
    standby.write(successor, b"two", version)


def test_a_leader_without_a_server_stops_before_its_session_can_end(own_ensemble, root):
    """With its only server stopped, a leader is over by its own clock, in less than the session's time-out."""
    ensemble = own_ensemble()
    with metadata_at(ensemble.hosts, root, session_timeout=SESSION) as metadata:
        leadership = metadata.lead("a", 30)
        leadership.check()
        ensemble.servers[0].signal(signal.SIGSTOP)
        begun, pause = time.monotonic(), threading.Event()
        try:
            with pytest.raises(FencedError, match="confirmed its session in time"):
                while True:
                    asked = time.monotonic()
                    leadership.check()
                    assert asked - begun < SESSION_S
                    pause.wait(0.01)
        finally:
            ensemble.servers[0].signal(signal.SIGCONT)
        again = metadata.lead("a", 60)
        assert 2 == again.epoch


def test_a_leader_hears_of_the_time_out_that_the_servers_grant(own_ensemble, root):
    """Servers that shorten a session shorten the lease: nobody goes by what was asked for."""
    ensemble = own_ensemble(1, maxSessionTimeout=2000)
    with metadata_at(ensemble.hosts, root, session_timeout=timedelta(minutes=5)) as metadata:
        leadership = metadata.lead("a", 30)
        assert 2.0 == connection_of(metadata).negotiated_s
        ensemble.servers[0].kill()
        begun, pause = time.monotonic(), threading.Event()
        with pytest.raises(FencedError):
            while True:
                asked = time.monotonic()
                leadership.check()
                assert asked - begun < 2.0
                pause.wait(0.01)


@pytest.fixture
def leading_child(hosts: str, root: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(PROGRAM), "lead", hosts, root]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert ["leads", 1] == json.loads(child.stdout.readline())[:2]
    yield child
    child.send_signal(signal.SIGCONT)
    child.kill()
    child.communicate(timeout=30)


def test_a_killed_leader_is_followed_within_a_time_out(make, leading_child, record_property):
    """A standby leads within one session time-out, and a tick, of the leader's SIGKILL."""
    standby = make()
    assert standby.read().data == b"child"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(standby.lead, "standby", 60)
        begun = time.monotonic()
        leading_child.kill()
        leadership = waiting.result(60)
    took = time.monotonic() - begun

    record_property("takeover_s", round(took, 2))
    assert 2 == leadership.epoch
    assert took < SESSION_S + 3
    standby.write(leadership, b"standby", standby.read().version)


def test_a_leader_that_was_stopped_wakes_as_none(make, leading_child):
    """A process that slept through its session is fenced by its own clock and by the place, and changes nothing."""
    standby = make()
    leading_child.send_signal(signal.SIGSTOP)
    leadership = standby.lead("standby", 60)
    version = standby.write(leadership, b"standby", standby.read().version)

    assert leading_child.stdin is not None
    assert leading_child.stdout is not None
    leading_child.stdin.write("\n")
    leading_child.stdin.flush()
    leading_child.send_signal(signal.SIGCONT)

    assert ["fenced", "fenced"] == json.loads(leading_child.stdout.readline())
    assert StoredRecord(b"standby", version) == standby.read()
