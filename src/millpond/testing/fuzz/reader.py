"""What a reader of bytes is to the fuzzer, and how it is tried with one input."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

from attrs import frozen

from millpond.errors import FormatError, MillpondError
from millpond.testing.fuzz.mutation import mutated
from millpond.testing.kit.watching import watched_io

LONGEST_S = 2.0
"""Processor time that one input of at most 256 KiB may take."""

MEMORY_TIMES, MEMORY_BYTES = 100, 4 << 20
"""So many times its input, and so many bytes more, may a reader have at once."""

_MEASURED = 8
_TOLD = 300

Input = object
"""Bytes, or for a reader of values what it is given."""


def _nothing(_: object) -> Iterable[str]:
    return ()


def _as_it_is(data: bytes) -> bytes:
    return data


@frozen(kw_only=True)
class Reader:
    """
    A reader of bytes.

    Attributes:
        name: For people.
        modules: The modules of ours that it tries.
        read: Reads an input; the folder is its own, and the only place where it may touch files.
        valid: Valid inputs.
        insides: What is within valid inputs, for readers that check a digest first.
        seal: Puts that digest on an inside, so that what is behind the check is reached.
        mutate: Makes an input out of a valid one; by default :func:`mutated`.
        paths: Gives what a value names, and somebody joins to a folder: none may lead outside.
    """

    name: str
    modules: Sequence[str]
    read: Callable[[bytes, Path], object]
    valid: Sequence[bytes]
    insides: Sequence[bytes] = ()
    seal: Callable[[bytes], bytes] = _as_it_is
    mutate: Callable[[bytes, Sequence[bytes], random.Random], bytes] = mutated
    paths: Callable[[object], Iterable[str]] = _nothing

    def input(self, chance: random.Random) -> bytes:
        """Make an input: half of those with an inside are mutated there and sealed again."""
        if self.insides and chance.random() < 0.6:
            inside = self.mutate(chance.choice(self.insides), self.insides, chance)
            try:
                return self.seal(inside)
            except MillpondError:  # too large for its seal
                return inside
        if chance.random() < 0.02:
            return chance.randbytes(chance.randint(0, 400))
        return self.mutate(chance.choice(self.valid), self.valid, chance)

    def fault(self, data: bytes, folder: Path, *, measured: bool) -> str | None:
        """Try one input, and say what is wrong with what became of it; None: nothing."""
        if measured:
            tracemalloc.start()
        begun = time.process_time()
        try:
            with watched_io() as touched:
                found = self._outcome(data, folder)
            took = time.process_time() - begun
            peak = tracemalloc.get_traced_memory()[1] if measured else 0
        finally:
            if measured:
                tracemalloc.stop()
        if isinstance(found, str):
            return found
        if took > LONGEST_S * (8 if measured else 1):
            return f"took {took:.1f} s of processor time for {len(data)} bytes"
        if peak > MEMORY_TIMES * len(data) + MEMORY_BYTES:
            return f"held {peak} bytes for {len(data)}"
        outside = [each for each in touched if str(folder) not in each]
        return f"touched what is not its own: {outside[:3]}" if outside else None

    def _outcome(self, data: bytes, folder: Path) -> str | None:
        try:
            value = self.read(data, folder)
        except MillpondError as error:
            return _bad_words(error)
        except BaseException as error:  # noqa: BLE001 - whatever it is, a reader must not raise it
            return f"raised {type(error).__name__}: {str(error)[:_TOLD]}"
        outside = [path for path in self.paths(value) if leads_outside(path)]
        return f"names a path outside: {outside[0]!r}" if outside else None


def _bad_words(error: MillpondError) -> str | None:
    text = str(error)
    if not text.strip():
        return f"{type(error).__name__} says nothing"
    return f"{type(error).__name__} has {len(text)} letters" if len(text) > 100_000 else None


def leads_outside(path: str) -> bool:
    """Say whether *path*, joined to a folder, may lead out of it, or is no name of a file."""
    parts = PurePosixPath(path).parts
    return path.startswith("/") or ".." in parts or "\0" in path or "\\" in path


def measured(number: int) -> bool:
    """Say whether the memory of the input *number* is measured, which takes time."""
    return number % _MEASURED == 0


def of_text(read: Callable[[str], object], *unlike: type[Exception]) -> Callable[[bytes, Path], object]:
    """Read bytes as the text that they are; errors of *unlike*, which a small reader documents, are FormatErrors."""

    def read_text(data: bytes, _: Path) -> object:
        try:
            return read(data.decode("utf-8", "surrogateescape"))
        except unlike as error:
            raise FormatError(f"refused: {error}") from error

    return read_text


def of_bytes(read: Callable[[bytes], object]) -> Callable[[bytes, Path], object]:
    """Read bytes."""
    return lambda data, _: read(data)


def of_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """Read a file of the given name."""

    def read_file(data: bytes, folder: Path) -> object:
        (folder / name).write_bytes(data)
        return read(folder / name)

    return read_file
