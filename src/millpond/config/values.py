"""Values as operators write them: durations and sizes with their units, and text from flat sources."""

from __future__ import annotations

import re
from datetime import timedelta

from millpond.spi import Size

HIDDEN = "***"
"""What is shown in place of a secret."""


class WrongValueError(ValueError):
    """A value that is not what its key wants; the text is fit for the operator, and never shows the value itself."""


class FlatText(str):
    """Text from a source that knows nothing else, where a boolean, a number or a list is written as text too."""

    __slots__ = ()


_QUANTITY = re.compile(r"\s*([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*([A-Za-z]+)\s*", re.ASCII)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_LARGEST_SIZE = 1 << 62


def parse_duration(text: str) -> timedelta:
    """
    Read ``"250ms"``, ``"10s"``, ``"5m"``, ``"2h"``, ``"7d"``, or several of them: ``"1h30m"``.

    Raises:
        WrongValueError: It is something else; the message is fit for the person who wrote it.
    """
    total, place = 0.0, 0
    while match := _QUANTITY.match(text, place):
        if match[2] not in _SECONDS:
            break
        total += float(match[1]) * _SECONDS[match[2]]
        place = match.end()
    if place == 0 or place != len(text):
        raise WrongValueError('expected a duration with a unit (us, ms, s, m, h, d), such as "10s" or "5m"')
    try:
        return timedelta(seconds=total)
    except OverflowError:
        raise WrongValueError("a duration of more than a million years") from None


def parse_size(text: str) -> Size:
    """
    Read ``"512B"``, ``"64MiB"``, ``"1.5GiB"``, ``"10MB"`` as a number of bytes.

    Raises:
        WrongValueError: It is something else; the message is fit for the person who wrote it.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in _BYTES:
        raise WrongValueError('expected a size with a unit (B, KiB, MiB, GiB, TiB, kB, MB, GB), such as "64MiB"')
    size = round(float(match[1]) * _BYTES[match[2]]) if "." in match[1] else int(match[1]) * _BYTES[match[2]]
    if size > _LARGEST_SIZE:
        raise WrongValueError("a size beyond what any disk holds")
    return Size(size)


def show_duration(duration: timedelta) -> str:
    """Write *duration* as :func:`parse_duration` reads it, in its largest whole unit."""
    micros = duration // timedelta(microseconds=1)
    for unit, length in (("d", 86400 * 10**6), ("h", 3600 * 10**6), ("m", 60 * 10**6), ("s", 10**6), ("ms", 1000)):
        if micros and micros % length == 0:
            return f"{micros // length}{unit}"
    return f"{micros}us" if micros else "0s"


def show_size(size: int) -> str:
    """Write *size* as :func:`parse_size` reads it, in its largest whole unit."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"
