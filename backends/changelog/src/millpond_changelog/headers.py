"""The one header of a record: which release's rules, whose claim, which commit, and whether it is a fence."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen

from millpond.checkpoint import CheckpointId
from millpond.errors import FormatError

NAME = "millpond"
FENCE_KEY = b"\x00millpond-fence\x00"
"""The key of fences: tombstones, so whoever does not know them deletes what is not there."""

_VERSION = b"1"
_TEXT = re.compile(rb"([0-9]{1,9}) ([0-9]{1,19}) (\S{1,64})")
_FENCE = b"fence"


@frozen
class Stamp:
    """
    What a record's header says.

    Attributes:
        epoch: Of the claim that wrote it.
        id: The commit; None: it is a fence.
    """

    epoch: int
    id: CheckpointId | None


def encode(stamp: Stamp) -> dict[str, bytes]:
    """Give the headers of a record."""
    what = _FENCE if stamp.id is None else str(stamp.id).encode()
    return {NAME: b"%s %d %s" % (_VERSION, stamp.epoch, what)}


def decode(headers: Mapping[str, bytes]) -> Stamp | None:
    """
    Read a record's headers; None: it is not ours, such as one that Samza wrote.

    Raises:
        FormatError: It is of a newer version.
    """
    data = headers.get(NAME)
    if data is None:
        return None
    match = _TEXT.fullmatch(data)
    if match is None:
        raise FormatError(f"the header {NAME} of a record is {data[:80]!r}: it is no stamp")
    if match[1] != _VERSION:
        raise FormatError(f"a record is of version {match[1].decode()}, and this release reads 1: use a newer Millpond")
    if match[3] == _FENCE:
        return Stamp(int(match[2]), None)
    try:
        return Stamp(int(match[2]), CheckpointId.parse(match[3].decode()))
    except ValueError as error:
        raise FormatError(f"the header {NAME} of a record: {error}") from error
