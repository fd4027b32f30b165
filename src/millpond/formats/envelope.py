r"""
One header line in front of a body: what it is, its version, its length and its digest.

``<magic> <version> <kind> <length> blake3:<64 hex>\n<body>``, all ASCII up to the line's end. The digest is over what
is before it in the line (with the space) and the body, so a changed kind or length shows too.
"""

from __future__ import annotations

import re

from attrs import frozen

from millpond.errors import FormatError, StateCorruptError
from millpond.formats.digest import digest_bytes

MAX_SIZE = 64 << 20
"""The largest body in bytes; more is refused before it is parsed."""

_LINE = re.compile(rb"([0-9]{1,9}) ([a-z0-9-]{1,32}) ([0-9]{1,12}) (blake3:[0-9a-f]{64})\n")
_NUMBER = re.compile(rb"([0-9]{1,9}) ")
_LONGEST_LINE = 192


@frozen
class Sealed:
    """
    A body whose header line held.

    Attributes:
        version: Of the format; from 1.
        kind: What the body is, in the format's words.
        body: The bytes behind the line.
    """

    version: int
    kind: str
    body: bytes


def seal(magic: str, version: int, kind: str, body: bytes) -> bytes:
    """
    Put the header line in front of *body*.

    Raises:
        FormatError: The body is larger than ``MAX_SIZE``.
    """
    if len(body) > MAX_SIZE:
        raise FormatError(f"a {magic} of {len(body)} bytes is over the limit of {MAX_SIZE}")
    head = f"{magic} {version} {kind} {len(body)} ".encode("ascii")
    return head + _digest(head, body).encode("ascii") + b"\n" + body


def unseal(magic: str, newest: int, data: bytes) -> Sealed:
    """
    Check the header line of *data* and give what is behind it.

    Raises:
        StateCorruptError: It is empty, cut, has bytes too many, or its digest is another.
        FormatError: It is not a *magic*, is of a version above *newest*, or is over ``MAX_SIZE``.
    """
    if len(data) > MAX_SIZE + _LONGEST_LINE:
        raise FormatError(f"a {magic} of {len(data)} bytes is over the limit of {MAX_SIZE}")
    prefix = f"{magic} ".encode("ascii")
    _check_prefix(magic, prefix, data)
    match = _LINE.match(data, len(prefix))
    _check_version(magic, newest, data, len(prefix))
    if match is None:
        raise StateCorruptError(f"the header line of this {magic} is damaged or cut: {data[:_LONGEST_LINE]!r}")
    body = data[match.end() :]
    if len(body) != int(match[3]):
        raise StateCorruptError(
            f"this {magic} has {len(body)} bytes behind its header line, which says {int(match[3])}"
        )
    if _digest(data[: match.start(4)], body) != match[4].decode("ascii"):
        raise StateCorruptError(f"this {magic} is damaged: its content has not the digest that its header line says")
    return Sealed(int(match[1]), match[2].decode("ascii"), body)


def _digest(head: bytes, body: bytes) -> str:
    return digest_bytes(head + body)


def _check_prefix(magic: str, prefix: bytes, data: bytes) -> None:
    if data.startswith(prefix):
        return
    if prefix.startswith(data):
        raise StateCorruptError(f"this {magic} is cut: only {len(data)} bytes are left")
    raise FormatError(f"not a {magic}: it begins with {data[:24]!r}")


def _check_version(magic: str, newest: int, data: bytes, start: int) -> None:
    match = _NUMBER.match(data, start)
    if match is not None and int(match[1]) > newest:
        raise FormatError(
            f"this {magic} has version {int(match[1])}, and this release reads up to {newest}: use a newer Millpond"
        )
    if match is not None and int(match[1]) == 0:
        raise StateCorruptError(f"this {magic} has version 0, which never was")
