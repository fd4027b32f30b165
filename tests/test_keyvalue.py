"""The store that a host holds: a map, its refusals, its order, and values that expire."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ConfigError, FormatError, StoreClosedError
from millpond.lanes import Workers
from millpond.stores.budget import BufferBudget
from millpond.stores.buffer import BufferedStore
from millpond.stores.keyvalue import KeyValueStore
from millpond.stores.memory import MemoryEngine
from millpond.stores.refusals import RecordTooLargeError
from millpond.stores.serdes import serde_named

PATIENCE_S = 20.0


class TurnedClock:
    """A clock that stands still until it is turned."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def millis(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    workers = Workers("test", 1)
    yield workers
    workers.close(PATIENCE_S)


@pytest.fixture
def make(workers: Workers) -> Iterator[Callable[..., KeyValueStore[Any, Any]]]:
    made: list[BufferedStore] = []

    def store(key: str = "str", value: str = "json", *, limit: int | None = None, **options: Any) -> Any:
        buffered = BufferedStore(
            "trips", MemoryEngine("trips"), workers.lane(), BufferBudget(8 << 20), max_record_bytes=limit
        )
        made.append(buffered)
        return KeyValueStore(buffered, serde_named(key, key=True), serde_named(value), **options)

    yield store
    for buffered in made:
        buffered.close()


Make = Callable[..., KeyValueStore[Any, Any]]


@pytest.mark.parametrize(
    ("key", "value", "one", "two"),
    [("str", "json", "a", {"n": [1]}), ("bytes", "bytes", b"a", b"\x00"), ("int", "msgspec", -5, b"x")],
)
def test_behaves_like_a_map(make: Make, key: str, value: str, one: Any, two: Any) -> None:
    """Every way to read gives what was put, and every way to remove removes it."""
    store = make(key, value)
    assert (store.get(one), store.get(one, "none"), one in store, store.get_many([one])) == (None, "none", False, {})
    store[one] = two
    assert (store[one], store.get(one), store.get(one, "none"), one in store) == (two, two, two, True)
    assert (store.get_many([one, one]), list(store.scan()), list(store.scan(one))) == (
        {one: two},
        [(one, two)],
        [(one, two)],
    )
    del store[one]
    assert (store.get(one), one in store, list(store.scan())) == (None, False, [])
    store.put(one, two)
    store.delete(one)
    store.delete(one)
    assert one not in store


def test_missing_key_is_a_key_error_where_python_has_one(make: Make) -> None:
    """[] and del of a missing key raise KeyError with the key."""
    store = make()
    with pytest.raises(KeyError, match="gone"):
        store["gone"]
    with pytest.raises(KeyError, match="gone"):
        del store["gone"]


def test_value_that_was_read_is_a_copy(make: Make) -> None:
    """Changing a value that was put or read changes nothing in the store."""
    store = make()
    value = {"n": [1]}
    store.put("a", value)
    value["n"].append(2)
    store["a"]["n"].append(3)
    next(store.scan())[1]["n"].append(4)
    assert store["a"] == {"n": [1]}


@pytest.mark.parametrize("encoding", ["bytes", "str"])
def test_no_len_and_no_iteration(make: Make, encoding: str) -> None:
    """len(), iter() and list() raise TypeError that names scan(), and a store is never false."""
    store = make(encoding, encoding)
    for refused in (len, iter, list):
        with pytest.raises(TypeError, match=r"'trips'.*scan\(\)"):
            refused(store)
    assert store


def test_scan_is_in_the_order_of_the_encoded_keys(make: Make) -> None:
    """Numbers as keys are scanned by their value, between bounds, in both directions."""
    store = make("int", "str")
    numbers = [3, -7, 0, 1 << 40, -(1 << 62), 255, 256]
    for number in numbers:
        store[number] = str(number)
    assert [key for key, _ in store.scan()] == sorted(numbers)
    assert [key for key, _ in store.scan(-7, 256)] == [-7, 0, 3, 255]
    assert [key for key, _ in store.scan(-7, 256, reverse=True)] == [255, 3, 0, -7]


def test_scan_shows_the_moment_of_its_call(make: Make) -> None:
    """A scan over encoded entries that has not begun does not show later writes."""
    store = make()
    store["a"] = 1
    scan = store.scan()
    store["a"] = 2
    store["b"] = 3
    assert list(scan) == [("a", 1)]


