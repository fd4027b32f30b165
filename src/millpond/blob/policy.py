"""
Files or changes: how one store's part of a commit is uploaded, decided from sizes alone.

A chain of changes saves uploads and costs the restore. It ends when it has too many links, or when replaying it would
cost more than half of loading its base. Costs are counted in bytes over a link of 50 MB/s; applying changes runs at
about twice that, so a byte of a change file counts half besides its transfer.
"""

from __future__ import annotations

from enum import Enum

from attrs import frozen

RATIO = 0.5
"""The most that replaying a chain may cost, of what loading its base costs."""

APPLY_COST = 0.5
"""What applying a byte of a change file costs, beside the transfer of its packed form."""

FREE = 1 << 20
"""A chain of so little cost is never too long: nobody waits for it."""


class Way(Enum):
    """How a store's part of a commit is uploaded."""

    FILES = "files"
    CHANGES = "changes"


@frozen
class Decision:
    """
    A way, and why.

    Attributes:
        way: Files or changes.
        reason: In words, for the event.
    """

    way: Way
    reason: str


@frozen(kw_only=True)
class Limits:
    """
    What the operator allows.

    Attributes:
        changes: Changes may be uploaded at all.
        max_links: The longest chain.
    """

    changes: bool = True
    max_links: int = 64


@frozen(kw_only=True)
class Chain:
    """
    What the last published manifest holds; sizes in bytes.

    Attributes:
        base: Of the base's files.
        links: The number of change files after it.
        size: Of those, as uploaded.
        raw_size: Of those, unpacked.
    """

    base: int
    links: int = 0
    size: int = 0
    raw_size: int = 0


def cost(size: int, raw_size: int) -> float:
    """Give what replaying changes costs, in bytes over the link."""
    return size + APPLY_COST * raw_size


def allowance(base: int) -> float:
    """Give what replaying all changes after a base of *base* bytes may cost."""
    return max(float(FREE), RATIO * base)


def why_files(chain: Chain, limits: Limits) -> str | None:
    """Say why changes are out of the question before they are looked at; None: they are not."""
    if not limits.changes:
        return "changes are turned off"
    if chain.links >= limits.max_links:
        return f"the chain has {chain.links} links"
    if room(chain) <= 0:
        return "replaying the chain would cost more than half of loading its base"
    return None


def room(chain: Chain) -> int:
    """Give how large the next change file may be, unpacked, if packing gained nothing."""
    left = allowance(chain.base) - cost(chain.size, chain.raw_size)
    return int(left / (1 + APPLY_COST)) if left > 0 else 0


def most_raw(chain: Chain) -> int:
    """Give the size of a change file beyond which writing on is in vain, however well it packs."""
    left = allowance(chain.base) - cost(chain.size, chain.raw_size)
    return max(0, int(left / APPLY_COST))


def choose(chain: Chain, new_files: int, changes: int, raw_changes: int) -> Decision:
    """
    Decide between files and changes that were both measured.

    Args:
        chain: What is there.
        new_files: Bytes of the files that would have to be uploaded.
        changes: Bytes of the change file, packed.
        raw_changes: Bytes of the change file itself.
    """
    if new_files <= changes:
        return Decision(Way.FILES, f"the new files, {new_files} bytes, are no more than the changes, {changes} bytes")
    if cost(chain.size + changes, chain.raw_size + raw_changes) > allowance(chain.base):
        return Decision(Way.FILES, "with these changes, replaying the chain would cost more than half of its base")
    return Decision(Way.CHANGES, f"the changes are {changes} bytes, and the new files {new_files} bytes")
