"""Bytes and values that are nearly right: what a seed makes of a valid one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

NUMBERS = (0, 1, -1, 127, 128, 255, 1 << 15, (1 << 16) - 1, 1 << 31, (1 << 32) - 1, 1 << 53, 1 << 63, 1 << 64, 1 << 200)
"""Numbers at which a reader may stumble."""

TEXTS = (
    "", ".", "..", "/", "../../etc/passwd", "/etc/passwd", "a/../../b", "a//b", "a\\..\\b", "\x00", "a\x00b",
    "\ud800", "\ufeff", "é", "e\u0301", "日本", "-1", "1e400", "NaN", "null", "true", "MANIFEST", "x" * 5000, "1-2",
    "1-2-3", "0-0", "1:a:0:1:b", "blake3:" + "0" * 64, "sha256:" + "f" * 64, "env:HOME", "file:/etc/passwd",
    "${HOME}", "{folder}", "%2e%2e%2f",
)  # fmt: skip
"""Texts at which a reader may stumble; some lead outside."""

TOKENS = (
    b"", b"\x00", b"\xff", b"\x80", b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b'"', b"\\", b":", b",", b"\n",
    b"\r\n", b" ", b"=", b"null", b"true", b"NaN", b"-0", b"1e999", b"0x1p3", b'"\\ud800"', b"\\u0000", b"[[",
    b"]]", b"#", b"'''", b'"""', b"[a.b]", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff", b"\xc9\x7f\xff\xff\xff", b"\x91", b"\xc0", b"z\x7f\xff\xff\xff", b"\xac\xed\x00\x05",
    b"DATA", b"LAST", b".a", b"__A",
)  # fmt: skip
"""Bytes that mean something in one of our formats."""

_LARGEST = 1 << 18
_DEEP = 2000


def mutated(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Give *data* with one to four changes: bits, bytes, pieces, numbers, tokens, and pieces of *others*."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = chance.choice(_CHANGES)(data, others, chance)[:_LARGEST]
    return data


def _place(data: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randint(0, len(data))
    return start, min(len(data), start + chance.choice((0, 1, 2, 4, 8, 32, len(data))))


def _flip(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    if not data:
        return b"\0"
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _cut(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    start, end = _place(data, chance)
    return data[:start] + data[end:]


def _truncate(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    return data[: chance.randint(0, len(data))]


def _double(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    start, end = _place(data, chance)
    return data[:end] + data[start:end] * chance.choice((1, 1, 2, 50)) + data[end:]


def _insert_token(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    start, end = _place(data, chance)
    token = chance.choice(TOKENS) * chance.choice((1, 1, 1, 1, _DEEP))
    return data[:start] + token + data[chance.choice((start, end)) :]


def _insert_noise(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    start, end = _place(data, chance)
    return data[:start] + chance.randbytes(chance.randint(0, 40)) + data[end:]


def _number(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Put a binary number over some bytes: lengths, counts and places lie like that."""
    size = chance.choice((1, 2, 4, 8))
    start = chance.randint(0, max(0, len(data) - size))
    number = chance.choice((0, 1, (1 << 8 * size) - 1, 1 << (8 * size - 1), len(data), chance.getrandbits(8 * size)))
    raw = (number % (1 << 8 * size)).to_bytes(size, chance.choice(("big", "little")))
    return data[:start] + raw + data[start + size :]


def _digits(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Put another number in place of one that is written in digits."""
    places = [at for at in range(len(data)) if data[at : at + 1].isdigit()]
    if not places:
        return _number(data, others, chance)
    start = end = chance.choice(places)
    while data[end : end + 1].isdigit():
        end += 1
    return data[:start] + str(chance.choice(NUMBERS)).encode() + data[end:]


def _splice(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    other = chance.choice(others) if others else data
    return data[: chance.randint(0, len(data))] + other[chance.randint(0, len(other)) :]


_CHANGES: Sequence[Callable[[bytes, Sequence[bytes], random.Random], bytes]] = (
    _flip, _flip, _cut, _truncate, _double, _insert_token, _insert_token, _insert_noise, _number, _digits, _splice,
)  # fmt: skip


def changed(value: object, chance: random.Random) -> object:
    """Give *value*, of mappings, lists and leaves, with one part of it replaced, removed, doubled or renamed."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        return _changed_mapping(dict(value), chance)
    if isinstance(value, (list, tuple)) and value and chance.random() < 0.85:
        return _changed_list(list(value), chance)
    return _leaf(value, chance)


def _changed_mapping(value: dict[object, object], chance: random.Random) -> dict[object, object]:
    key = chance.choice(list(value))
    way = chance.randrange(8)
    if way == 0:
        del value[key]
    elif way == 1:
        value[chance.choice(TEXTS)] = value[key]
    elif way == 2:
        value = {(chance.choice(TEXTS) if each == key else each): inner for each, inner in value.items()}
    else:
        value[key] = changed(value[key], chance)
    return value


def _changed_list(value: list[object], chance: random.Random) -> list[object]:
    at = chance.randrange(len(value))
    way = chance.randrange(8)
    if way == 0:
        del value[at]
    elif way == 1:
        value += [value[at]] * chance.choice((1, 1, 500))
    else:
        value[at] = changed(value[at], chance)
    return value


def _leaf(value: object, chance: random.Random) -> object:
    way = chance.randrange(9)
    if way < 3:
        return chance.choice(TEXTS)
    if way < 5:
        return chance.choice(NUMBERS)
    if way == 5 and isinstance(value, str):
        return mutated(value.encode("utf-8", "surrogatepass"), (), chance).decode("utf-8", "replace")
    return chance.choice((None, True, 1.5, float("inf"), [], {}, [value], {"": value}, [[value] * 3], _deep(chance)))


def _deep(chance: random.Random) -> object:
    made: object = 0
    for _ in range(chance.choice((10, 600))):
        made = [made] if chance.random() < 0.5 else {"a": made}
    return made