def test_scan_can_be_closed(make: Make) -> None:
    """A closed scan has ended, with serdes and without."""
    for encoding, one in (("str", "a"), ("bytes", b"a")):
        store = make(encoding, encoding)
        store[one] = one
        scan = store.scan()
        next(scan)
        scan.close()  # type: ignore[attr-defined]
        assert list(scan) == []


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        (1, 1, TypeError, "'trips'.*key 1 .*'str'.*int"),
        (None, 1, TypeError, "'trips'.*key cannot be None"),
        ("a", None, TypeError, r"'trips'.*value cannot be None.*delete\(\)"),
        ("a", {1}, TypeError, r"'trips'.*value \{1\} .*'json'"),
        ("a", float("nan"), ValueError, "'trips'.*value nan .*'json'"),
        pytest.param("a", 10**5000, ValueError, "'trips'.*value .*'json'", id="digits"),
        ("\ud800", 1, ValueError, "'trips'.*key .*'str'.*surrogates"),
        ("a", "\ud800", ValueError, "'trips'.*value .*'json'"),
    ],
)
def test_what_cannot_be_stored_changes_nothing(
    make: Make, key: Any, value: Any, error: type[Exception], words: str
) -> None:
    """What cannot be stored raises an error with store, side, value and serde, and nothing is written."""
    store = make()
    store["a"] = "before"
    with pytest.raises(error, match=words):
        store.put(key, value)
    assert list(store.scan()) == [("a", "before")]


def test_endless_value_is_refused(make: Make) -> None:
    """A list that holds itself raises ValueError, and not RecursionError."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match=r"'trips'.*value"):
        make().put("a", endless)


def test_error_about_a_huge_value_is_short(make: Make) -> None:
    """The message about a value of a megabyte is a line."""
    with pytest.raises(TypeError) as caught:
        make("bytes", "int").put(b"a", b"x" * (1 << 20))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("encoding", "key", "value"), [("str", "k", "v" * 100), ("bytes", b"k", b"v" * 100)])
def test_record_above_the_limit_is_refused(make: Make, encoding: str, key: Any, value: Any) -> None:
    """A record above max_record_bytes raises a ValueError with store, key, size and limit, and changes nothing."""
    store = make(encoding, encoding, limit=100)
    store[key] = value[:99]
    with pytest.raises(RecordTooLargeError, match=rf"'trips'.*{re.escape(repr(key))}.*101 bytes.*100 bytes") as caught:
        store[key] = value
    assert isinstance(caught.value, ValueError)
    assert store[key] == value[:99]


def test_value_of_another_serde_is_a_format_error(make: Make, workers: Workers) -> None:
    """Reading what another serde wrote raises FormatError with store, side and serde."""
    buffered = BufferedStore("trips", MemoryEngine(), workers.lane(), BufferBudget(1 << 20))
    KeyValueStore[str, str](buffered, serde_named("str"), serde_named("str"))["a"] = "not json"
    changed = KeyValueStore[Any, Any](buffered, serde_named("int"), serde_named("json"))
    buffered.put(serde_named("int").encode(1), b"not json")
    buffered.put(b"\xff", b"1")
    with pytest.raises(FormatError, match=r"'trips'.*value.*'json'.*another one"):
        changed[1]
    with pytest.raises(FormatError, match=r"'trips'.*key.*'int'.*another one"):
        list(changed.scan(1 << 62))
    buffered.close()


def test_own_serde_that_gives_no_bytes_is_named(make: Make, workers: Workers) -> None:
    """An own serde whose encode gives text raises TypeError with its name, and nothing is written."""

    class Wrong:
        def encode(self, value: Any) -> Any:
            return str(value)

        def decode(self, data: bytes) -> Any:
            return data

    buffered = BufferedStore("trips", MemoryEngine(), workers.lane(), BufferBudget(1 << 20))
    store = KeyValueStore[Any, Any](buffered, Wrong(), serde_named("str"))
    with pytest.raises(TypeError, match=r"Wrong.*for a key, and not bytes"):
        store["a"] = "x"
    assert not buffered.has_open_run()
    buffered.close()


@pytest.mark.parametrize("value", ["str", "bytes"])
def test_expired_value_is_invisible_at_once(make: Make, value: str) -> None:
    """A value is there until the millisecond of its end, and gone from every read from then on, before any sweep."""
    clock = TurnedClock()
    store = make("str", value, ttl=timedelta(seconds=1), clock=clock)
    content = "x" if value == "str" else b"x"
    store["a"] = content
    clock.now += 500
    store["b"] = content
    clock.now += 499
    assert [key for key, _ in store.scan()] == ["a", "b"]
    assert store["a"] == content
    clock.now += 1
    assert (store.get("a"), "a" in store, store.get_many(["a", "b"])) == (None, False, {"b": content})
    assert list(store.scan()) == [("b", content)]
    with pytest.raises(KeyError):
        store["a"]


def test_put_again_lives_again(make: Make) -> None:
    """A put begins a new life, before and after the old one's end."""
    clock = TurnedClock()
    store = make(ttl=timedelta(seconds=1), clock=clock)
    store["a"] = 1
    clock.now += 900
    store["a"] = 2
    clock.now += 900
    assert store["a"] == 2
    clock.now += 100
    assert "a" not in store
    store["a"] = 3
    assert store["a"] == 3


