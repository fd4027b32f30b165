"""
What every place for a coordinator's record has to do, as checks that a test of it calls.

Each check takes a function that opens the same place anew, as another process would, and raises AssertionError where
the place does not keep the contract of :class:`millpond.coordinator.metadata.CoordinatorMetadata`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from millpond.coordinator.metadata import CoordinatorMetadata, Leadership
from millpond.errors import FencedError, MillpondError, StoreClosedError, TransientError

Open = Callable[[], CoordinatorMetadata]

LARGE = 3 << 20
"""Over what small places, such as a node in ZooKeeper, can hold."""


def begins_empty(open_place: Open) -> None:
    """A new place has no record and no leader."""
    with open_place() as place:
        place.create_resources()
        place.validate_resources()
        assert place.read() is None
        assert place.leader() is None


def keeps_what_was_written(open_place: Open) -> None:
    """What a leader wrote, another opening of the place reads, whole; each version is another."""
    with open_place() as place, open_place() as other:
        place.create_resources()
        leadership = place.lead("first", 30.0)
        versions = [place.write(leadership, b"one", None)]
        versions.append(place.write(leadership, b"", versions[-1]))
        versions.append(place.write(leadership, b"three" * 1000, versions[-1]))
        stored = other.read()
        assert stored is not None
        assert (stored.data, stored.version) == (b"three" * 1000, versions[-1])
        assert len(set(versions)) == 3
        assert other.leader() == (leadership.epoch, "first")


def keeps_a_large_record(open_place: Open) -> None:
    """A record of three megabytes is kept, and replaced by a small one."""
    with open_place() as place, open_place() as other:
        place.create_resources()
        leadership = place.lead("large", 30.0)
        data = bytes(range(256)) * (LARGE // 256)
        version = place.write(leadership, data, None)
        stored = other.read()
        assert stored is not None
        assert stored.data == data
        place.write(leadership, b"small", version)
        stored = other.read()
        assert stored is not None
        assert stored.data == b"small"


def compares(open_place: Open) -> None:
    """A write in place of a version that is not there changes nothing; the same write again is a lost answer."""
    with open_place() as place:
        place.create_resources()
        leadership = place.lead("one", 30.0)
        first = place.write(leadership, b"1", None)
        second = place.write(leadership, b"2", first)
        assert place.write(leadership, b"2", first) == second
        for expected in (None, first):
            _raises(lambda expected=expected: place.write(leadership, b"3", expected), MillpondError)  # type: ignore[misc]
        stored = place.read()
        assert stored is not None
        assert (stored.data, stored.version) == (b"2", second)


def leads_one_at_a_time(open_place: Open) -> None:
    """A leader that lives is not overthrown; who resigns is followed, and refused from then on."""
    with open_place() as place, open_place() as other:
        place.create_resources()
        first = place.lead("first", 30.0)
        version = place.write(first, b"1", None)
        _raises(lambda: other.lead("second", 0.5), TransientError)
        first.check()
        first.resign()
        first.resign()
        second = other.lead("second", 60.0)
        assert second.epoch > first.epoch
        _raises(first.check, FencedError)
        _raises(lambda: place.write(first, b"late", version), FencedError)
        stored = other.read()
        assert stored is not None
        assert stored.data == b"1"
        other.write(second, b"2", stored.version)


def closes(open_place: Open) -> None:
    """Closing resigns, and ends an election that waits; it may be done twice."""
    with open_place() as place, open_place() as other:
        place.create_resources()
        leadership = place.lead("first", 30.0)
        waited: list[object] = []
        waiting = threading.Thread(target=lambda: waited.append(_outcome(lambda: other.lead("second", 60.0))))
        waiting.start()
        other.close()
        other.close()
        waiting.join(30.0)
        assert not waiting.is_alive()
        assert isinstance(waited[0], StoreClosedError | TransientError), waited
        place.close()
        _raises(leadership.check, FencedError)
    with open_place() as third:
        assert third.lead("third", 60.0).epoch > leadership.epoch


def elects_one_of_many(open_place: Open) -> None:
    """Of several that stand at once each leads in turn; when one leads, all before it know that they do not."""
    earlier: list[Leadership] = []
    problems: list[BaseException] = []

    def stand(name: str) -> None:
        try:
            with open_place() as place:
                leadership = place.lead(name, 120.0)
                for other in earlier[:]:
                    assert other.epoch < leadership.epoch
                    _raises(other.check, FencedError)
                earlier.append(leadership)
                leadership.resign()
        except BaseException as error:  # noqa: BLE001 - it is raised below
            problems.append(error)

    with open_place() as place:
        place.create_resources()
    threads = [threading.Thread(target=stand, args=(f"candidate {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(150.0)
    if problems:
        raise problems[0]
    assert len(earlier) == 4


CHECKS: tuple[Callable[[Open], None], ...] = (
    begins_empty,
    keeps_what_was_written,
    keeps_a_large_record,
    compares,
    leads_one_at_a_time,
    closes,
    elects_one_of_many,
)
"""All checks; each wants a place that nothing was done with."""


def _raises(act: Callable[[], object], kind: type[BaseException]) -> None:
    outcome = _outcome(act)
    assert isinstance(outcome, kind), f"{outcome!r}, not {kind.__name__}"


def _outcome(act: Callable[[], object]) -> object:
    try:
        return act()
    except MillpondError as error:
        return error
