"""
A body with a large state, taken apart while it arrives: the state to one side, the rest to the other. Pure.

A save, and the answer to a get, are parsed whole only where they are small. Of a large one nothing is held but the
instance and the names; whoever feeds it gets the state's pieces back. Fields may come in any order, and the last state
counts, as protobuf wants it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import define, frozen

from millpond.heron import messages
from millpond.heron.fields import LONGEST_VARINT, VARINT, Tag, bytes_field, read_tag, read_varint
from millpond.heron.messages import NotThatMessageError

LARGEST_REST = 1 << 20
"""What such a message may hold beside its state."""

SAVE, GOT = "SaveInstanceStateRequest", "GetInstanceStateResponse"
_CHECKPOINTS = {SAVE: 2, GOT: 4}
"""The number of the field that the checkpoint is in."""

_STATE = 2


@frozen
class StateBegins:
    """A state of *size* bytes follows; what came before it of another state is void."""

    size: int


@frozen
class StatePiece:
    """Some bytes of the state: a view of what was fed."""

    data: memoryview


Part = StateBegins | StatePiece


@define
class _Level:
    """A message that is being read: where its bytes end, and what is kept of it."""

    left: int
    kept: bytearray


class StateBody:
    """Takes the pieces of one body of *size* bytes, in order; *name* is SAVE or GOT."""

    def __init__(self, size: int, name: str = SAVE) -> None:
        """Begin."""
        self._name, self._checkpoint = name, _CHECKPOINTS[name]
        self._outer = _Level(size, bytearray())
        self._inner: _Level | None = None
        self._waiting = bytearray()
        self._state_left = 0
        self._copy_left = 0
        self._checkpoints = bytearray()

    def feed(self, data: bytes) -> Iterator[Part]:
        """
        Give what *data* says of the state.

        Raises:
            NotThatMessageError: It is no such message, or holds too much beside its state.
        """
        view = memoryview(data)
        if self._waiting:
            self._waiting += view
            view, self._waiting = memoryview(bytes(self._waiting)), bytearray()
        at = 0
        while at < len(view):
            took, part = self._step(view[at:])
            if part is not None:
                yield part
            if not took:
                self._waiting = bytearray(view[at:])
                return
            at += took

    def message(self) -> Any:
        """
        Give the whole message but its state, once all was fed.

        Raises:
            NotThatMessageError: It is none.
        """
        if self._outer.left or self._inner is not None or self._waiting:
            raise NotThatMessageError("a message ends within a field")
        rest = bytes(self._outer.kept) + bytes(self._checkpoints)
        return messages.parse(self._name, rest)

    @property
    def _level(self) -> _Level:
        return self._inner or self._outer

    def _step(self, view: memoryview) -> tuple[int, Part | None]:
        """Take the next piece of *view*; 0 where more is needed first."""
        if self._state_left:
            size = min(self._state_left, len(view))
            self._state_left -= size
            self._pass(size)
            return size, StatePiece(view[:size])
        if self._copy_left:
            size = min(self._copy_left, len(view))
            self._copy_left -= size
            self._keep(view[:size])
            return size, None
        tag = read_tag(view, 0)
        if tag is None:
            return 0, None
        return self._begin_field(tag, view)

    def _begin_field(self, tag: Tag, view: memoryview) -> tuple[int, Part | None]:
        if tag.kind == VARINT:
            number = read_varint(view[: tag.end + LONGEST_VARINT], tag.end)
            if number is None:
                return 0, None
            self._keep(view[: number[1]])
            return number[1], None
        if tag.end + tag.size > self._level.left:
            raise NotThatMessageError("a field of a message is longer than its message")
        if self._inner is None and tag.number == self._checkpoint:
            self._pass(tag.end)
            self._inner = _Level(tag.size, bytearray())
            self._end_inner()
            return tag.end, None
        if self._inner is not None and tag.number == _STATE:
            self._state_left = tag.size
            self._pass(tag.end)
            return tag.end, StateBegins(tag.size)
        self._copy_left = tag.size
        self._keep(view[: tag.end])
        return tag.end, None

    def _keep(self, piece: memoryview) -> None:
        level = self._level
        if len(self._outer.kept) + len(self._checkpoints) + len(level.kept) + len(piece) > LARGEST_REST:
            raise NotThatMessageError(f"a {self._name} holds more than {LARGEST_REST:,} bytes beside its state")
        level.kept += piece
        self._pass(len(piece))

    def _pass(self, size: int) -> None:
        """Count *size* bytes of the message, and of the one that it is in."""
        self._outer.left -= size
        if self._inner is not None:
            self._inner.left -= size
        if self._level.left < 0:
            raise NotThatMessageError("a field of a message is longer than its message")
        self._end_inner()

    def _end_inner(self) -> None:
        if self._inner is not None and not self._inner.left and not self._copy_left and not self._state_left:
            self._checkpoints += bytes_field(self._checkpoint, bytes(self._inner.kept))
            self._inner = None
