"""Sizes as people write them: a number of bytes, or text such as ``"64MiB"``."""

from __future__ import annotations

import re
from typing import TypeGuard

_UNITS = {"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30}
_TEXT = re.compile(r"\s*([0-9]+)\s*([a-zA-Z]*)\s*", re.ASCII)
_LIMIT = 1 << 62


def parse_size(value: object) -> int:
    """
    Give *value* in bytes. As in RocksDB's own tools, ``K``, ``KB`` and ``KiB`` are all 1,024.

    Raises:
        ValueError: It is neither a whole number that is not negative, nor one with a unit.
    """
    if is_whole(value):
        size = value
    else:
        size = _from_text(value)
    if not 0 <= size < _LIMIT:
        raise ValueError(f"a size of {value!r} is out of range")
    return size


def is_whole(value: object) -> TypeGuard[int]:
    """Tell whether *value* is a whole number; ``True`` is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _from_text(text: object) -> int:
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    shift = None if match is None else _UNITS.get(match[2].lower())
    if match is None or shift is None or len(match[1]) > 19:
        raise ValueError(f"expected a size such as 67108864 or '64MiB', not {text!r}")
    return int(match[1]) << shift
