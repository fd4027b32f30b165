"""
Heron's messages: the schema in ``proto/``, compiled, and loaded into a pool of its own.

``heron.binpb`` is what ``protoc`` makes of the ``.proto`` files beside it. A pool of its own lets a process use another
copy of Heron's schema too. The classes are protobuf's and have no types: what leaves this package is bytes and values.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from millpond.errors import FormatError

__all__ = [
    "NOTOK",
    "OK",
    "PACKAGE",
    "SYSTEM",
    "DecodeError",
    "NotThatMessageError",
    "full_name",
    "message",
    "parse",
    "schema",
    "text",
]

PACKAGE, SYSTEM = "heron.proto.ckptmgr", "heron.proto.system"
OK, NOTOK = 1, 2


class NotThatMessageError(FormatError):
    """Bytes are not the message that their type name says."""


def schema() -> bytes:
    """Give the compiled schema, a serialized ``FileDescriptorSet``."""
    return files("millpond.heron").joinpath("proto/heron.binpb").read_bytes()


@cache
def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(schema()).file:
        pool.Add(file)
    return pool


@cache
def message(name: str, package: str = PACKAGE) -> Any:
    """Give the class of the message *name*."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{package}.{name}"))


def full_name(name: str) -> str:
    """Give the name that travels in a packet."""
    return f"{PACKAGE}.{name}"


def parse(name: str, body: bytes | memoryview, package: str = PACKAGE) -> Any:
    """
    Give the message *name* that *body* holds.

    Raises:
        NotThatMessageError: It does not parse, or lacks a required field.
    """
    try:
        found = message(name, package).FromString(bytes(body))
    except DecodeError as error:
        raise NotThatMessageError(f"{len(body):,} bytes are no {name}: {error}") from None
    if not found.IsInitialized():
        raise NotThatMessageError(f"a {name} lacks {', '.join(found.FindInitializationErrors())}")
    return found


def text(value: object) -> str:
    """
    Give a string field's value; Python's protobuf gives bytes for one that is no UTF-8.

    Raises:
        NotThatMessageError: It is no UTF-8.
    """
    if isinstance(value, str):
        return value
    raise NotThatMessageError(f"a text is no UTF-8: {value!r:.80}")
