"""Serdes: what they take, what they refuse, and in which order their bytes are."""

from __future__ import annotations

import math
import sys
import types
from collections import OrderedDict
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ConfigError, FormatError, PluginError
from millpond.stores.serdes import SERDE_NAMES, MsgspecSerde, serde_named

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
MSGPACK = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | INT64 | st.binary(), inner, max_size=4),
    max_leaves=12,
)


class Colour(IntEnum):
    """A number that would come back as a plain one."""

    RED = 1


class Trip(msgspec.Struct):
    """A value of a user's own type."""

    miles: int
    tail: str


def exactly(value: Any) -> Any:
    """Give *value* with the types of all its parts, which == does not compare."""
    if isinstance(value, dict):
        return dict, {(type(key), key): exactly(part) for key, part in value.items()}
    if isinstance(value, list):
        return list, [exactly(part) for part in value]
    return type(value), value


@given(st.binary())
def test_bytes_come_back(value: bytes) -> None:
    """Bytes are stored as they are."""
    serde = serde_named("bytes")
    assert serde.decode(serde.encode(value)) == serde.encode(value) == value


@given(st.text(), st.text())
def test_text_comes_back_and_keeps_its_order(left: str, right: str) -> None:
    """Text comes back, and its bytes sort as its code points do."""
    serde = serde_named("str")
    assert serde.decode(serde.encode(left)) == left
    assert (serde.encode(left) < serde.encode(right)) == (left < right)


@given(INT64, INT64)
def test_numbers_come_back_and_keep_their_order(left: int, right: int) -> None:
    """Whole numbers come back, and their bytes sort as they do, negative ones below zero."""
    serde = serde_named("int")
    assert serde.decode(serde.encode(left)) == left
    assert (serde.encode(left) < serde.encode(right)) == (left < right)


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, 10**30])
def test_number_beyond_64_bits_is_refused(value: int) -> None:
    """A number that 64 bits cannot hold raises ValueError that gives the range."""
    with pytest.raises(ValueError, match="64 bits"):
        serde_named("int").encode(value)


@given(JSON)
def test_json_comes_back_exactly(value: Any) -> None:
    """Whatever the json serde takes comes back equal, with the same types all the way down."""
    serde = serde_named("json")
    assert exactly(serde.decode(serde.encode(value))) == exactly(value)


@given(MSGPACK)
def test_msgspec_comes_back_exactly(value: Any) -> None:
    """Whatever the msgspec serde takes comes back equal, with the same types all the way down."""
    serde = serde_named("msgspec")
    assert exactly(serde.decode(serde.encode(value))) == exactly(value)


def test_msgspec_keeps_what_json_cannot() -> None:
    """MessagePack keeps NaN, the infinities and aware times."""
    serde = serde_named("msgspec")
    now = datetime.now(UTC)
    assert math.isnan(serde.decode(serde.encode([math.nan]))[0])
    assert serde.decode(serde.encode([math.inf, now])) == [math.inf, now]


LOSSY = [
    (1, 2),
    {1},
    b"x",
    bytearray(b"x"),
    {1: "x"},
    {None: 1},
    OrderedDict(a=1),
    Colour.RED,
    datetime(2013, 1, 1),  # noqa: DTZ001 - a time without a zone is the point
    object(),
    1j,
    Trip(1, "N1"),
]


@pytest.mark.parametrize("value", LOSSY, ids=lambda value: type(value).__name__)
def test_json_refuses_what_would_change(value: Any) -> None:
    """A value that JSON would give back as something else raises TypeError, alone and deep inside."""
    serde = serde_named("json")
    for nested in (value, {"a": [value]}):
        with pytest.raises(TypeError, match="would not come back"):
            serde.encode(nested)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_refuses_numbers_that_it_lacks(value: float) -> None:
    """NaN and the infinities raise ValueError, and never become null."""
    serde = serde_named("json")
    for nested in (value, {"a": [value]}):
        with pytest.raises(ValueError, match="JSON has no"):
            serde.encode(nested)


