"""Which bytes of a commit go into which object: decided from sizes and digests, without a disk or a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from attrs import define, field, frozen

from millpond.blob.body import BytesPiece, FilePiece, Piece

PACK = 64 << 20
"""A pack that has come to so many bytes is closed, and another begun."""

WORN = 4
"""An object of which less than one part in so many is still needed is worn: what is needed of it is uploaded anew."""

SMALL_WASTE = 64 << 10
"""An object that wastes no more than this is never worn."""


@frozen
class Place:
    """
    Where bytes lie.

    Attributes:
        object: The object's name; empty for nothing at all.
        start: The first byte there.
    """

    object: str
    start: int


@define
class PlannedObject:
    """
    An object that will be uploaded.

    Attributes:
        name: Its name.
        pieces: What it holds, in order.
        size: Bytes of that.
    """

    name: str
    pieces: list[Piece] = field(factory=list)
    size: int = 0

    def add(self, piece: Piece) -> Place:
        """Put *piece* behind the others."""
        place = Place(self.name, self.size)
        self.pieces.append(piece)
        self.size += piece.size
        return place


@define
class Packer:
    """
    Spreads the pieces of one commit over objects; the same content goes once.

    Attributes:
        new_name: Makes a name that no object has.
        alone: Pieces from this size on get an object of their own.
    """

    new_name: Callable[[], str]
    alone: int
    objects: list[PlannedObject] = field(factory=list, init=False)
    pack: PlannedObject = field(init=False)
    _placed: dict[tuple[str, int], Place] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.pack = PlannedObject(self.new_name())

    def add(self, piece: FilePiece, digest: str) -> Place:
        """Give the place of *piece*, whose content has *digest*."""
        if piece.size == 0:
            return Place("", 0)
        placed = self._placed.get((digest, piece.size))
        if placed is None:
            placed = self._placed[digest, piece.size] = self._add(piece)
        return placed

    def _add(self, piece: FilePiece) -> Place:
        if piece.size >= self.alone:
            self.objects.append(PlannedObject(self.new_name()))
            return self.objects[-1].add(piece)
        if self.pack.size and self.pack.size + piece.size > PACK:
            self.objects.append(self.pack)
            self.pack = PlannedObject(self.new_name())
        return self.pack.add(piece)

    def sizes(self) -> Mapping[str, int]:
        """Give the bytes of each object so far; the tail of the pack is not among them."""
        return {each.name: each.size for each in (*self.objects, self.pack)}

    def end(self, manifests: Iterable[bytes], footer: Callable[[int, int], bytes]) -> list[Place]:
        """Put the manifests behind the pack's pieces, and a footer; give the places of the manifests."""
        start = self.pack.size
        places = [self.pack.add(BytesPiece(data)) for data in manifests]
        self.pack.add(BytesPiece(footer(start, self.pack.size - start)))
        return places


def worn(sizes: Mapping[str, int], live: Mapping[str, int]) -> frozenset[str]:
    """Give the objects that hold mostly what nobody needs; *live* is what is needed of each, in bytes."""
    return frozenset(
        name
        for name, size in sizes.items()
        if live.get(name, 0) * WORN < size and size - live.get(name, 0) > SMALL_WASTE
    )
