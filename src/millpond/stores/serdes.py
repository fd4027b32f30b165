"""
Serdes: how keys and values become bytes, by name.

``bytes`` and ``str`` (UTF-8) keep their order; ``int`` is 64 bits, and its bytes sort like its numbers; ``json`` and
``msgspec`` (MessagePack) take plain values, and only those that come back equal and of the same type.
``module:attribute`` is an object of your own with ``encode`` and ``decode``.

What cannot be stored raises TypeError or ValueError. What cannot be read raises FormatError: another serde wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from difflib import get_close_matches
from importlib import import_module
from math import isfinite
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from millpond.errors import ConfigError, FormatError, PluginError
from millpond.stores.refusals import shortened


@runtime_checkable
class Serde(Protocol):
    """Turns values into bytes and back. Both are called on any thread, and must give the same for the same."""

    def encode(self, value: Any) -> bytes:
        """Give the bytes of *value*; TypeError or ValueError when it cannot be stored."""
        ...

    def decode(self, data: bytes) -> Any:
        """Give a value that nothing else refers to."""
        ...


class BytesSerde:
    """Bytes as they are."""

    name = "bytes"

    def encode(self, value: Any) -> bytes:
        """Give *value*; a bytearray or a memoryview could change afterwards, and is refused."""
        if value.__class__ is not bytes:
            raise _wrong_type(value, "bytes")
        data: bytes = value
        return data

    def decode(self, data: bytes) -> Any:
        """Give *data*."""
        return data


class StrSerde:
    """Text as UTF-8: sorts by code points."""

    name = "str"

    def encode(self, value: Any) -> bytes:
        """Give the UTF-8 of *value*."""
        if value.__class__ is not str:
            raise _wrong_type(value, "str")
        text: str = value
        return text.encode()

    def decode(self, data: bytes) -> Any:
        """Give the text."""
        return data.decode()


class IntSerde:
    """Whole numbers of 64 bits, with their sign bit turned, big-endian: bytes sort like numbers, negative ones too."""

    name = "int"

    def encode(self, value: Any) -> bytes:
        """Give eight bytes."""
        if value.__class__ is not int:  # True would come back as 1
            raise _wrong_type(value, "int")
        try:
            number: int = value
            return (number + _INT_BIAS).to_bytes(8, "big")
        except OverflowError:
            raise ValueError("it is beyond 64 bits (-2**63 to 2**63 - 1)") from None

    def decode(self, data: bytes) -> Any:
        """Give the number."""
        if len(data) != 8:
            raise FormatError(f"{len(data)} bytes are no int of 64 bits")
        return int.from_bytes(data, "big") - _INT_BIAS


class JsonSerde:
    """JSON of dict with text keys, list, str, int, finite float, bool and None, and of nothing else."""

    name = "json"

    def __init__(self, *, sort: bool = False) -> None:
        """Sort the keys of dicts if *sort*: equal dicts have equal bytes then, as a store's keys must."""
        self._encode = msgspec.json.Encoder(order="deterministic" if sort else None).encode
        self._decode = msgspec.json.Decoder().decode

    def encode(self, value: Any) -> bytes:
        """Give compact JSON in UTF-8."""
        if value.__class__ not in _JSON_SCALARS:
            _check_json(value)
        return self._encode(value)

    def decode(self, data: bytes) -> Any:
        """Give the value."""
        return self._decode(data)


class MsgspecSerde:
    """
    MessagePack by msgspec.

    Without a type it takes what JSON takes (int up to 64 bits), and bytes, any float, aware datetimes, and dict keys
    that are no text. With one, such as a ``msgspec.Struct`` or an attrs class, it takes and gives back values of that
    type, as msgspec does.
    """

    name = "msgspec"

    def __init__(self, type: Any = None, *, sort: bool = False) -> None:
        """Take values of *type*; sort the keys of dicts if *sort*."""
        self._type = type
        self._encode = msgspec.msgpack.Encoder(order="deterministic" if sort else None).encode
        self._decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(Any if type is None else type).decode

    def encode(self, value: Any) -> bytes:
        """Give MessagePack."""
        if self._type is None:
            if value.__class__ not in _MSGPACK_SCALARS:
                _check_msgpack(value)
        elif isinstance(self._type, type) and not isinstance(value, self._type):
            raise _wrong_type(value, self._type.__name__)
        return self._encode(value)

    def decode(self, data: bytes) -> Any:
        """Give the value."""
        return self._decode(data)


