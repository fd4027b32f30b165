"""What one member puts into a job checkpoint: who it is, and where its state is."""

from __future__ import annotations

from typing import Annotated

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Place(msgspec.Struct, frozen=True):
    """
    A member's place in the topology, compared at each restore: state of one place fits no other.

    Attributes:
        component: The name of its component, e.g. ``"count"``.
        index: Its number within the component, from 0.
        parallelism: How many members the component has.
        keys: The first key group that it owns and the first that it does not; None: the component is not keyed.
    """

    component: str
    index: _Count = 0
    parallelism: _Count = 1
    keys: tuple[_Count, _Count] | None = None

    def __str__(self) -> str:
        keys = "" if self.keys is None else f", key groups {self.keys[0]} to {self.keys[1] - 1}"
        return f"{self.component} {self.index} of {self.parallelism}{keys}"


class NoState(msgspec.Struct, frozen=True, tag="none"):
    """The member keeps nothing; it counts all the same."""


class TaskState(msgspec.Struct, frozen=True, tag="task"):
    """
    The state is a checkpoint of a Millpond task.

    Attributes:
        checkpoint: Its id, ``<millis>-<nanos>``.
    """

    checkpoint: str


class InlineState(msgspec.Struct, frozen=True, tag="inline"):
    """
    The state itself, small.

    Attributes:
        data: Its bytes.
    """

    data: bytes


class LocatedState(msgspec.Struct, frozen=True, tag="located"):
    """
    The state is elsewhere.

    Attributes:
        location: Where, in the words of the shelf that holds it; relative to its root.
        size: In bytes.
        digest: ``"blake3:<hex>"`` of it.
    """

    location: str
    size: _Count
    digest: str


State = NoState | TaskState | InlineState | LocatedState
"""Inline or by location: the coordinator carries it and never looks inside."""


class MemberState(msgspec.Struct, frozen=True):
    """
    One member's part of a job checkpoint.

    Attributes:
        place: Where in the topology it belongs.
        state: What it saved.
    """

    place: Place
    state: State
