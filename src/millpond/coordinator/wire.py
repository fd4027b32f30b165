"""
Messages as bytes on a stream: frames with a length, and a shared secret that both ends prove and every frame carries.

::

    frame      4 bytes length, big-endian; then, with a secret, 32 bytes HMAC-SHA256; then JSON
    greeting   server: {"millpond": 1, "nonce": <hex>, "secret": true}
               client: {"nonce": <hex>, "proof": <hex>}     HMAC of "client", both nonces
               server: {"proof": <hex>}                     HMAC of "server", both nonces

Without a secret both proofs are empty. A frame's HMAC is over its direction, its number in that
direction, and its bytes, under a key made of the secret and both nonces: a frame cannot be forged, changed, left out,
repeated or played back. Nothing is hidden: for that, TLS goes underneath.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import struct
from typing import Any, TypeVar

import msgspec

from millpond.coordinator.messages import Order, Report
from millpond.errors import ConfigError, FormatError
from millpond.spi import Secret

PROTOCOL = 1
MAX_FRAME = 4 << 20
"""The largest message in bytes; more is refused before it is read."""
MAX_GREETING = 1024
"""The largest frame before the other end has proved that it knows the secret."""
MIN_SECRET = 16

HEAD = struct.Struct(">I")
_TAG = 32
_NUMBER = struct.Struct(">Q")

T = TypeVar("T")


class ServerHello(msgspec.Struct, frozen=True):
    """What the coordinator says first."""

    millpond: int
    nonce: str
    secret: bool


class ClientHello(msgspec.Struct, frozen=True):
    """The member's answer: its proof."""

    nonce: str
    proof: str


class ServerProof(msgspec.Struct, frozen=True):
    """The coordinator's proof; from here on the stream is open."""

    proof: str


class Addressed(msgspec.Struct, frozen=True):
    """An order on a connection that several members share; *to* is empty where all of them are meant."""

    to: str
    order: Order


_ENCODER = msgspec.json.Encoder()
_REPORT: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)
_ADDRESSED = msgspec.json.Decoder(Addressed)


def to_json(message: Any) -> bytes:
    """Give the JSON of one of our messages; FormatError where a name is no valid Unicode or it is too large."""
    try:
        data = _ENCODER.encode(message)
    except (UnicodeEncodeError, OverflowError) as error:
        raise FormatError(f"a message that cannot be written: {error}") from error
    if len(data) > MAX_FRAME:
        raise FormatError(
            f"a message of {len(data):,} bytes is over the limit of {MAX_FRAME:,}: keep state by location, not inline"
        )
    return data


def report_of(data: bytes) -> Report:
    """Read a report; FormatError if it is none."""
    return _decoded(_REPORT, data)


def addressed_of(data: bytes) -> Addressed:
    """Read an order with its address; FormatError if it is none."""
    return _decoded(_ADDRESSED, data)


def hello_of(data: bytes, kind: type[T]) -> T:
    """Read a greeting of *kind*; FormatError if it is none."""
    return _decoded(msgspec.json.Decoder(kind), data)


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(f"bytes that are no message of this protocol: {error}") from error


def check_secret(secret: Secret | None) -> None:
    """Refuse a secret that is easily guessed."""
    if secret is not None and len(secret.reveal().encode()) < MIN_SECRET:
        raise ConfigError(
            f"the coordinator's secret is shorter than {MIN_SECRET} bytes: make one, e.g. with `openssl rand -hex 32`"
        )


def new_nonce() -> str:
    """Give 128 random bits in hex."""
    return secrets.token_hex(16)


def proof(secret: Secret | None, role: str, server_nonce: str, client_nonce: str) -> str:
    """Give what only somebody who knows *secret* can say in *role*, in this conversation; empty without a secret."""
    if secret is None:
        return ""
    return _mac(secret.reveal().encode(), f"{role} {server_nonce} {client_nonce}".encode()).hex()


def is_proof(given: str, expected: str) -> bool:
    """Compare, in a time that tells nothing."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


class Sealer:
    """One direction of one connection: puts messages into frames, or takes them out. One thread at a time."""

    def __init__(self, secret: Secret | None, direction: str, server_nonce: str, client_nonce: str) -> None:
        """Begin with frame number 0 of *direction* (``"orders"`` or ``"reports"``)."""
        self._key: bytes | None = None
        if secret is not None:
            self._key = _mac(secret.reveal().encode(), f"{direction} {server_nonce} {client_nonce}".encode())
        self._number = 0

    def frame(self, message: bytes) -> bytes:
        """Give the whole frame of *message*."""
        tag = self._tag(message)
        return HEAD.pack(len(tag) + len(message)) + tag + message

    def open(self, content: bytes) -> bytes:
        """
        Give the message of a frame's *content*, which is what follows its length.

        Raises:
            FormatError: It was not sealed by somebody who knows the secret, or not as the next one.
        """
        if self._key is None:
            return content
        tag, message = content[:_TAG], content[_TAG:]
        if not hmac.compare_digest(tag, self._tag(message)):
            raise FormatError("a frame that the shared secret does not confirm")
        return message

    def _tag(self, message: bytes) -> bytes:
        if self._key is None:
            return b""
        number, self._number = self._number, self._number + 1
        return _mac(self._key, _NUMBER.pack(number) + message)


def frame_size(head: bytes, limit: int = MAX_FRAME + _TAG) -> int:
    """Read a frame's length; FormatError if it is 0 or over *limit*, before anything is allocated."""
    size: int = HEAD.unpack(head)[0]
    if not 0 < size <= limit:
        raise FormatError(f"a frame that says it has {size:,} bytes, where 1 to {limit:,} may be")
    return size


async def read_frame(reader: asyncio.StreamReader, limit: int = MAX_FRAME + _TAG) -> bytes:
    """
    Read the next frame; give what follows its length.

    Raises:
        EOFError: The other end has ended the connection.
        FormatError: Its length is 0 or over *limit*; nothing was allocated.
    """
    return await reader.readexactly(frame_size(await reader.readexactly(HEAD.size), limit))
