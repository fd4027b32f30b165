"""What ``strace`` says of the calls that change files, read into values."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import frozen

from millpond.errors import FormatError

TRACED = (
    "open,openat,creat,close,dup,dup2,dup3,fcntl,lseek,write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,rename,"
    "renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,truncate,ftruncate,sendfile,copy_file_range"
)

_WHOLE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+|\?).*", re.DOTALL)
_BEGUN = re.compile(r"(\d+) +(\w+)\((.*?),? *<unfinished \.\.\.>", re.DOTALL)
_ENDED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)\) += (-?\d+|0x[0-9a-f]+|\?).*", re.DOTALL)
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


@frozen
class Call:
    """
    One call that has ended well.

    Attributes:
        name: Its name.
        arguments: As strace writes them; texts in hex still.
        result: What it gave.
        begun: How many calls had ended well when it began.
    """

    name: str
    arguments: tuple[str, ...]
    result: int
    begun: int

    def number(self, at: int) -> int:
        """Give an argument that is a number; a place in brackets (``[5]``, ``[0] => [5]``) is its first."""
        return int(self.arguments[at].lstrip("[").partition("]")[0].split("<")[0], 0)

    def text(self, at: int) -> str:
        """Give an argument that is a path."""
        return self.data(at).decode("utf-8", "surrogateescape")

    def data(self, at: int) -> bytes:
        """
        Give the bytes of an argument: a text, or all texts of a vector.

        Raises:
            FormatError: strace has cut it short.
        """
        found = list(_TEXT.finditer(self.arguments[at]))
        if any(match[2] for match in found):
            raise FormatError(f"strace has cut the data of a {self.name}: let it print longer texts (-s)")
        return b"".join(bytes.fromhex(match[1].replace("\\x", "")) for match in found)


def command(log: Path) -> list[str] | None:
    """Give the beginning of a command that writes a trace to *log*; None where there is no strace."""
    if (strace := shutil.which("strace")) is None:
        return None
    return [strace, "-f", "-qq", "-xx", "-s", str(1 << 24), "-o", str(log), "-e", f"trace={TRACED}"]


def calls(lines: Iterable[str]) -> Iterator[Call]:
    """
    Give the calls that succeeded, in the order in which they ended.

    Raises:
        FormatError: A line is not what strace writes.
    """
    begun: dict[str, tuple[str, int]] = {}
    ended = 0
    for line in lines:
        if (match := _BEGUN.match(line)) is not None:
            begun[match[1]] = match[3], ended
            continue
        if (match := _ENDED.match(line)) is not None:
            before, since = begun.pop(match[1])
            arguments = ", ".join(filter(None, (before, match[3].strip(" ,"))))
        elif (match := _WHOLE.match(line)) is not None:
            arguments, since = match[3], ended
        elif " +++ " in line or " --- " in line or "= ?" in line:
            continue
        else:
            raise FormatError(f"not a line of strace: {line[:200]!r}")
        if match[4] != "?" and int(match[4], 0) >= 0:
            ended += 1
            yield Call(match[2], tuple(_split(arguments)), int(match[4], 0), since)


def _split(arguments: str) -> Iterator[str]:
    depth, begin, quoted = 0, 0, False
    for at, letter in enumerate(arguments):
        if letter == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif letter in "[{(":
            depth += 1
        elif letter in ")}]":
            depth -= 1
        elif letter == "," and depth == 0:
            yield arguments[begin:at].strip()
            begin = at + 1
    if arguments[begin:].strip():
        yield arguments[begin:].strip()
