"""Answers as packets: every required field filled, whatever happened. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from millpond.heron import messages
from millpond.heron.fetched import Fetched
from millpond.heron.fields import bytes_field, bytes_head, varint
from millpond.heron.framing import encode, encode_head, heads_of
from millpond.heron.messages import NOTOK, OK, full_name, message

_CHECKPOINT = 4
_ID, _STATE = 1, 2


@frozen
class Streamed:
    """
    An answer whose state is sent piece by piece.

    Attributes:
        head: The packet up to the state.
        fetched: The state; whoever sends it closes it.
    """

    head: bytes
    fetched: Fetched


Answer = bytes | Streamed

Refuse = Callable[[str], bytes]
"""From a reason to a whole NOTOK packet."""

_RESPONSES = {
    name: name.removesuffix("Request") + "Response"
    for name in (
        "RegisterTManagerRequest", "RegisterTMasterRequest", "RegisterStMgrRequest", "SaveInstanceStateRequest",
        "GetInstanceStateRequest", "CleanStatefulCheckpointRequest",
    )
}  # fmt: skip
REQUESTS = frozenset(_RESPONSES)
"""The names of all requests that are served."""


_SAVED = heads_of(full_name("SaveInstanceStateResponse"))
_OK_STATUS = bytes_field(1, b"\x08\x01\x12\x00")
"""A status of OK with an empty message."""


def response_to(request: str) -> str:
    """Give the full name of the answer to *request*."""
    return full_name(_RESPONSES[request])


def registered(request: str, reqid: bytes, refusal: str = "") -> bytes:
    """Answer a registration; Heron's success has no text, not even an empty one."""
    answer = message(_RESPONSES[request])()
    answer.status.status = NOTOK if refusal else OK
    if refusal:
        answer.status.message = refusal
    return encode(response_to(request), reqid, answer.SerializeToString())


def cleaned(reqid: bytes, ids: Sequence[str] = (), refusal: str = "") -> bytes:
    """Answer a clean; *ids* are what went."""
    answer = message("CleanStatefulCheckpointResponse")()
    _fill(answer.status, refusal)
    answer.cleaned_checkpoint_ids.extend(ids)
    return encode(response_to("CleanStatefulCheckpointRequest"), reqid, answer.SerializeToString())


def saved(reqid: bytes, about: bytes, checkpoint: str) -> bytes:
    """Answer a save with OK; *about* is its instance. Written by hand, since it is what a server does most."""
    id = checkpoint.encode()
    body = b"%b\x12%b%b\x1a%b%b" % (_OK_STATUS, varint(len(about)), about, varint(len(id)), id)
    return _SAVED.write(reqid, len(body)) + body


def not_saved(reqid: bytes, instance: Any, checkpoint: str, refusal: str) -> bytes:
    """Answer a save that was not carried out."""
    body = _about_state("SaveInstanceStateResponse", instance, checkpoint, refusal).SerializeToString()
    return encode(response_to("SaveInstanceStateRequest"), reqid, body)


def not_fetched(reqid: bytes, instance: Any, checkpoint: str, refusal: str) -> bytes:
    """Answer a get that found nothing: there is no checkpoint in it."""
    body = _about_state("GetInstanceStateResponse", instance, checkpoint, refusal).SerializeToString()
    return encode(response_to("GetInstanceStateRequest"), reqid, body)


def fetched_at(reqid: bytes, instance: Any, checkpoint: str, location: str) -> bytes:
    """Answer a get with the file in which the state lies."""
    answer = _about_state("GetInstanceStateResponse", instance, checkpoint)
    answer.checkpoint.checkpoint_id = checkpoint
    answer.checkpoint.state_location = location
    return encode(response_to("GetInstanceStateRequest"), reqid, answer.SerializeToString())


def fetched(reqid: bytes, instance: Any, checkpoint: str, found: Fetched) -> Answer:
    """Answer a get with a state: at once where it is in memory, else as what is to be streamed."""
    about: bytes = _about_state("GetInstanceStateResponse", instance, checkpoint).SerializeToString()
    inner = bytes_field(_ID, checkpoint.encode())
    size = found.seal.size or 0
    if found.seal.size is not None:
        inner += bytes_head(_STATE, size)
    head = about + bytes_head(_CHECKPOINT, len(inner) + size) + inner
    packet = encode_head(response_to("GetInstanceStateRequest"), reqid, len(head) + size) + head
    if found.data is None:
        return Streamed(packet, found)
    return packet + found.data


def no_state(reqid: bytes, instance: Any) -> bytes:
    """Answer a get of the empty id: a checkpoint with an empty id and an empty state, which begins from nothing."""
    answer = _about_state("GetInstanceStateResponse", instance, "")
    answer.checkpoint.checkpoint_id = ""
    answer.checkpoint.state = b""
    return encode(response_to("GetInstanceStateRequest"), reqid, answer.SerializeToString())


def _about_state(name: str, instance: Any, checkpoint: str, refusal: str = "") -> Any:
    answer = messages.message(name)()
    _fill(answer.status, refusal)
    answer.instance.CopyFrom(instance)
    answer.checkpoint_id = checkpoint
    return answer


def _fill(status: Any, refusal: str) -> None:
    status.status = NOTOK if refusal else OK
    status.message = refusal
