"""What the records of a trial do, and so what its stores hold: a pure function of the seed and the offset."""

from __future__ import annotations

import random
from collections.abc import Mapping
from hashlib import blake2b

from attrs import frozen

from millpond.checkpoint import SystemStreamPartition

SOURCE = SystemStreamPartition("lab", "numbers.of.things", 0)
TASK = "Partition 0"
STORES = ("a", "b c", "rare")

Stores = Mapping[str, Mapping[bytes, bytes]]

_KEYS = 24
_LARGE = 3_000


@frozen
class Operation:
    """
    One thing that a record does.

    Attributes:
        store: To this store.
        key: The key.
        value: Its new value; None: it is deleted.
    """

    store: str
    key: bytes
    value: bytes | None


def operations(seed: int, number: int) -> list[Operation]:
    """Give what the record *number* does: one to three puts and deletes, few keys, so that much is deleted again."""
    digest = blake2b(f"{seed}/{number}".encode(), digest_size=16).digest()
    count = 1 + digest[15] % 3
    return [_operation(number, digest, digest[4 * at : 4 * at + 4]) for at in range(count)]


def _operation(number: int, digest: bytes, word: bytes) -> Operation:
    # "rare" is touched by a few records in a row only, so that many commits find it clean.
    store = STORES[2] if number % 16 == 0 else STORES[(word[0] + number // 8) % 2]
    key = b"key %d" % (word[1] % _KEYS)
    if word[2] % 4 == 0:
        return Operation(store, key, None)
    if word[2] == 1:
        return Operation(store, key, random.Random(digest).randbytes(_LARGE))  # noqa: S311 - nobody is to be surprised
    return Operation(store, key, b"%d " % number + b"x" * (word[3] % 40))


def expected(seed: int, offset: int) -> dict[str, dict[bytes, bytes]]:
    """Give all stores as they are after the records below *offset*."""
    stores: dict[str, dict[bytes, bytes]] = {name: {} for name in STORES}
    for number in range(offset):
        for each in operations(seed, number):
            if each.value is None:
                stores[each.store].pop(each.key, None)
            else:
                stores[each.store][each.key] = each.value
    return stores


@frozen
class Difference:
    """
    How found stores differ from what they should be; all counts of keys.

    Attributes:
        missing: Keys that should be there.
        resurrected: Keys that should not.
        changed: Keys with another value.
    """

    missing: int = 0
    resurrected: int = 0
    changed: int = 0

    def __bool__(self) -> bool:
        return bool(self.missing or self.resurrected or self.changed)


def compare(found: Stores, wanted: Stores) -> Difference:
    """Count how *found* differs from *wanted*."""
    missing = sum(len(wanted[name].keys() - found[name].keys()) for name in STORES)
    resurrected = sum(len(found[name].keys() - wanted[name].keys()) for name in STORES)
    common = [(name, key) for name in STORES for key in wanted[name].keys() & found[name].keys()]
    return Difference(missing, resurrected, sum(found[name][key] != wanted[name][key] for name, key in common))
