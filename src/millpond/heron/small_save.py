"""
A small save in the form in which Heron's peers write it, read without a parser. Pure.

That is the instance, then the checkpoint: its id, then its state if there is one; each field once, nothing else, and
no length of more than three bytes. Whatever is not of this form, be it right or wrong, is left to the parser, so this
file refuses nothing. An instance saves again at each checkpoint, so what its bytes mean is remembered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from millpond.errors import FormatError
from millpond.heron import answers, messages
from millpond.heron.framing import heads_of
from millpond.heron.messages import SYSTEM, full_name, text

_HEADS = heads_of(full_name("SaveInstanceStateRequest"))
_LONGEST_INSTANCE = 512
_INSTANCE, _CHECKPOINT, _ID, _STATE = 0x0A, 0x12, 0x0A, 0x12
"""Tags of fields 1 and 2 of bytes."""


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
    # A field that ends where it should not is not followed by what has to follow, so only the last end is compared.
    try:
        at, stop = _content(data, at, _INSTANCE)
        instance = _instance(data[at:stop]) if stop - at <= _LONGEST_INSTANCE else None
        at, stop = _content(data, stop, _CHECKPOINT)
        if instance is None or stop != end:
            return None
        at, stop = _content(data, at, _ID)
        checkpoint, state = data[at:stop].decode(), None
        if stop < end:
            at, stop = _content(data, stop, _STATE)
            state = data[at:stop]
    except (IndexError, _OtherFormError, UnicodeDecodeError):
        return None
    return SmallSave(total, reqid, instance, checkpoint, state) if stop == end else None


def _content(data: bytes, at: int, tag: int) -> tuple[int, int]:
    """Give where the content of the field at *at* begins and ends; IndexError, _OtherFormError: there is none."""
    if data[at] != tag:
        raise _OtherFormError
    at += 2
    if (size := data[at - 1]) < 0x80:
        return at, at + size
    at += 1
    if (byte := data[at - 1]) < 0x80:
        return at, at + size - 0x80 + (byte << 7)
    at += 1
    if (last := data[at - 1]) < 0x80:
        return at, at + size - 0x80 + (byte - 0x80 << 7) + (last << 14)
    raise _OtherFormError


class _OtherFormError(Exception):
    """A field is not what has to be there."""


@lru_cache(maxsize=1024)
def _instance(data: bytes) -> KnownInstance | None:
    try:
        found = messages.parse("Instance", data, SYSTEM)
        return KnownInstance(text(found.info.component_name), found.info.component_index, found.SerializeToString())
    except FormatError:
        return None
