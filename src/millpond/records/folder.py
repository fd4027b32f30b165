"""What pins and numbered records need of a place: names that are created once; and for records a clock."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import ClassVar

_LARGEST = 10**15
_NAME = re.compile(r"([0-9]{15})-([1-9][0-9]{0,14})")


class NamedFolder(ABC):
    """
    Small immutable things under names: in a directory, an object store, or memory. Any thread may call it.

    Every method may raise TransientError; for ``create`` this means that the thing may be there or not.
    """

    @abstractmethod
    def names(self) -> list[str]:
        """Give all names, in any order; as they are now, never from a cache. Empty if there is no such place."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """
        Put *data* under *name* unless something is there; whole or not at all, and durable when it returns True.

        Of several processes that try at once, exactly one gets True. False: something is there.
        """

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Give what is under *name*; None if nothing is."""

    @abstractmethod
    def delete(self, names: Collection[str]) -> None:
        """Remove *names*, durably; missing ones are fine."""

    def where(self, name: str) -> str:
        """Say in a message where *name* is."""
        return name


class RecordFolder(NamedFolder):
    """
    A folder for numbered records, whose writers look at it often, and whose claims have an age.

    Attributes:
        listing_costs: Listing is a request over a network, so a writer does not list for every record.
    """

    listing_costs: ClassVar[bool] = False

    @abstractmethod
    def now_millis(self) -> int:
        """Give the place's own clock, in milliseconds since 1970; ours may be wrong."""

    def tidy(self) -> None:
        """Remove what broken creations left behind long ago; never called on a writer's way."""
        return None


def record_name(number: int) -> str:
    """Give the name of record *number*: in a sorted listing the newest comes first, and people can read the number."""
    return f"{_LARGEST - number:015d}-{number}"


def record_number(name: str) -> int | None:
    """Give the number of the record called *name*; None if it is no record's name."""
    match = _NAME.fullmatch(name)
    if match is None or record_name(int(match[2])) != name:
        return None
    return int(match[2])