_INT_BIAS: Final = 1 << 63
_JSON_SCALARS: Final = frozenset({str, int, bool})
_MSGPACK_SCALARS: Final = frozenset({str, int, bool, float, bytes})
_MSGPACK_KEYS: Final = _MSGPACK_SCALARS

BYTES: Final = BytesSerde()
_NAMED: Final[Mapping[str, tuple[Serde, Serde]]] = {  # for keys, for values
    "bytes": (BYTES, BYTES),
    "str": (StrSerde(), StrSerde()),
    "int": (IntSerde(), IntSerde()),
    "json": (JsonSerde(sort=True), JsonSerde()),
    "msgspec": (MsgspecSerde(sort=True), MsgspecSerde()),
}
SERDE_NAMES: Final = tuple(_NAMED)
"""The names of the serdes that need no module."""


def serde_named(name: str, *, key: bool = False) -> Serde:
    """
    Give the serde called *name*, or the object that ``module:attribute`` is.

    Args:
        name: One of ``SERDE_NAMES``, or ``module:attribute``.
        key: It is for keys: equal dicts get equal bytes.

    Raises:
        ConfigError: There is none of that name.
        PluginError: The module cannot be imported, or the object is no serde.
    """
    if name in _NAMED:
        return _NAMED[name][0 if key else 1]
    if ":" in name:
        return _imported(name)
    near = get_close_matches(name, SERDE_NAMES, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(f"there is no serde {name!r}: {hint}There are {', '.join(SERDE_NAMES)}, and module:attribute")


def name_of(serde: Serde) -> str:
    """Give the name by which errors call *serde*."""
    return str(getattr(serde, "name", type(serde).__qualname__))


def _imported(name: str) -> Serde:
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the module does when it is imported
        raise PluginError(f"serde {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if isinstance(found, type):
        raise PluginError(f"serde {name!r} is a class: name an instance of it")
    if not isinstance(found, Serde):
        raise PluginError(f"serde {name!r} is a {type(found).__name__} without encode and decode")
    return found


def _wrong_type(value: object, expected: str) -> TypeError:
    return TypeError(f"it is a {type(value).__name__}, not {expected}")


def _check_json(value: Any) -> None:
    """Raise unless *value* comes back from JSON as it is."""
    kind = value.__class__
    if kind in _JSON_SCALARS or value is None:
        return
    if kind is float:
        if not isfinite(value):
            raise ValueError(f"JSON has no {value!r}")
    elif kind is dict:
        for key, part in value.items():
            if key.__class__ is not str:
                raise _lossy(key, "as the key of a dict")
            _check_json(part)
    elif kind is list:
        for part in value:
            _check_json(part)
    else:
        raise _lossy(value)


def _check_msgpack(value: Any) -> None:
    """Raise unless *value* comes back from MessagePack as it is."""
    kind = value.__class__
    if kind in _MSGPACK_SCALARS or value is None:
        return
    if kind is dict:
        for key, part in value.items():
            if key.__class__ not in _MSGPACK_KEYS:
                raise _lossy(key, "as the key of a dict")
            _check_msgpack(part)
    elif kind is list:
        for part in value:
            _check_msgpack(part)
    elif kind is not datetime or value.tzinfo is None:
        raise _lossy(value)


def _lossy(value: object, where: str = "") -> TypeError:
    what = f"{shortened(value)} {where}".rstrip()
    return TypeError(f"{what} is a {type(value).__name__}, which would not come back as it is")