def test_sweep_deletes_what_has_expired_and_no_more(make: Make) -> None:
    """A sweep looks at so many values at a time, goes round, deletes the expired ones, and leaves the living."""
    clock = TurnedClock()
    store = make("int", "str", ttl=timedelta(seconds=1), clock=clock)
    for number in range(0, 100, 2):
        store[number] = "old"
    clock.now += 600
    for number in range(1, 100, 2):
        store[number] = "young"
    clock.now += 500
    assert [store.sweep(30) for _ in range(4)] == [15, 15, 15, 5]
    assert store.sweep(1_000) == 0
    assert [key for key, _ in store._store.scan()] == [store._encode_key(number) for number in range(1, 100, 2)]


def test_sweep_of_a_store_without_ttl_does_nothing(make: Make) -> None:
    """Without a time to live nothing is swept."""
    store = make()
    store["a"] = 1
    assert store.sweep() == 0


def test_ttl_counts_into_the_record_limit(make: Make) -> None:
    """The eight bytes of the expiry count into max_record_bytes."""
    store = make("bytes", "bytes", limit=20, ttl=timedelta(seconds=1), clock=TurnedClock())
    store[b"k"] = b"v" * 11
    with pytest.raises(RecordTooLargeError):
        store[b"k"] = b"v" * 12


def test_value_without_an_expiry_is_a_format_error(make: Make) -> None:
    """A value that was written before the store had a time to live raises FormatError."""
    store = make("bytes", "bytes", ttl=timedelta(seconds=1), clock=TurnedClock())
    store._store.put(b"a", b"short")
    with pytest.raises(FormatError, match="without a time to live"):
        store.get(b"a")


def test_ttl_of_nothing_is_a_config_error(make: Make) -> None:
    """A time to live under a millisecond raises ConfigError."""
    for ttl in (timedelta(0), timedelta(seconds=-1), timedelta(microseconds=999)):
        with pytest.raises(ConfigError, match="trips"):
            make(ttl=ttl)


@pytest.mark.parametrize("encoding", ["bytes", "str"])
def test_closed_store_refuses_everything(make: Make, encoding: str) -> None:
    """Every method of a closed store raises StoreClosedError, those that bypass the encoding too."""
    store = make(encoding, encoding)
    one: Any = b"a" if encoding == "bytes" else "a"
    store[one] = one
    store._store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.get(one),
        lambda: store[one],
        lambda: one in store,
        lambda: store.get_many([one]),
        lambda: store.put(one, one),
        lambda: store.delete(one),
        store.scan,
    ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()


@given(st.dictionaries(st.text(max_size=5), st.integers(-5, 5), max_size=30), st.text(max_size=3), st.text(max_size=3))
def test_scan_equals_a_sorted_dict(entries: dict[str, int], low: str, high: str) -> None:
    """A scan between any two bounds gives what sorting a dict gives."""
    workers = Workers("test", 1)
    buffered = BufferedStore("trips", MemoryEngine(), workers.lane(), BufferBudget(1 << 20))
    store = KeyValueStore[str, int](buffered, serde_named("str"), serde_named("json"))
    for place, (key, value) in enumerate(entries.items()):
        store[key] = value
        if place % 7 == 0:
            buffered.close_run()
    assert list(store.scan(low, high)) == sorted((key, entries[key]) for key in entries if low <= key < high)
    buffered.close()
    workers.close(PATIENCE_S)
