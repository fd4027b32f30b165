"""Java's ``.properties`` files: lines of ``key=value``, with comments, continued lines and escapes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import frozen

_UNICODE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\(.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SEPARATED = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)


@frozen
class Property:
    """One property and the line on which it begins, from 1."""

    key: str
    value: str
    line: int


def parse_properties(text: str) -> Iterator[Property]:
    """Read *text* as ``java.util.Properties`` does; a key may come more than once."""
    for line, logical in _logical_lines(text):
        match = _SEPARATED.fullmatch(logical)
        if match is not None:
            yield Property(_unescape(match[1]), _unescape(match[2]), line)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join lines that end in an odd number of backslashes; leave out comments and blank lines."""
    begun, start = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not start and (not line or line[0] in "#!"):
            continue
        start = start or number
        begun += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        yield start, begun
        begun, start = "", 0
    if begun:
        yield start, begun


def _unescape(text: str) -> str:
    return _UNICODE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _LETTERS.get(m[2], m[2]), text)
