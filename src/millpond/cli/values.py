"""Keys as an operator writes them, and keys and values as they are shown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any


def parse_key(text: str, serde: str, *, as_hex: bool) -> Any:
    """
    Read a key: text for ``str``, a number for ``int``, JSON for ``json`` and ``msgspec``, text or hex for ``bytes``.

    A key of any other serde is JSON, or else text.

    Raises:
        ValueError: It is none.
    """
    if as_hex and serde != "bytes":
        raise ValueError(f"--hex is for keys of serde bytes, and this store's are {serde}")
    return _parsed(text, serde, as_hex=as_hex)


def _parsed(text: str, serde: str, *, as_hex: bool) -> Any:
    match serde:
        case "str":
            return text
        case "int":
            return int(text)
        case "bytes":
            return bytes.fromhex(text.removeprefix("0x")) if as_hex else text.encode()
        case "json" | "msgspec":
            return json.loads(text)
        case _:
            try:
                return json.loads(text)
            except ValueError:
                return text


def show_value(value: object, *, as_hex: bool = False) -> str:
    """Write a key or a value on one line; bytes as text where they are text, else as ``0x…``."""
    if isinstance(value, bytes):
        text = None if as_hex else _text_of(value)
        return f"0x{value.hex()}" if text is None else text
    if isinstance(value, str):
        return value if value.isprintable() else json.dumps(value, ensure_ascii=False)
    return json.dumps(plain(value), ensure_ascii=False, separators=(", ", ": "))


def _text_of(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() and not text.startswith("0x") else None


def plain(value: object) -> Any:
    """
    Turn a key or a value into what JSON has.

    Bytes become ``{"hex": …}``, a mapping whose keys are no text ``{"entries": [[key, value], …]}``, a float that JSON
    lacks, a time, or an object of a class of its own ``{"text": …}``.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"text": repr(value)}
        case bytes() | bytearray():
            return {"hex": bytes(value).hex()}
        case Mapping() if all(isinstance(key, str) for key in value):
            return {key: plain(inner) for key, inner in value.items()}
        case Mapping():
            return {"entries": [[plain(key), plain(inner)] for key, inner in value.items()]}
        case list() | tuple() | set() | frozenset():
            return [plain(inner) for inner in value]
        case datetime() | date():
            return {"text": value.isoformat()}
        case _:
            return {"text": repr(value)}
