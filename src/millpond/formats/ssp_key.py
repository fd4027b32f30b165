"""Samza's flat key of an input, ``system.stream.partition``: what it can hold, and how we read it."""

from __future__ import annotations

from millpond.checkpoint import SystemStreamPartition
from millpond.errors import FormatError
from millpond.formats.samza_text import parse_integer

_INT32 = 1 << 31


def plain_key(ssp: SystemStreamPartition) -> str | None:
    """Give Samza's key if Samza reads it back as the same input (no dots, no key bucket, 32 bits), else None."""
    partition = ssp.partition
    key = f"{ssp.system}.{ssp.stream}.{partition}"
    if ssp.key_bucket == -1 and key.count(".") == 2 and -_INT32 <= partition < _INT32:
        return key
    return None


def format_key(ssp: SystemStreamPartition) -> str:
    """Give Samza's key. It loses the key bucket, and is ambiguous where a name has dots."""
    return f"{ssp.system}.{ssp.stream}.{ssp.partition}"


def parse_key(key: str) -> SystemStreamPartition:
    """
    Read Samza's key: the system is before the first dot, the partition behind the last, the stream all between.

    Samza takes the second and third part instead, and so fails on a dotted stream, or reads another one.

    Raises:
        FormatError: There are fewer than three parts, or the last is no 32-bit number.
    """
    parts = key.split(".")
    if len(parts) == 3 and len(parts[2]) < 10 and parts[2].isdecimal():
        return SystemStreamPartition(parts[0], parts[1], int(parts[2]))
    system, first, rest = key.partition(".")
    stream, last, partition = rest.rpartition(".")
    if not (first and last):
        raise FormatError(f"not an input's key: {key[:200]!r} (expected system.stream.partition)")
    return SystemStreamPartition(system, stream, parse_integer(partition, 32, f"the partition in {key[:200]!r}"))
