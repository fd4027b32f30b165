"""
A small save in the form in which Heron's peers write it, read without a parser. Pure.

That is the instance, then the checkpoint: its id, then its state if there is one; each field once, nothing else, and
instance and id short. Whatever is not of this form, be it right or wrong, is left to the parser, so this file refuses
nothing. Instances save again at each checkpoint, and a checkpoint has many instances: what their bytes mean is
remembered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from millpond.errors import FormatError
from millpond.heron import answers, messages
from millpond.heron.framing import heads_of
from millpond.heron.messages import SYSTEM, full_name, text

_HEADS = heads_of(full_name("SaveInstanceStateRequest"))
_FIRST, _SECOND = 0x0A, 0x12
"""Tags of fields 1 and 2, of bytes: the instance and the checkpoint, and in the latter the id and the state."""


class KnownInstance(NamedTuple):
    """
    What the bytes of an instance mean.

    Attributes:
        component: Its component.
        index: Its position among those of its component.
        about: All of it, as an answer repeats it.
    """

    component: str
    index: int  # type: ignore[assignment]  # nobody looks for the place of a part in it
    about: bytes


class SmallSave(NamedTuple):
    """
    A whole packet.

    Attributes:
        total: The packet's size.
        reqid: The request's id.
        instance: Whose state it is.
        checkpoint: The checkpoint's id.
        state: None: there is no state.
    """

    total: int
    reqid: bytes
    instance: KnownInstance
    checkpoint: str
    state: bytes | None

    def refuse(self, reason: str) -> bytes:
        """Give the answer where it fails."""
        instance = messages.parse("Instance", self.instance.about, SYSTEM)
        return answers.not_saved(self.reqid, instance, self.checkpoint, reason)


def read(data: bytes, at: int) -> SmallSave | None:
    """Give the small save whose packet begins at *at*; None where none does, or its end is not there."""
    head = _HEADS.read(data, at)
    if head is None:
        return None
    total, reqid, at, end = head
    try:
        stop = at + 2 + data[at + 1]
        instance = _instance(data[at:stop])
        if instance is None or data[stop] != _SECOND:
            return None
        at, size = stop + 2, data[stop + 1]
        if size > 0x7F:
            at, size = _long(data, at, size)
        if at + size != end:
            return None
        stop = at + 2 + data[at + 1]
        checkpoint = _checkpoint(data[at:stop])
        if checkpoint is None:
            return None
        if stop == end:
            return SmallSave(total, reqid, instance, checkpoint, None)
        if data[stop] != _SECOND:
            return None
        at, size = stop + 2, data[stop + 1]
        if size > 0x7F:
            at, size = _long(data, at, size)
    except IndexError:  # some length leads beyond all that there is
        return None
    return SmallSave(total, reqid, instance, checkpoint, data[at:end]) if at + size == end else None


def _long(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Give where a length ends whose *first* byte is before *at*, and the length; -1 for one of more than 3 bytes."""
    second = data[at]
    if second < 0x80:
        return at + 1, first - 0x80 + (second << 7)
    third = data[at + 1]
    return at + 2, first - 0x80 + (second - 0x80 << 7) + (third << 14) if third < 0x80 else -1


def _short(field: bytes) -> bytes | None:
    """Give the content of a whole field 1 that is short; None where it is none."""
    return field[2:] if len(field) > 1 and field[0] == _FIRST and field[1] == len(field) - 2 < 0x80 else None


@lru_cache(maxsize=1024)
def _instance(field: bytes) -> KnownInstance | None:
    try:
        found = messages.parse("Instance", _short(field) or b"", SYSTEM)
        return KnownInstance(text(found.info.component_name), found.info.component_index, found.SerializeToString())
    except FormatError:
        return None


@lru_cache(maxsize=1024)
def _checkpoint(field: bytes) -> str | None:
    content = _short(field)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None
