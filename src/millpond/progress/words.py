"""Sizes, durations and counts as people read them."""

from __future__ import annotations

from collections.abc import Iterable

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(size: float) -> str:
    """Write *size*, in bytes: ``512 B``, ``1.5 KiB``, ``240 MiB``."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in _UNITS:
        size /= 1024
        if size < 999.5 or unit == _UNITS[-1]:
            break
    return f"{size:.1f} {unit}" if size < 99.95 else f"{size:,.0f} {unit}"


def duration_text(seconds: float) -> str:
    """Write *seconds*: ``80 µs``, ``12 ms``, ``3.4 s``, ``2 min 5 s``, ``1 h 3 min``, ``2 d 4 h``."""
    if seconds < 0:
        return "-" + duration_text(-seconds)
    if seconds < 0.0009995:
        return "0 s" if seconds == 0 else f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    return _long_text(round(seconds))


def _long_text(seconds: int) -> str:
    """Write a minute or more in its two largest units."""
    for larger, length, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= length:
            rest = seconds % length // part
            return f"{seconds // length} {larger} {rest} {smaller}" if rest else f"{seconds // length} {larger}"
    return f"{seconds} s"


def count_text(count: int, one: str, many: str = "") -> str:
    """Write *count* things: ``1 record``, ``1,234 records``; *many* where the plural is not *one* with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Iterable[str], most: int = 8) -> str:
    """Write *names* with commas; beyond *most* only how many more there are."""
    shown = list(names)
    tail = f" and {len(shown) - most:,} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + tail


def error_text(error: BaseException) -> str:
    """Write *error* on one line: its text, or its class where it has none."""
    text = " ".join(str(error).split())
    if not text:
        return type(error).__name__
    return text if type(error).__module__.startswith("millpond") else f"{type(error).__name__}: {text}"