@pytest.mark.parametrize(
    "value",
    [(1, 2), {1}, {(1, 2): 3}, bytearray(b"x"), Colour.RED, datetime(2013, 1, 1), Trip(1, "N1")],  # noqa: DTZ001
    ids=lambda value: type(value).__name__,
)
def test_msgspec_refuses_what_would_change(value: Any) -> None:
    """A value that MessagePack would give back as something else raises TypeError, alone and deep inside."""
    serde = serde_named("msgspec")
    for nested in (value, {"a": [value]}):
        with pytest.raises(TypeError, match="would not come back"):
            serde.encode(nested)


def test_huge_number_is_kept_or_refused_and_never_rounded() -> None:
    """A number beyond 64 bits comes back from JSON to the last digit, and MessagePack refuses it."""
    json = serde_named("json")
    assert json.decode(json.encode({"a": 10**30 + 1})) == {"a": 10**30 + 1}
    with pytest.raises(OverflowError):
        serde_named("msgspec").encode({"a": 10**30})


@pytest.mark.parametrize(
    ("name", "value"),
    [("bytes", "x"), ("bytes", bytearray(b"x")), ("str", b"x"), ("int", "1"), ("int", True), ("int", 1.0)],
)
def test_other_type_is_refused(name: str, value: Any) -> None:
    """A value of another type raises TypeError, also one that Python takes for equal."""
    with pytest.raises(TypeError, match=type(value).__name__):
        serde_named(name).encode(value)


@pytest.mark.parametrize("name", ["json", "msgspec"])
def test_equal_dicts_are_one_key(name: str) -> None:
    """As keys, equal dicts have equal bytes whatever order they were made in; as values they keep their order."""
    left, right = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    keys, values = serde_named(name, key=True), serde_named(name)
    assert keys.encode(left) == keys.encode(right)
    assert list(values.decode(values.encode(right))) == ["b", "a"]


def test_int_of_another_length_is_no_number() -> None:
    """Bytes that another serde wrote raise FormatError."""
    with pytest.raises(FormatError, match="3 bytes"):
        serde_named("int").decode(b"abc")


def test_typed_msgspec_gives_its_type_back() -> None:
    """A serde for a type gives values of that type, and refuses others."""
    serde = MsgspecSerde(Trip)
    assert serde.decode(serde.encode(Trip(7, "N1"))) == Trip(7, "N1")
    with pytest.raises(TypeError, match="dict, not Trip"):
        serde.encode({"miles": 7, "tail": "N1"})


@pytest.mark.parametrize("name", SERDE_NAMES)
def test_every_name_has_a_serde(name: str) -> None:
    """Each listed name gives a serde that calls itself so."""
    assert serde_named(name).name == name  # type: ignore[attr-defined]


def test_unknown_name_is_a_config_error_with_the_nearest() -> None:
    """A misspelt name raises ConfigError with the nearest one and all of them."""
    with pytest.raises(ConfigError, match=r"'jsn'.*'json'.*bytes, str, int, json, msgspec"):
        serde_named("jsn")


def test_own_serde_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """module:attribute gives the object that it names, in a class's namespace too."""
    module = types.ModuleType("own_serdes")
    module.trips = MsgspecSerde(Trip)  # type: ignore[attr-defined]
    module.Space = types.SimpleNamespace(trips=module.trips)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_serdes", module)
    assert serde_named("own_serdes:trips") is module.trips
    assert serde_named("own_serdes:Space.trips") is module.trips


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module_at_all:x", "cannot be loaded: ModuleNotFoundError"),
        ("json:no_such_thing", "cannot be loaded: AttributeError"),
        ("json:", "cannot be loaded"),
        (":x", "cannot be loaded"),
        ("json:dumps", "without encode and decode"),
        ("json:JSONEncoder", "is a class"),
    ],
)
def test_broken_own_serde_is_a_plugin_error(name: str, message: str) -> None:
    """An own serde that is missing or is none raises PluginError that says which and why."""
    with pytest.raises(PluginError, match=message):
        serde_named(name)
