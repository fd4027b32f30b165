"""
A stored state: Heron's own bytes, with a seal that shows every changed, missing or misplaced byte. Pure.

Heron stores a serialized ``InstanceStateCheckpoint`` and nothing else. So do we, with two fields that Heron does not
know and skips: the first byte says that a seal has to follow, and the seal is the BLAKE3 digest of all before it and of
the instance that it belongs to. In between stand the state and the id. A parser of Heron's reads our files, and we read
Heron's, which have no seal, where the operator says that there are some.

The state comes before the id, so that a writer needs to know no name before the last byte has arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from blake3 import blake3

from millpond.errors import StateCorruptError
from millpond.heron import messages
from millpond.heron.fields import bytes_field, bytes_head, fields, read_tag
from millpond.heron.messages import NotThatMessageError
from millpond.heron.names import StateKey

LEAD = bytes_field(15000, b"\x01")
_SEAL = bytes_head(15001, 32)
SEAL_SIZE = len(_SEAL) + 32
LONGEST_REST = 64 << 10
"""More than this is never in a file beside its state."""

FIRST_READ = 256 << 10
"""A reader's first piece has at least so many bytes, or is the whole file."""

_ID, _STATE = 1, 2


class Seal(NamedTuple):
    """
    What is known of a state that was written or verified.

    Attributes:
        size: The state's, in bytes; None where there is no state, which is not the same as an empty one.
        digest: Of the stored bytes, in hex; empty where they have no seal.
    """

    size: int | None
    digest: str


@lru_cache(maxsize=1024)
def lead(size: int | None) -> bytes:
    """Give what stands before a state of *size* bytes; None: there is no state."""
    return LEAD if size is None else LEAD + bytes_head(_STATE, size)


def tail(key: StateKey, hasher: Any) -> bytes:
    """Give what stands behind the state of *key*; *hasher* has taken all before and takes this too."""
    id = _id(key.checkpoint)
    hasher.update(id)
    hasher.update(_place(key.component, key.index))
    return id + _SEAL + bytes(hasher.digest())


def seal(key: StateKey, state: bytes | None) -> tuple[bytes, Seal]:
    """Give the whole content of the file of a small state, and what is known of it then."""
    size = None if state is None else len(state)
    content = b"%b%b%b" % (lead(size), state or b"", _id(key.checkpoint))
    digest = blake3(content + _place(key.component, key.index)).digest()
    return b"%b%b%b" % (content, _SEAL, digest), Seal(size, digest.hex())


def peek(first: bytes, last: bytes) -> Seal | None:
    """Give what the first and last ``SEAL_SIZE`` bytes of a file claim, unverified; None if it has no seal."""
    if not first.startswith(LEAD) or last[-SEAL_SIZE:-32] != _SEAL:
        return None
    tag = read_tag(first, len(LEAD))
    return Seal(tag.size if tag is not None and tag.number == _STATE else None, digest_in(last))


def digest_in(stored_tail: bytes) -> str:
    """Give the digest that the end of a sealed file holds."""
    return stored_tail[-32:].hex()


@lru_cache(maxsize=64)
def _id(checkpoint: str) -> bytes:
    return bytes_field(_ID, checkpoint.encode())


@lru_cache(maxsize=1024)
def _place(component: str, index: int) -> bytes:
    return b"\0%b\0%d" % (component.encode(), index)


class Unsealing:
    """
    Takes a stored file piece by piece, gives the state's pieces, and says in the end whether all of it held.

    Attributes:
        size: The state's, in bytes, once the first piece was taken; None where there is no state.
        start: Where the state begins in the file.
    """

    def __init__(self, key: StateKey, where: str, *, unsealed_too: bool) -> None:
        """Begin; *where* names the file in messages, *unsealed_too* accepts one that Heron wrote."""
        self.size: int | None = None
        self.start = 0
        self._key, self._where, self._unsealed_too = key, where, unsealed_too
        self._hasher = blake3()
        self._sealed = False
        self._begun = False
        self._left = 0
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """
        Give the pieces of the state that *data* holds.

        Raises:
            StateCorruptError: It is no stored state.
        """
        view = memoryview(data)
        if not self._begun:
            self._begun = True
            view = view[self._begin(data) :]
        if self._left and view:
            piece = view[: self._left]
            self._hasher.update(piece)
            self._left -= len(piece)
            view = view[len(piece) :]
            yield piece
        self._rest += view
        if len(self._rest) > LONGEST_REST:
            raise self._corrupt(f"it has more than {LONGEST_REST:,} bytes behind its state")

    def end(self) -> Seal:
        """
        Say what was read, when all of the file was fed.

        Raises:
            StateCorruptError: The file is not what was written for this key.
        """
        if self._left or not self._begun:
            raise self._corrupt("it is cut")
        return self._end_sealed() if self._sealed else self._end_unsealed()

    def _begin(self, data: bytes) -> int:
        """Read what is before the state; give where the state begins."""
        self._sealed = data.startswith(LEAD)
        if not self._sealed and not self._unsealed_too:
            raise self._corrupt("it has no seal, and nothing says that Heron wrote it")
        at = len(LEAD) if self._sealed else 0
        try:
            while at < len(data):
                tag = read_tag(data, at)
                if tag is None:
                    break
                if tag.number == _STATE:
                    self.size = self._left = tag.size
                    at = tag.end
                    break
                if self._sealed or tag.end + tag.size > len(data):
                    break
                self._rest += data[at : tag.end + tag.size]
                at = tag.end + tag.size
        except NotThatMessageError as error:
            raise self._corrupt(str(error)) from None
        self._hasher.update(data[:at])
        self.start = at
        return at

    def _end_sealed(self) -> Seal:
        rest = bytes(self._rest)
        if len(rest) < SEAL_SIZE or rest[-SEAL_SIZE:-32] != _SEAL:
            raise self._corrupt("its seal is missing: it is cut, or something was added")
        self._hasher.update(rest[:-SEAL_SIZE])
        self._hasher.update(_place(self._key.component, self._key.index))
        if bytes(self._hasher.digest()) != rest[-32:]:
            raise self._corrupt("its content has not the digest of its seal")
        self._check_id(rest[:-SEAL_SIZE])
        return Seal(self.size, digest_in(rest))

    def _end_unsealed(self) -> Seal:
        if not self._rest:
            raise self._corrupt("it is empty, or has no id")
        try:
            if any(number == _STATE for number, *_ in fields(self._rest)):
                raise self._corrupt("it holds two states")
        except NotThatMessageError as error:
            raise self._corrupt(str(error)) from None
        self._check_id(bytes(self._rest))
        return Seal(self.size, "")

    def _check_id(self, rest: bytes) -> None:
        try:
            found = messages.text(messages.parse("InstanceStateCheckpoint", rest).checkpoint_id)
        except NotThatMessageError as error:
            raise self._corrupt(str(error)) from None
        if found != self._key.checkpoint:
            raise self._corrupt(f"it belongs to checkpoint {found!r}")

    def _corrupt(self, what: str) -> StateCorruptError:
        return StateCorruptError(f"the state {self._key} in {self._where} cannot be used: {what}")


def unseal(data: bytes, key: StateKey, where: str, *, unsealed_too: bool) -> tuple[bytes | None, Seal]:
    """
    Give the state in the whole content of a file.

    Raises:
        StateCorruptError: The file is not what was written for *key*.
    """
    reading = Unsealing(key, where, unsealed_too=unsealed_too)
    state = b"".join(reading.feed(data))
    found = reading.end()
    return (None if found.size is None else state), found
