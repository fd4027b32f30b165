"""A log whose bytes are damaged under its feet: exactly what was committed is read, or an error is raised."""

from __future__ import annotations

from millpond.errors import FormatError, StateCorruptError, StateNotFoundError
from millpond.spi import Change
from millpond.testing.kit.contract import expect
from millpond.testing.kit.door import SideDoor, damages
from millpond.testing.kit.log_bench import LogBench, checked

_REFUSALS = (StateCorruptError, StateNotFoundError, FormatError)
_MOST = 40
"""Of how many kept things each is damaged."""


def try_damages(bench: LogBench) -> None:
    """Damage what is kept of a topic, one thing at a time, and read it through a new log."""
    door, name = bench.side_door(), bench.topic()
    wanted: list[Change] = []
    for number in range(4):
        part: list[Change] = [(b"%d/%d" % (number, at), bytes([at]) * 50) for at in range(20)]
        bench.write(name, part)
        wanted += part
    end = bench.log.extent(name, 0).end
    for thing in list(door.names())[:_MOST]:
        whole = door.read(thing)
        for what, bad in damages(whole).items():
            door.write(thing, bad)
            _read(bench, name, end, wanted, f"{thing}, {what}")
        door.delete(thing)
        _read(bench, name, end, wanted, f"{thing}, removed")
        door.write(thing, whole)
    _read(bench, name, end, wanted, "all put back")
    _expect_whole(bench, door, name, end, wanted)


def _read(bench: LogBench, name: str, end: int, wanted: list[Change], where: str) -> None:
    """Read up to *end*, which was once readable: all of it is there, or the reader is told that something is wrong."""
    log = bench.another()
    try:
        found = checked(log.read(name, 0, log.extent(name, 0).start, end), 0, end)
    except _REFUSALS:
        return
    finally:
        log.close()
    expect(list(found.changes) == wanted, f"with {where}, {len(found.changes)} records are read, not {len(wanted)}")


def _expect_whole(bench: LogBench, door: SideDoor, name: str, end: int, wanted: list[Change]) -> None:
    """See that the damages did not do lasting harm, so that what they showed was theirs."""
    log = bench.another()
    found = checked(log.read(name, 0, 0, end), 0, end)
    expect(
        list(found.changes) == wanted, f"after all was put back, {len(found.changes)} records are read: {door.names()}"
    )
