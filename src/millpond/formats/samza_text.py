r"""
Samza's JSON: its escapes when writing, and what its parser takes when reading.

Samza 1.8 writes with Jackson: no white space, fields in a fixed order, everything raw UTF-8 but ``"``, ``\`` and the
characters below U+0020 (``\b \t \n \f \r``, the others as four upper-case hex digits). Its byte writers also escape a
character beyond the BMP as two upper-case surrogates; its text writers leave it raw.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

import msgspec

from millpond.errors import FormatError

MAX_SIZE = 64 << 20
"""The largest text in bytes; more is refused before it is parsed."""

_SPECIAL_FOR_TEXT = re.compile(r'[\x00-\x1f"\\]')
_SPECIAL_FOR_BYTES = re.compile('[\\x00-\\x1f"\\\\\ud800-\udfff\U00010000-\U0010ffff]')
_DIFFERS_FOR_TEXT = re.compile(rb"\\u")
_DIFFERS_FOR_BYTES = re.compile(rb"\\u|[\xf0-\xf4]")
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_WHITE = re.compile(r"[ \t\n\r]*")
_INTEGER = re.compile(r"[+-]?\d{1,4000}")


class Number(str):
    """A JSON number, as its text: Samza tells numbers from strings in some places, and takes both in others."""


def encode_bytes(value: object) -> bytes:
    """
    Give *value* (dicts, lists, strings, whole numbers, None) as Samza's byte writers do.

    Raises:
        FormatError: It holds something else.
    """
    data = _quick(value)
    if data is not None and (_is_plain(data) or _DIFFERS_FOR_BYTES.search(data) is None):
        return data
    return _spell(value, _SPECIAL_FOR_BYTES).encode("utf-8")


def encode_text(value: object) -> str:
    """
    Give *value* as Samza's text writers do.

    Raises:
        FormatError: It holds something that is not JSON. A lone surrogate comes through, as in Java.
    """
    data = _quick(value)
    if data is not None and (_is_plain(data) or _DIFFERS_FOR_TEXT.search(data) is None):
        return data.decode("utf-8")
    return _spell(value, _SPECIAL_FOR_TEXT)


def _quick(value: object) -> bytes | None:
    """Encode in one native call; right unless the result holds what only Jackson writes so."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return None
    except (TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise FormatError(f"this cannot be written as JSON: {error}") from error


def _is_plain(data: bytes) -> bool:
    """Say at once, and ten times as fast as an expression, of what most data are: nobody writes them differently."""
    return data.isascii() and b"\\u" not in data


def _spell(value: object, special: re.Pattern[str]) -> str:
    """Encode piece by piece; *value* is known to be JSON."""
    if isinstance(value, str):
        return f'"{special.sub(_escape, value)}"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{_spell(k, special)}:{_spell(v, special)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_spell(item, special) for item in value) + "]"
    return json.dumps(value)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if (short := _SHORT.get(character)) is not None:
        return short
    units = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_LENIENT = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_no_constant)


def parse(data: bytes | None, what: str) -> object:
    """
    Read JSON as Samza's parser does, numbers as :class:`Number`.

    Of a key given twice the last wins; a byte order mark, UTF-16 and UTF-32 are taken; what follows the value is
    ignored.

    Args:
        data: The bytes; None, as Java may give, is refused like none at all.
        what: Names it in errors.

    Raises:
        FormatError: It is no JSON, or over ``MAX_SIZE``.
    """
    if not data:
        raise FormatError(f"{what} is empty: no bytes at all")
    if len(data) > MAX_SIZE:
        raise FormatError(f"{what} has {len(data)} bytes, which is over the limit of {MAX_SIZE}")
    try:
        return parse_text(data.decode(json.detect_encoding(data)), what)
    except UnicodeDecodeError as error:
        raise FormatError(f"{what} is not JSON: {error}") from error


def parse_text(text: str, what: str) -> object:
    """Read JSON as ``parse`` does, from text."""
    try:
        start = _WHITE.match(text)
        value, _ = _LENIENT.raw_decode(text, start.end() if start else 0)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is not JSON: {str(error)[:200]}") from error
    return value


def parse_integer(text: str, bits: int, what: str) -> int:
    """
    Read a whole number as Java does: a sign or none, then digits of any script, and nothing else.

    Raises:
        FormatError: It is not one, or does not fit into *bits*.
    """
    if _INTEGER.fullmatch(text) is None:
        raise FormatError(f"{what} must be a whole number, not {text[:80]!r}")
    number = int(text)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise FormatError(f"{what} does not fit into {bits} bits: {text[:80]}")
    return number


def object_of(value: object, what: str) -> dict[str, object]:
    """Give *value* back if it is a JSON object, else raise FormatError."""
    if not isinstance(value, dict):
        raise FormatError(f"{what} must be a JSON object, not {kind_of(value)}")
    return value


def kind_of(value: object) -> str:
    """Say what a parsed value is, for an error's text."""
    names = {Number: "a number", str: "a string", bool: "true or false", list: "an array", dict: "an object"}
    return names.get(type(value), "null")
