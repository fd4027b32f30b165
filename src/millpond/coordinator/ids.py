"""
The numbers that tell attempts and restores apart.

Both are pairs of a leadership's epoch and a count within it. An epoch belongs to one coordinator only, so no two
attempts ever share a number though nothing is written when one begins, and a later one is always greater, whatever
clocks say.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class JobCheckpointId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """
    Names one attempt at a job checkpoint; ordered. ``str()`` gives ``<epoch>-<number>``.

    Attributes:
        epoch: Of the leadership under which it began.
        number: Of the attempt within it, from 1.
    """

    epoch: _Count
    number: _Count

    def __str__(self) -> str:
        return f"{self.epoch}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> JobCheckpointId:
        """Read what ``str()`` gave; ValueError if *text* is something else."""
        epoch, dash, number = text.partition("-")
        if not dash or not (epoch + number).isascii() or not epoch.isdecimal() or not number.isdecimal():
            raise ValueError(f"not a job checkpoint id: {text!r} (expected <epoch>-<number>)")
        found = cls(int(epoch), int(number))
        if str(found) != text or max(found.epoch, found.number) >= 1 << 63:
            raise ValueError(f"not a job checkpoint id: {text!r} (a number with leading zeros or beyond 63 bits)")
        return found


class TransactionId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """
    Names one restore of all members; ordered. ``str()`` gives ``<epoch>-<number>``.

    Attributes:
        epoch: Of the leadership that ordered it.
        number: Of the restore within it, from 1.
    """

    epoch: _Count
    number: _Count

    def __str__(self) -> str:
        return f"{self.epoch}-{self.number}"
