"""Compares what was restored with what must be there: every key, every value, every offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, field

SHOWN = 5


@define
class Comparison:
    """
    How many things are equal, and the first of those that are not.

    Attributes:
        equal: How many keys had the expected value.
        differing: How many did not, each missing, unexpected, changed or out of order.
        first: A sentence for each of the first few.
    """

    equal: int = 0
    differing: int = 0
    first: list[str] = field(factory=list)

    def differs(self, what: str) -> None:
        """Count a difference."""
        self.differing += 1
        if len(self.first) < SHOWN:
            self.first.append(what)

    def include(self, other: Comparison) -> None:
        """Add *other* to this one."""
        self.equal += other.equal
        self.differing += other.differing
        self.first = (self.first + other.first)[:SHOWN]


def compare_store(where: str, expected: Mapping[str, object], found: Iterable[tuple[str, object]]) -> Comparison:
    """Compare a scan of a whole store, which must be in the order of the keys' bytes, with *expected*."""
    result = Comparison()
    seen: set[str] = set()
    last: bytes | None = None
    for key, value in found:
        _compare_entry(result, f"{where}[{key!r}]", key, value, expected)
        if last is not None and key.encode() <= last:
            result.differs(f"{where}[{key!r}] comes after {last.decode()!r}")
        last = key.encode()
        seen.add(key)
    for key in expected:
        if key not in seen:
            result.differs(f"{where}[{key!r}] is missing: expected {expected[key]!r}")
    return result


def compare_offset(where: str, expected: int | None, found: str | None) -> Comparison:
    """Compare the offset of one source."""
    wanted = None if expected is None else str(expected)
    result = Comparison(equal=int(wanted == found))
    if wanted != found:
        result.differs(f"{where}: expected offset {wanted}, found {found}")
    return result


def _compare_entry(result: Comparison, where: str, key: str, value: object, expected: Mapping[str, object]) -> None:
    if key not in expected:
        result.differs(f"{where} is unexpected: found {value!r}")
    elif value != expected[key]:
        result.differs(f"{where}: expected {expected[key]!r}, found {value!r}")
    else:
        result.equal += 1
