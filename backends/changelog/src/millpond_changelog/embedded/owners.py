r"""
An owner's file: the epoch of its claim, and the append that it committed last.

It is the fence and the commit point. It has two slots of 64 KiB that are written in turn, so that a write that was cut
leaves the other one; the whole one with the greater count is in force::

    4: CRC-32 of the rest   4: bytes of MessagePack   MessagePack: count, owner, epoch, number, places

*places* are the topic's identity, name, partition and last offset, for each partition of that append.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path

import msgspec
from attrs import frozen

from millpond.errors import FencedError, StateCorruptError
from millpond.local import explained, fsync_directory, make_folders
from millpond_changelog.embedded.frames import AppendId
from millpond_changelog.embedded.locking import held, is_held

SLOT = 64 << 10
"""Bytes of a slot: some hundred partitions in one append."""

_HEAD = struct.Struct(">II")


class Fate(Enum):
    """What becomes of an append."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Place(msgspec.Struct, frozen=True, array_like=True):
    """
    Where a part of an append is.

    Attributes:
        identity: The topic's.
        topic: Its name.
        partition: The partition.
        last: The highest offset of the append there.
    """

    identity: bytes
    topic: str
    partition: int
    last: int


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """
    What an owner's file says.

    Attributes:
        count: How often it was written.
        owner: The owner's name.
        epoch: Of its claim; 0: never claimed.
        number: The committed append of *done*; 0: none yet.
        done: The epoch of that append.
        places: Where it is.
    """

    count: int
    owner: str
    epoch: int
    number: int = 0
    done: int = 0
    places: tuple[Place, ...] = ()


@frozen
class OwnerFile:
    """
    An owner's file in *folder*. Any process; every change under its lock.

    Attributes:
        folder: Where all owners' files are.
        number: The owner's number in frames.
    """

    folder: Path
    number: int

    @classmethod
    def named(cls, folder: Path, owner: str) -> OwnerFile:
        """Give the file of *owner*."""
        return cls(folder, int.from_bytes(hashlib.sha256(owner.encode()).digest()[:8], "big"))

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"{self.number:016x}"

    def live(self, epoch: int) -> Path:
        """Give the file that is locked while an append of a claim is open: a sleeper's is in nobody's way."""
        return self.folder / f"{self.number:016x}-{epoch}.live"

    def forget_live(self, before: int) -> None:
        """Remove what claims before the epoch *before* may have locked: the owner's file decides their appends."""
        for path in self.folder.glob(f"{self.number:016x}-*.live"):
            epoch = path.stem.partition("-")[2]
            if epoch.isdigit() and int(epoch) < before:
                path.unlink(missing_ok=True)

    @contextmanager
    def locked(self, timeout_s: float) -> Iterator[None]:
        """Hold the owner for the block."""
        make_folders(self.folder)
        with held(self.path.with_suffix(".lock"), timeout_s):
            yield

    def read(self) -> Slot | None:
        """
        Give what it says; None: it was never written.

        Raises:
            StateCorruptError: Neither slot is whole.
        """
        with explained("read", self.path):
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                return None
        slots = [slot for at in (0, SLOT) if (slot := _decode(data[at : at + SLOT])) is not None]
        if not slots:
            if len(data) < SLOT:  # its first write was cut
                return None
            raise StateCorruptError(f"{self.path} is damaged: neither of its slots is whole")
        return max(slots, key=lambda slot: slot.count)

    def write(self, slot: Slot) -> None:
        """Put *slot* in force, durably; under the lock."""
        data = _encode(slot)
        with explained("write", self.path):
            is_new = not self.path.exists()
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.pwrite(descriptor, data.ljust(SLOT, b"\0") if is_new else data, slot.count % 2 * SLOT)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        if is_new:
            fsync_directory(self.folder)

    def fate(self, append: AppendId) -> Fate:
        """Say what becomes of an append that no frame decides; what it says once, OPEN aside, it says for ever."""
        slot = self.read()
        known = _known(slot, append)
        if known is not Fate.OPEN or is_held(self.live(append.epoch)):
            return known
        known = _known(self.read(), append)  # it may have been committed and let go in between
        return Fate.ABORTED if known is Fate.OPEN else known


def last_committed(folder: Path) -> dict[tuple[bytes, int], int]:
    """
    Give the highest offset that owners say they have committed, by topic's identity and partition.

    It is a lower bound: each owner tells of its last append alone, and one whose file is damaged tells nothing.
    """
    found: dict[tuple[bytes, int], int] = {}
    with explained("list", folder):
        numbers = [int(path.name, 16) for path in folder.glob("?" * 16)] if folder.is_dir() else []
    for number in numbers:
        with suppress(StateCorruptError):  # whoever asks for this owner's appends is told
            slot = OwnerFile(folder, number).read()
            for place in () if slot is None else slot.places:
                key = place.identity, place.partition
                found[key] = max(place.last, found.get(key, -1))
    return found


def _known(slot: Slot | None, append: AppendId) -> Fate:
    if slot is None:
        return Fate.ABORTED
    if (slot.done, slot.number) == (append.epoch, append.number):
        return Fate.COMMITTED  # its commit frames are about to follow
    return Fate.ABORTED if slot.epoch > append.epoch else Fate.OPEN


def claimed(before: Slot | None, owner: str) -> Slot:
    """Give the slot of the next claim of *owner*."""
    if before is None:
        return Slot(2, owner, 1)
    return Slot(before.count + 1, owner, before.epoch + 1, before.number, before.done, before.places)


def committed(before: Slot | None, append: AppendId, places: tuple[Place, ...]) -> Slot:
    """
    Give the slot that commits *append*.

    Raises:
        FencedError: A later writer has taken over.
    """
    refuse_replaced(before, append.epoch)
    assert before is not None
    return Slot(before.count + 1, before.owner, before.epoch, append.number, append.epoch, places)


def refuse_replaced(slot: Slot | None, epoch: int) -> None:
    """
    Check that *epoch* is still the owner's.

    Raises:
        FencedError: A later writer has taken over.
    """
    if slot is None or slot.epoch != epoch:
        who = "nobody" if slot is None else f"{slot.owner!r}"
        raise FencedError(f"the log has a later writer for {who}: this one, of epoch {epoch}, may append no more")


def _encode(slot: Slot) -> bytes:
    body = msgspec.msgpack.encode(slot)
    if len(body) + _HEAD.size > SLOT:
        raise StateCorruptError(
            f"an append of {slot.owner!r} to {len(slot.places)} partitions is too wide for this log"
        )
    length = struct.pack(">I", len(body))
    return struct.pack(">I", zlib.crc32(length + body)) + length + body


def _decode(data: bytes) -> Slot | None:
    if len(data) < _HEAD.size:
        return None
    crc, length = _HEAD.unpack(data[: _HEAD.size])
    body = data[_HEAD.size : _HEAD.size + length]
    if len(body) != length or crc != zlib.crc32(data[4 : _HEAD.size] + body):
        return None
    try:
        return msgspec.msgpack.decode(body, type=Slot)
    except msgspec.MsgspecError:
        return None
