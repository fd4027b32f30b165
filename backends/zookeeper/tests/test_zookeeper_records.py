"""Records on one real server: fences, lost answers, damage, sizes, sessions that end and servers that hang."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from zookeeper_managers import TASK, checkpoint, connection_of, expire, ids_of, manager_at, tree

from millpond.checkpoint import CheckpointId, Claim
from millpond.errors import ConfigError, FencedError, StateCorruptError, StateNotFoundError, TransientError
from millpond_zookeeper import ZooKeeperCheckpoints
from millpond_zookeeper.connection import Connection
from millpond_zookeeper.failures import LostAnswerError
from millpond_zookeeper.shelf import Parts

PROGRAM = Path(__file__).with_name("programs") / "leader_or_writer.py"
Multi = Any


@pytest.fixture
def manager(hosts: str, root: str) -> Iterator[ZooKeeperCheckpoints]:
    made = manager_at(hosts, root)
    yield made
    made.close()


@pytest.fixture
def other(hosts: str, root: str) -> Iterator[ZooKeeperCheckpoints]:
    made = manager_at(hosts, root)
    yield made
    made.close()


def base(root: str) -> str:
    return f"{root}/flights/tasks/+partition%200"


# Fences


def test_a_replaced_writer_is_refused_at_its_next_write_and_removal(manager, other):
    """A writer that knew the head before another claimed is refused, and its record appears nowhere."""
    old = manager.claim(TASK)
    manager.write(old, checkpoint(1), after=None)
    new = other.claim(TASK)

    with pytest.raises(FencedError, match="epoch 1 has lost the task"):
        manager.write(old, checkpoint(2), after=CheckpointId(1, 0))
    with pytest.raises(FencedError):
        manager.delete(old, ids_of(1))

    assert ids_of(1) == other.ids(TASK)
    other.write(new, checkpoint(3), after=CheckpointId(1, 0))
    assert ids_of(3, 1) == manager.ids(TASK)


def test_of_two_owners_that_write_after_one_checkpoint_exactly_one_wins(hosts, root, manager):
    """However two owners race to follow one checkpoint, one succeeds, the other is refused, and one record follows."""
    last = None
    for number in range(1, 11):
        managers = [manager_at(hosts, root) for _ in range(2)]
        claims = [each.claim(TASK) for each in managers]
        outcomes = race(managers, claims, checkpoint(number), last)
        last = CheckpointId(number, 0)

        assert ["done", "fenced"] == sorted(outcomes)
        assert number == len(manager.ids(TASK))
        for each in managers:
            each.close()


def race(managers: list[ZooKeeperCheckpoints], claims: list[Claim], made: Any, after: CheckpointId | None) -> list[str]:
    start, outcomes = threading.Barrier(len(managers)), list[str]()

    def write(manager: ZooKeeperCheckpoints, claim: Claim) -> None:
        start.wait(30)
        try:
            manager.write(claim, made, after=after)
            outcomes.append("done")
        except FencedError:
            outcomes.append("fenced")

    threads = [threading.Thread(target=write, args=pair) for pair in zip(managers, claims, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def test_one_claim_used_twice_at_once_loses_no_write(hosts, root, manager):
    """Where a claim leaks to a second process, the head's version keeps both writes apart: both are in the history."""
    claim = manager.claim(TASK)
    twin = manager_at(hosts, root)
    twin.ids(TASK)
    start = threading.Barrier(2)

    def write(who: ZooKeeperCheckpoints, first: int) -> None:
        start.wait(30)
        for number in range(first, first + 10):
            who.write(claim, checkpoint(number), after=None)

    threads = [threading.Thread(target=write, args=pair) for pair in ((manager, 100), (twin, 200))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    twin.close()

    assert set(ids_of(*range(100, 110), *range(200, 210))) == set(manager.ids(TASK))


def test_a_task_that_was_removed_and_made_anew_knows_no_earlier_claim(hosts, root, manager, other):
    """An owner that slept while an operator removed the task is refused, though the new head has the same version."""
    old = manager.claim(TASK)
    operator = connection_of(other)
    operator.change(lambda client: client.delete_async(f"{base(root)}/head"), "remove")
    for node in reversed(tree(operator, base(root))):
        operator.change(lambda client, node=node: client.delete_async(node), "remove")
    new = other.claim(TASK)

    with pytest.raises(FencedError, match="has lost the task"):
        manager.write(old, checkpoint(1), after=None)

    assert [] == other.ids(TASK)
    other.write(new, checkpoint(2), after=None)


def test_a_writer_that_was_stopped_wakes_as_none(hosts, root, other):
    """A process that was stopped in the middle of its writes is fenced when it wakes; what was durable stays."""
    command = [sys.executable, str(PROGRAM), "write", hosts, root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            for _ in range(20):
                assert "durable" == json.loads(child.stdout.readline())[0]
            child.send_signal(signal.SIGSTOP)
            claim = other.claim(TASK)
            last = other.read_last(TASK)
            assert last is not None
            other.write(claim, checkpoint(1_000_000), after=last.id)
            child.send_signal(signal.SIGCONT)
            said = [json.loads(line) for line in child.stdout]
        finally:
            child.kill()

    durable = [number for word, number in said if word == "durable"]
    assert ["fenced", last.id.millis + 1] == said[-1]
    assert all(number <= last.id.millis for number in durable)
    assert ids_of(1_000_000, *range(last.id.millis, 0, -1)) == other.ids(TASK)


def test_only_the_claim_that_may_write_has_a_node(hosts, root, manager, other):
    """Claims that were replaced leave nothing behind."""
    claims = [each.claim(TASK) for each in (manager, other, manager, other)]

    assert [claims[-1].writer] == connection_of(manager).children(f"{base(root)}/owners", "look")
    assert [1, 2, 3, 4] == [claim.epoch for claim in claims]


# Lost answers


class Losing:
    """Loses the answer to the next multi-operation: before it is sent, after it was done, or done late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
        self._multi, self._when = Connection.multi, when
        self.late: list[tuple[Any, ...]] = []
        self.lost = 0
        monkeypatch.setattr(Connection, "multi", self._lose())

    def _lose(self) -> Multi:
        def multi(connection: Connection, *args: Any) -> Any:
            if self.lost:
                return self._multi(connection, *args)
            self.lost += 1
            if self._when == "done":
                self._multi(connection, *args)
            self.late.append((connection, *args[:2]))
            raise LostAnswerError("nobody answered")

        return multi

    def arrive(self) -> None:
        """Let the request that was lost arrive at last."""
        try:
            self._multi(*self.late[0])
        except Exception as refused:  # whatever the server says
            self.refused = refused


@pytest.mark.parametrize("when", ["never sent", "done", "late"])
def test_a_write_whose_answer_was_lost_is_there_once(monkeypatch, manager, when):
    """Sent again, a write is found to be done or is done now; a request that arrives late changes nothing."""
    claim = manager.claim(TASK)
    manager.write(claim, checkpoint(1), after=None)
    losing = Losing(monkeypatch, when)

    manager.write(claim, checkpoint(2), after=CheckpointId(1, 0))
    if when == "late":
        losing.arrive()
        assert "BadVersionError" == type(losing.refused).__name__

    assert 1 == losing.lost
    assert ids_of(2, 1) == manager.ids(TASK)
    manager.write(claim, checkpoint(3), after=CheckpointId(2, 0))
    assert checkpoint(3, claim=claim) == manager.read_last(TASK)


@pytest.mark.parametrize("when", ["never sent", "done"])
@pytest.mark.parametrize("before", [0, 1])
def test_a_claim_whose_answer_was_lost_holds(monkeypatch, manager, other, when, before):
    """A claim is found to be made, or is made again; no epoch is given twice and the writer may write."""
    for _ in range(before):
        other.claim(TASK)
    Losing(monkeypatch, when)

    claim = manager.claim(TASK)

    assert before + 1 == claim.epoch
    manager.write(claim, checkpoint(1), after=None)
    assert claim.epoch + 1 == other.claim(TASK).epoch


@pytest.mark.parametrize("when", ["never sent", "done"])
def test_a_removal_whose_answer_was_lost_is_done(monkeypatch, manager, when):
    """Records go, and no others, though the answer was lost; also the newest."""
    claim = manager.claim(TASK)
    for number in (1, 2, 3):
        manager.write(claim, checkpoint(number), after=None)
    Losing(monkeypatch, when)

    manager.delete(claim, ids_of(1, 3))

    assert ids_of(2) == manager.ids(TASK)
    assert CheckpointId(2, 0) == manager.read_last(TASK).id


# Damage


def test_a_head_that_is_gone_is_no_proof_of_a_new_task(root, manager, other):
    """A task with records and no head is an error to its reader and to its claimant, and is not begun anew."""
    claim = manager.claim(TASK)
    manager.write(claim, checkpoint(1), after=None)
    connection_of(other).change(lambda client: client.delete_async(f"{base(root)}/head"), "remove")

    for call in (other.read_last, other.claim):
        with pytest.raises(StateCorruptError, match="head is gone, though there are records"):
            call(TASK)


def test_the_newest_record_that_is_gone_is_an_error(root, manager, other):
    """Where somebody removed the newest record, nobody gets the one before it for the newest."""
    claim = manager.claim(TASK)
    for number in (1, 2):
        manager.write(claim, checkpoint(number), after=None)
    newest = connection_of(other).children(f"{base(root)}/records", "look")
    connection_of(other).change(lambda client: client.delete_async(f"{base(root)}/records/{min(newest)}"), "remove")

    with pytest.raises(StateCorruptError, match="which the task's head names, is gone"):
        other.read_last(TASK)


def test_an_old_head_that_was_put_back_overwrites_nothing(root, manager, other):
    """With a head of the past beside a newer record, a write is an error and not an endless attempt."""
    claim = manager.claim(TASK)
    connection = connection_of(other)
    old = connection.get(f"{base(root)}/head", "look")[0]
    manager.write(claim, checkpoint(1), after=None)
    connection.change(lambda client: client.set_async(f"{base(root)}/head", old), "put back")
    record = connection.children(f"{base(root)}/records", "look")[0]

    fresh = manager_at(connection.settings.hosts, root)
    with pytest.raises(StateCorruptError, match=record):
        fresh.write(claim, checkpoint(1), after=None)
    fresh.close()


# Sizes


def test_a_record_larger_than_a_node_lies_in_parts_and_goes_with_its_record(root, manager, other):
    """Three megabytes of markers are kept whole, a pin keeps their parts, and nothing is left when both are gone."""
    claim = manager.claim(TASK)
    large = checkpoint(1, markers={"main": {f"store {n}": "x" * 3_000 for n in range(1_000)}}, claim=claim)
    manager.write(claim, large, after=None)
    manager.write(claim, checkpoint(2), after=CheckpointId(1, 0))

    assert large == other.read(TASK, CheckpointId(1, 0))
    manager.pin(TASK, CheckpointId(1, 0), "kept")
    manager.delete(claim, ids_of(1))
    assert large == other.read(TASK, CheckpointId(1, 0))
    manager.unpin(TASK, "kept")
    manager.claim(TASK)
    assert [] == connection_of(other).children(f"{base(root)}/parts", "look")
    with pytest.raises(StateNotFoundError):
        other.read(TASK, CheckpointId(1, 0))


def test_a_folder_that_settings_name_takes_large_records(hosts, root, tmp_path):
    """`large` leads there; a reader without it says what to set, and the file goes with its record."""
    manager, blind = manager_at(hosts, root, large=tmp_path / "large"), manager_at(hosts, root)
    claim = manager.claim(TASK)
    large = checkpoint(1, markers={"main": {"s": "x" * 2_000_000}}, claim=claim)
    manager.write(claim, large, after=None)

    assert large == manager.read_last(TASK)
    assert 1 == len([path for path in (tmp_path / "large").rglob("*") if path.is_file()])
    with pytest.raises(StateCorruptError, match="set large to the folder"):
        blind.read_last(TASK)
    manager.delete(claim, ids_of(1))
    assert [] == [path for path in (tmp_path / "large").rglob("*") if path.is_file()]
    manager.close()
    blind.close()


def test_what_a_failed_write_left_in_parts_goes_with_the_next_claim(root, manager, other):
    """Parts of a large record that was refused are removed by the next owner."""
    old = manager.claim(TASK)
    manager.write(old, checkpoint(1), after=None)
    new = other.claim(TASK)
    with pytest.raises(FencedError):
        manager.write(old, checkpoint(2, markers={"main": {"s": "x" * 2_000_000}}), after=CheckpointId(1, 0))
    parts = f"{base(root)}/parts"
    assert 1 == len(connection_of(other).children(parts, "look"))

    other.write(new, checkpoint(3), after=CheckpointId(1, 0))
    manager.claim(TASK)

    assert [] == connection_of(other).children(parts, "look")


def test_a_large_record_that_is_removed_while_it_is_read_is_absent(monkeypatch, manager, other):
    """Whoever reads parts as they are removed is told that there is no such checkpoint, and of no damage."""
    claim = manager.claim(TASK)
    manager.write(claim, checkpoint(1, markers={"main": {"s": "x" * 1_500_000}}), after=None)
    manager.write(claim, checkpoint(2), after=CheckpointId(1, 0))
    read = Parts.read

    def overtaken(self: Parts, name: str, size: int) -> bytes | None:
        manager.delete(claim, ids_of(1))
        return read(self, name, size)

    monkeypatch.setattr(Parts, "read", overtaken)
    with pytest.raises(StateNotFoundError):
        other.read(TASK, CheckpointId(1, 0))


def test_any_number_of_records_is_removed(monkeypatch, manager, other):
    """More than one request holds are removed by several, the newest among them, and writing goes on."""
    monkeypatch.setattr("millpond_zookeeper.ledger._REMOVALS_AT_ONCE", 3)
    claim, last = manager.claim(TASK), None
    for number in range(1, 12):
        manager.write(claim, checkpoint(number), after=last)
        last = CheckpointId(number, 0)

    manager.delete(claim, ids_of(*range(1, 12, 2)))
    assert ids_of(*range(10, 1, -2)) == other.ids(TASK)
    assert CheckpointId(10, 0) == other.read_last(TASK).id
    manager.delete(claim, ids_of(*range(1, 12)))
    assert other.read_last(TASK) is None
    manager.write(claim, checkpoint(12), after=last)
    assert ids_of(12) == other.ids(TASK)


def test_a_limit_above_the_servers_is_found_when_the_job_is_prepared(hosts, root):
    """A `max_node` that the servers do not take is a ConfigError that says what to set."""
    manager = manager_at(hosts, root, max_node=2 << 20)
    manager.create_resources()

    with pytest.raises(ConfigError, match=r"set max_node below the servers' jute\.maxbuffer"):
        manager.validate_resources()
    manager.close()


def test_a_request_that_the_servers_drop_ends_in_time_and_harms_nothing(hosts, root, other):
    """A record larger than the servers take, sent all the same, is an error in bounded time; then writing goes on."""
    manager = manager_at(hosts, root, max_node=4 << 20, timeout=timedelta(seconds=3))
    claim = manager.claim(TASK)
    large = checkpoint(1, markers={"main": {"s": "x" * 2_000_000}})
    begun = time.monotonic()

    with pytest.raises(TransientError):
        manager.write(claim, large, after=None)

    assert time.monotonic() - begun < 15
    assert other.read_last(TASK) is None
    manager.write(claim, checkpoint(2), after=None)
    assert ids_of(2) == other.ids(TASK)
    manager.close()


# Sessions and servers


def test_a_session_that_expired_costs_nothing(hosts, manager):
    """Claims and records hang on no session: the next write goes through a new one."""
    claim = manager.claim(TASK)
    manager.write(claim, checkpoint(1), after=None)
    before = connection_of(manager).session

    expire(hosts, connection_of(manager))
    manager.write(claim, checkpoint(2), after=CheckpointId(1, 0))

    assert ids_of(2, 1) == manager.ids(TASK)
    assert before != connection_of(manager).session


def test_a_server_that_hangs_ends_each_call_in_time(own_ensemble, root):
    """A stopped server makes each call a TransientError within the time-out; once it goes on, so do the calls."""
    ensemble = own_ensemble()
    manager = manager_at(ensemble.hosts, root, timeout=timedelta(seconds=2))
    claim = manager.claim(TASK)
    manager.write(claim, checkpoint(1), after=None)
    ensemble.servers[0].signal(signal.SIGSTOP)
    try:
        for call in (
            lambda: manager.read_last(TASK),
            lambda: manager.write(claim, checkpoint(2), after=CheckpointId(1, 0)),
        ):
            begun = time.monotonic()
            with pytest.raises(TransientError):
                call()
            assert time.monotonic() - begun < 10
    finally:
        ensemble.servers[0].signal(signal.SIGCONT)
    patient = manager_at(ensemble.hosts, root)
    patient.write(claim, checkpoint(2), after=CheckpointId(1, 0))
    assert ids_of(2, 1) == patient.ids(TASK)
    patient.close()
    manager.close()


def test_a_server_killed_and_started_again_has_everything(own_ensemble, root):
    """What was written before a SIGKILL of the only server is there afterwards, and the same manager goes on."""
    ensemble = own_ensemble()
    manager = manager_at(ensemble.hosts, root)
    claim = manager.claim(TASK)
    manager.write(claim, checkpoint(1), after=None)

    ensemble.servers[0].kill()
    ensemble.servers[0].start()
    manager.write(claim, checkpoint(2), after=CheckpointId(1, 0))

    assert ids_of(2, 1) == manager.ids(TASK)
    manager.close()


def test_no_server_at_all_is_said_in_time():
    """Where nobody listens the error names the hosts and asks the right question, and no thread is left."""
    manager = manager_at("127.0.0.1:1", "/nowhere", timeout=timedelta(seconds=1))

    with pytest.raises(TransientError, match=r"127\.0\.0\.1:1.*are a majority of the servers running and reachable"):
        manager.read_last(TASK)
    manager.close()

    assert not [thread for thread in threading.enumerate() if "zk_loop" in thread.name]
