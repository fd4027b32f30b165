"""A member's state inline in the record, or by location on a shelf."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from coordinator_rigs import Rig

from millpond.blob.memory import MemoryBlobStore
from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.keepers import BytesKeeper, is_damage
from millpond.coordinator.shelf import BlobShelf, Placement
from millpond.coordinator.state import InlineState, LocatedState, NoState, TaskState
from millpond.errors import (
    ConfigError,
    StateCorruptError,
    StateNotFoundError,
)


def test_small_state_is_inline_and_large_state_by_location(tmp_path: Path) -> None:
    """Up to the limit bytes go into the record, beyond it onto the shelf; without a shelf: an error."""
    store = MemoryBlobStore()
    placement = Placement("sink / 1", BlobShelf(store, "job/shelf/"), 100)
    attempt = JobCheckpointId(1, 1)
    small, large = placement.put(attempt, b"x" * 100), placement.put(attempt, b"x" * 101)
    assert isinstance(small, InlineState) and isinstance(large, LocatedState)
    assert placement.get(small) == b"x" * 100 and placement.get(large) == b"x" * 101
    with pytest.raises(ConfigError, match="give it a shelf"):
        Placement("sink", None, 100).put(attempt, b"x" * 101)
    for state in (NoState(), TaskState("1-1")):
        with pytest.raises(StateNotFoundError):
            placement.get(state)
    with pytest.raises(StateNotFoundError, match="no shelf"):
        Placement("sink").get(large)


@pytest.mark.parametrize("harm", ["flipped", "cut", "longer", "gone", "size", "elsewhere", "huge"])
def test_state_by_location_is_verified_and_never_read_elsewhere(harm: str) -> None:
    """Damaged or missing state is an error for the fallback, and a location outside the shelf is never read."""
    store = MemoryBlobStore()
    shelf = BlobShelf(store, "shelf/")
    state = shelf.put("a", JobCheckpointId(1, 1), b"abc")
    key = "shelf/" + state.location
    store.objects["secret"] = store.objects["shelf/secret"] = (b"abc", 0)
    match harm:
        case "flipped":
            store.objects[key] = (b"abd", 0)
        case "cut":
            store.objects[key] = (b"ab", 0)
        case "longer":
            store.objects[key] = (b"abcd", 0)
        case "gone":
            del store.objects[key]
        case "size":
            state = LocatedState(state.location, 2, state.digest)
        case "elsewhere":
            for location in ("../secret", "secret", "a/../../secret", "a/secret", "/etc/passwd", "a/1-1-x/y"):
                with pytest.raises(StateCorruptError, match="not a place"):
                    shelf.get(LocatedState(location, 3, state.digest))
            return
        case "huge":
            state = LocatedState(state.location, 1 << 60, state.digest)
    with pytest.raises((StateCorruptError, StateNotFoundError)) as raised:
        shelf.get(state)
    assert is_damage(raised.value)


def test_what_no_job_checkpoint_names_goes_from_the_shelf(rigs: Callable[..., Rig]) -> None:
    """State by location of superseded and abandoned attempts is removed; what is retained stays."""
    rig = rigs("a", retain=2)
    store, state = MemoryBlobStore(), [b""]
    shelf = BlobShelf(store)
    keeper = BytesKeeper(Placement("a", shelf, 0), lambda: state[0], lambda data: state.__setitem__(0, data or b""))
    rig.join("a", keeper)
    rig.run()
    for number in range(5):
        state[0] = b"state %d" % number
        rig.checkpoint()
    rig.until(lambda: len(store.objects) == 2)
    assert {data for data, _ in store.objects.values()} == {b"state 3", b"state 4"}
