"""A whole coordinator on a real server: a standby takes over, and job checkpoints only go forward."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta

from zookeeper_managers import connection_of, expire, metadata_at

from millpond.coordinator import record as record_format
from millpond.coordinator.ends import LocalHub
from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.keepers import NothingKept
from millpond.coordinator.member import Member, Participant
from millpond.coordinator.service import Coordinator
from millpond.coordinator.settings import CoordinatorSettings
from millpond.coordinator.state import Place
from millpond_zookeeper import ZooKeeperMetadata

NAMES = ("lines", "split", "count")
SETTINGS = CoordinatorSettings(job="flights", members={name: Place(name) for name in NAMES}, interval_s=0.05, retain=2)
PATIENCE_S = 60.0


class Source(Participant):
    """Saves as soon as it is asked to, and notes which job checkpoints are whole."""

    def __init__(self, heard: Callable[[JobCheckpointId], None]) -> None:
        self.member: Member | None = None
        self._heard = heard

    def begin(self, attempt: JobCheckpointId) -> None:
        assert self.member is not None
        self.member.save(attempt)

    def completed(self, attempt: JobCheckpointId) -> None:
        self._heard(attempt)


class Heard:
    """The ids of whole job checkpoints, as one member hears of them."""

    def __init__(self) -> None:
        self.ids: list[JobCheckpointId] = []
        self._more = threading.Condition()

    def __call__(self, id: JobCheckpointId) -> None:
        with self._more:
            self.ids.append(id)
            self._more.notify_all()

    def wait_for(self, fit: Callable[[list[JobCheckpointId]], bool]) -> None:
        with self._more:
            assert self._more.wait_for(lambda: fit(self.ids), PATIENCE_S), f"only {self.ids[-3:]} were heard of"


def serve(name: str, hub: LocalHub, heard: Heard, over: threading.Event) -> None:
    source = Source(heard if name == NAMES[0] else Heard())
    with Member(name, Place(name), NothingKept(), hub.member_end(name), source) as member:
        source.member = member
        while not over.is_set() and member.poll(0.02):
            pass


def test_a_standby_takes_over_when_the_leaders_session_ends(hosts, root):
    """The leader's session ends twice; each time another leadership goes on, and no job checkpoint goes back."""
    hub, heard, over = LocalHub(), Heard(), threading.Event()
    with ExitStack() as stack:
        places = {name: stack.enter_context(metadata_at(hosts, root)) for name in ("a", "b")}
        for name, place in places.items():
            coordinator = Coordinator(SETTINGS, place, hub.coordinator_end, candidate=name)
            start(stack, coordinator.run)
            stack.callback(coordinator.close)
        for name in NAMES:
            start(stack, lambda name=name: serve(name, hub, heard, over))
        stack.callback(over.set)

        for _ in range(2):
            before = len(heard.ids)
            heard.wait_for(lambda ids, before=before: len(ids) >= before + 3)
            epoch, leader = leader_of(places["a"])
            expire(hosts, connection_of(places[leader]))
            heard.wait_for(lambda ids, epoch=epoch: ids[-1].epoch > epoch)

        last = heard.ids[-1]
        stored = places["b"].read()
        assert stored is not None
        newest = record_format.decode(stored.data).newest
    assert heard.ids == sorted(set(heard.ids))
    assert newest is not None
    assert newest.id >= last


def leader_of(place: ZooKeeperMetadata) -> tuple[int, str]:
    found = place.leader()
    assert found is not None
    return found


def start(stack: ExitStack, work: Callable[[], None]) -> None:
    """Run *work* on a thread that has to end with the test."""
    thread = threading.Thread(target=work)
    thread.start()
    stack.callback(thread.join, timedelta(seconds=PATIENCE_S).total_seconds())
