"""Damage under the backend's feet: it is found, or it does not matter; a store is never silently another one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from millpond.checkpoint import Checkpoint
from millpond.errors import FormatError, StateCorruptError, StateNotFoundError
from millpond.testing.kit.backend_bench import BackendBench
from millpond.testing.kit.backend_owner import STORE, numbered
from millpond.testing.kit.contract import Cases, expect, expect_equal
from millpond.testing.kit.door import SideDoor, damages

cases: Cases[BackendBench] = Cases()

_LOST = (StateNotFoundError, StateCorruptError, FormatError)
_MOST = 24


def _committed(bench: BackendBench) -> tuple[Checkpoint, SideDoor]:
    """Commit twice, so that what is kept consists of more than one thing."""
    door, owner = bench.side_door(), bench.owner()
    owner.commit({STORE: {b"k%03d" % n: b"value %d" % n for n in range(60)}})
    checkpoint = owner.commit({STORE: numbered(1)})
    owner.close()
    return checkpoint, door


def _names(door: SideDoor) -> list[str]:
    names = list(door.names())
    expect(names, "the side door shows nothing after a commit")
    return names[:: max(1, len(names) // _MOST)]


def _expect_found_or_harmless(bench: BackendBench, checkpoint: Checkpoint, what: str) -> bool:
    """Restore; say whether the damage was found. What is restored without an error has to be right."""
    marker = checkpoint.markers["main"][STORE]
    try:
        found = bench.restore({STORE: marker}, checkpoint, bench.place())
    except _LOST:
        return True
    expect_equal(bench.states[bench.place(), checkpoint.id][STORE], found[STORE], f"restored without an error: {what}")
    return False


def _try_each(
    bench: BackendBench, checkpoint: Checkpoint, door: SideDoor, ways: Callable[[bytes], dict[str, bytes]]
) -> bool:
    """Damage each thing in each way, one at a time, and mend it again; say whether any damage was found."""
    noticed = False
    for name in _names(door):
        whole = door.read(name)
        for what, damaged in ways(whole).items():
            door.write(name, damaged)
            noticed |= _expect_found_or_harmless(bench, checkpoint, f"{name} {what}")
        door.write(name, whole)
    bench.expect_restored(checkpoint)
    return noticed


@cases("damage.missing", "What a marker names is gone: StateNotFoundError or StateCorruptError, never an empty store.")
def missing(bench: BackendBench) -> None:
    """Delete each thing that is kept, one at a time, then all."""
    checkpoint, door = _committed(bench)
    for name in _names(door):
        whole = door.read(name)
        door.delete(name)
        _expect_found_or_harmless(bench, checkpoint, f"{name} deleted")
        door.write(name, whole)
    bench.expect_restored(checkpoint)
    for name in list(door.names()):
        door.delete(name)
    expect(_expect_found_or_harmless(bench, checkpoint, "all deleted"), "all is gone, and restore raises nothing")


@cases("damage.cut", "What a marker names was cut short, emptied or lengthened: it is found, or does not matter.")
def cut(bench: BackendBench) -> None:
    """Change the length of each thing."""
    checkpoint, door = _committed(bench)

    def ways(data: bytes) -> dict[str, bytes]:
        return {what: bad for what, bad in damages(data).items() if len(bad) != len(data)}

    expect(_try_each(bench, checkpoint, door, ways), "no cut was noticed: the side door may show another place")


@cases(
    "damage.flipped-bit",
    "A single flipped bit anywhere is found, or does not matter: restored state is verified state.",
)
def flipped_bit(bench: BackendBench) -> None:
    """Flip one bit at several places of each thing."""
    checkpoint, door = _committed(bench)

    def ways(data: bytes) -> dict[str, bytes]:
        places = range(0, len(data), max(1, len(data) // 40))
        return {f"with bit 2 of byte {n} flipped": data[:n] + bytes([data[n] ^ 4]) + data[n + 1 :] for n in places}

    expect(_try_each(bench, checkpoint, door, ways), "no flipped bit was noticed: the side door may show another place")


@cases("damage.exchanged", "Two whole things in each other's place are found, or do not matter.")
def exchanged(bench: BackendBench) -> None:
    """Put each thing in the place of the next one."""
    checkpoint, door = _committed(bench)
    names = _names(door)
    for one, other in pairwise(names):
        first, second = door.read(one), door.read(other)
        door.write(one, second)
        door.write(other, first)
        _expect_found_or_harmless(bench, checkpoint, f"{one} and {other} exchanged")
        door.write(one, first)
        door.write(other, second)
    bench.expect_restored(checkpoint)


@cases("damage.strangers", "Things that are not the backend's own are left alone, and in nobody's way.")
def strangers(bench: BackendBench) -> None:
    """Put copies under other names beside each thing; commit, clean up and restore."""
    checkpoint, door = _committed(bench)
    made = [f"{name}.stranger" for name in _names(door)[:5]]
    for name in made:
        door.write(name, b"stranger")
    _expect_found_or_harmless(bench, checkpoint, "strangers beside it")
    owner = bench.owner() if not _lost(bench, checkpoint) else None
    if owner is not None:
        bench.expect_restored(owner.commit({STORE: numbered(2)}, retain=1))


def _lost(bench: BackendBench, checkpoint: Checkpoint) -> bool:
    """Say whether a stranger within what is verified, e.g. in an image's folder, makes it another image."""
    try:
        bench.restore({STORE: checkpoint.markers["main"][STORE]}, checkpoint, bench.place())
    except _LOST:
        return True
    return False
