"""What a store says to a key or a value that it cannot take. Nothing has changed when it says so."""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import Repr
from typing import Self

from millpond.errors import MillpondError, TransientError

_SHOWN = 60
_SHORT = Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _SHOWN


class RecordLimit(int):
    """
    The largest record, in bytes, and what an operator does to raise it.

    Attributes:
        setting: The setting, as the operator writes it.
    """

    setting: str

    def __new__(cls, limit: int, setting: str) -> Self:
        """Give *limit*, raised by *setting*."""
        self = super().__new__(cls, limit)
        self.setting = setting
        return self


class RecordTooLargeError(MillpondError, ValueError):
    """
    A key and its value together are larger than one of the store's backends can take.

    Attributes:
        store: The name of the store.
        size: Of both, encoded, in bytes.
        limit: What is allowed, in bytes.
    """

    def __init__(self, store: str, key: object, size: int, limit: int) -> None:
        """Name the *key* of the record."""
        super().__init__(
            f"store {store!r}: key {shortened(key)} and its value take {size} bytes, and the store's backends take at "
            f"most {limit} bytes a record ({_raising(limit)})"
        )
        self.store = store
        self.size = size
        self.limit = limit


def _raising(limit: int) -> str:
    return f"raise {limit.setting}" if isinstance(limit, RecordLimit) else "max_record_bytes"


def shortened(value: object) -> str:
    """Give ``repr(value)``, cut to a length that fits a message, at a cost that does not grow with the value."""
    if isinstance(value, (bytes, str)) and len(value) > _SHOWN:
        return f"{value[:_SHOWN]!r}… ({len(value)} long)"
    try:
        text = _SHORT.repr(value)
    except ValueError as error:  # a number of more digits than Python shows
        return f"<{type(value).__name__}: {error}>"
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN]}…"


def not_bytes(store: str, side: str, value: object) -> TypeError:
    """Give the error for a *side* (key or value) of a store of bytes that is something else."""
    if value is None:
        return is_none(store, side)
    return TypeError(f"store {store!r}: a {side} must be bytes, and {shortened(value)} is a {type(value).__name__}")


def is_none(store: str, side: str) -> TypeError:
    """Give the error for None as a *side*."""
    hint = ": use delete() to remove a key" if side == "value" else ""
    return TypeError(f"store {store!r}: a {side} cannot be None{hint}")


def cannot_store(store: str, side: str, serde: str, value: object, error: Exception) -> Exception:
    """Give the error for a *value* that *serde* refused with *error*: TypeError if that is one, else ValueError."""
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"store {store!r}: the {side} {shortened(value)} cannot be stored as {serde!r}: {error}")


def buffer_full(store: str, waited_s: float, waiting: Sequence[int], held: int, limit: int) -> TransientError:
    """Give the error of a put that waited in vain, with runs of *waiting* bytes before it."""
    return TransientError(
        f"store {store!r}: the write buffer stayed full for {waited_s:g} s: {len(waiting)} closed runs of this store "
        f"with {sum(waiting)} bytes wait for its database, and the job's stores hold {held} of {limit} bytes; raise "
        "buffer_memory if the database keeps up at other times"
    )
