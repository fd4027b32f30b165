"""
The marker of a store that an object-store backend gives, and the names of data objects.

A marker is ``1:<object>:<start>:<length>:<digest>``: the place of the store's backup manifest in an object, and the
digest of its bytes. ``1`` is the version. An object's name is ``<epoch>-<checkpoint id>-<16 hex digits>``. Neither
holds a bucket, a host or a folder: a task's data can be copied to another place as it is.
"""

from __future__ import annotations

import re
import secrets

from attrs import frozen

from millpond.checkpoint import CheckpointId
from millpond.errors import FormatError
from millpond.formats.envelope import MAX_SIZE

_OBJECT = r"(?:0|[1-9][0-9]{0,17})-(?:-?[0-9]{1,19}-[0-9]{1,19})-[0-9a-f]{16}"
_NAME = re.compile(r"([0-9]{1,18})-(-?[0-9]{1,19}-[0-9]{1,19})-([0-9a-f]{16})", re.ASCII)
_MARKER = re.compile(rf"1:({_OBJECT}):([0-9]{{1,15}}):([0-9]{{1,9}}):((?:blake3|sha256):[0-9a-f]{{64}})", re.ASCII)
_VERSION = re.compile(r"([1-9][0-9]{0,8}):.*", re.ASCII | re.DOTALL)
_LONGEST_MANIFEST = MAX_SIZE + 4096


@frozen
class ObjectName:
    """
    The name of one data object; never used twice.

    Attributes:
        epoch: Of the claim under which it was uploaded.
        id: Of the commit that uploaded it.
        random: 64 random bits in lower-case hex.
    """

    epoch: int
    id: CheckpointId
    random: str

    @classmethod
    def new(cls, epoch: int, id: CheckpointId) -> ObjectName:
        """Make a name that nobody has."""
        return cls(epoch, id, secrets.token_hex(8))

    @classmethod
    def parse(cls, text: str) -> ObjectName | None:
        """Read *text*; None if it is no object's name, and so nothing that could lead out of a folder."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        try:
            name = cls(int(match[1]), CheckpointId.parse(match[2]), match[3])
        except ValueError:
            return None
        return name if str(name) == text else None

    def __str__(self) -> str:
        return f"{self.epoch}-{self.id}-{self.random}"


def check_object(text: str) -> str:
    """Give *text* back if it is an object's name; FormatError if not."""
    if ObjectName.parse(text) is None:
        raise FormatError(f"not the name of a data object: {text[:200]!r}")
    return text


@frozen
class BlobMarker:
    """
    Where a store's backup manifest is.

    Attributes:
        object: The name of the object that holds it.
        start: Its first byte there.
        length: Its bytes.
        digest: Of its bytes.
    """

    object: str
    start: int
    length: int
    digest: str

    def __str__(self) -> str:
        return f"1:{self.object}:{self.start}:{self.length}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> BlobMarker:
        """
        Read a marker.

        Raises:
            FormatError: It is none, of a newer version, or of a manifest larger than any.
        """
        match = _MARKER.fullmatch(text)
        if match is None:
            raise FormatError(_why_not(text))
        marker = cls(check_object(match[1]), int(match[2]), int(match[3]), match[4])
        if not 0 < marker.length <= _LONGEST_MANIFEST:
            raise FormatError(f"the marker {text!r} names a manifest of {marker.length} bytes, which none has")
        return marker


def _why_not(text: str) -> str:
    version = _VERSION.fullmatch(text)
    if version is not None and version[1] != "1":
        return f"the marker {text[:80]!r} is of version {version[1]}, and this release reads 1: use a newer Millpond"
    return f"{text[:80]!r} is no marker of an object-store backend"
