"""
A disk that forgets what was not synced: files, folders, and what a power cut may leave of them.

A file's writes are durable once it was synced, and the names in a folder once the folder was: nothing else makes
anything durable. That is less than any file system of today promises, so what survives here survives there.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Union

from attrs import define, field, frozen

from millpond.errors import FormatError
from millpond.testing.lab.syscalls import Call


class Kept(Enum):
    """What a power cut leaves of what was not synced."""

    NOTHING = "nothing"
    ALL = "all"
    NAMES = "names without content"
    ZEROS = "names, and zeros for content"
    CONTENT = "content without names"
    SOME = "some of both, the last write torn"


@frozen
class Write:
    """
    A change to a file's content that was not synced yet.

    Attributes:
        at: When, counted in calls.
        start: Where.
        data: What.
        cut: The file ends at *start* instead.
    """

    at: int
    start: int
    data: bytes = b""
    cut: bool = False

    def do(self, content: bytearray) -> None:
        """Make the change to *content*."""
        if self.cut:
            del content[self.start :]
        content.extend(bytes(max(0, self.start - len(content))))
        content[self.start : self.start + len(self.data)] = self.data


@define(eq=False)
class File:
    """
    A file, under any number of names.

    Attributes:
        now: Its content.
        safe: Its content at its last sync.
        pending: What was done since.
    """

    now: bytearray = field(factory=bytearray)
    safe: bytearray = field(factory=bytearray)
    pending: list[Write] = field(factory=list)

    def change(self, write: Write) -> None:
        """Do *write*."""
        write.do(self.now)
        self.pending.append(write)

    def sync(self, until: int) -> None:
        """Make durable what was done before the call number *until*."""
        for write in (each for each in self.pending if each.at < until):
            write.do(self.safe)
        self.pending = [each for each in self.pending if each.at >= until]

    def after_a_cut(self, kept: Kept, chance: random.Random) -> bytes:
        """Give what may be left of it."""
        if kept in (Kept.NOTHING, Kept.NAMES):
            return bytes(self.safe)
        if kept is Kept.ZEROS:
            return bytes(self.safe) + bytes(max(0, len(self.now) - len(self.safe)))
        if kept is not Kept.SOME:
            return bytes(self.now)
        content, count = bytearray(self.safe), chance.randint(0, len(self.pending))
        for write in self.pending[:count]:
            write.do(content)
        for torn in self.pending[count : count + 1]:
            Write(0, torn.start, torn.data[: chance.randint(0, len(torn.data))]).do(content)
        return bytes(content)


@frozen
class Naming:
    """
    A change to a folder that was not synced yet: *gone* goes and *name* leads to *node*, both at once.

    Attributes:
        at: When, counted in calls.
        gone: A name that goes; empty: none.
        name: A name that comes; empty: none.
        node: What it leads to.
    """

    at: int
    gone: str = ""
    name: str = ""
    node: Node | None = None

    def do(self, names: dict[str, Node]) -> None:
        """Make the change to *names*."""
        if self.gone:
            names.pop(self.gone, None)
        if self.name and self.node is not None:
            names[self.name] = self.node


@define(eq=False)
class Folder:
    """
    A folder.

    Attributes:
        now: Its names.
        safe: Its names at its last sync.
        pending: What was done since.
    """

    now: dict[str, Node] = field(factory=dict)
    safe: dict[str, Node] = field(factory=dict)
    pending: list[Naming] = field(factory=list)

    def change(self, naming: Naming) -> None:
        """Do *naming*."""
        naming.do(self.now)
        self.pending.append(naming)

    def sync(self, until: int) -> None:
        """Make durable what was done before the call number *until*."""
        for naming in (each for each in self.pending if each.at < until):
            naming.do(self.safe)
        self.pending = [each for each in self.pending if each.at >= until]

    def after_a_cut(self, kept: Kept, chance: random.Random) -> Mapping[str, Node]:
        """Give what may be left of its names: what was done last is lost first."""
        if kept in (Kept.NOTHING, Kept.CONTENT):
            return self.safe
        if kept is not Kept.SOME:
            return self.now
        names = dict(self.safe)
        for naming in self.pending[: chance.randint(0, len(self.pending))]:
            naming.do(names)
        return names


Node = Union[File, Folder]  # noqa: UP007 - named above, where it is not known yet


@define
class _Opened:
    node: Node
    place: int = 0
    appends: bool = False


@define
class Disk:
    """
    All below one folder, driven by the calls of a process.

    Attributes:
        root: The folder's path.
        top: The folder.
    """

    root: str
    top: Folder = field(factory=Folder)
    _open: dict[int, _Opened] = field(factory=dict)
    _since: dict[int, int] = field(factory=dict)
    _at: int = 0

    @classmethod
    def of(cls, path: Path) -> Disk:
        """Give the disk as *path* is now, all of it durable."""
        disk = cls(str(path))
        files: dict[tuple[int, int], File] = {}

        def read(folder: Path) -> Folder:
            names: dict[str, Node] = {}
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    names[entry.name] = read(Path(entry.path))
                    continue
                status = entry.stat()
                content = Path(entry.path).read_bytes()
                key = (status.st_dev, status.st_ino)
                names[entry.name] = files.setdefault(key, File(bytearray(content), bytearray(content)))
            return Folder(dict(names), names)

        disk.top = read(path)
        return disk

    def do(self, call: Call) -> bool:
        """Do *call*; say whether anything below the folder changed, or was synced."""
        self._at += 1
        work: Callable[[Call], bool] | None = getattr(self, f"_{call.name}", None)
        return work is not None and work(call)

    def write_now(self, target: Path) -> None:
        """Write all as it is into the new folder *target*."""
        self.write_after_a_cut(target, Kept.ALL, random.Random(0))  # noqa: S311 - not used

    def write_after_a_cut(self, target: Path, kept: Kept, chance: random.Random) -> None:
        """Write what a power cut may leave into the new folder *target*."""

        def write(folder: Folder, path: Path) -> None:
            path.mkdir()
            for name, node in folder.after_a_cut(kept, chance).items():
                if isinstance(node, Folder):
                    write(node, path / name)
                else:
                    (path / name).write_bytes(node.after_a_cut(kept, chance))

        write(self.top, target)

    # ------------------------------------------------------------------------------------------------ finding

    def _find(self, directory: int | None, text: str) -> tuple[Folder, str] | None:
        """Give the folder and the last name of a path; None if it is not of this disk."""
        folder: Node = self.top
        if text.startswith("/"):
            if text != self.root and not text.startswith(self.root + "/"):
                return None
            text = text[len(self.root) :]
        elif directory is not None and directory in self._open:
            folder = self._open[directory].node
        else:
            return None
        parts = [part for part in text.split("/") if part not in ("", ".")]
        for part in parts[:-1]:
            folder = _folder(folder).now[part]
        return _folder(folder), parts[-1] if parts else ""

    @staticmethod
    def _directory(argument: str) -> int | None:
        return int(argument) if argument.isdecimal() else None

    # ------------------------------------------------------------------------------------------------- opening

    def _open_at(self, call: Call, directory: str, path: int, flags: str) -> bool:
        self._open.pop(call.result, None)
        found = self._find(self._directory(directory), call.text(path))
        if found is None:
            return False
        folder, name = found
        node: Node | None = folder.now.get(name) if name else folder
        if made := node is None:
            node = File()
            folder.change(Naming(self._at, name=name, node=node))
        if "O_TRUNC" in flags and isinstance(node, File) and node.now:
            node.change(Write(self._at, 0, cut=True))
            made = True
        self._open[call.result] = _Opened(node, 0, "O_APPEND" in flags)
        self._since[call.result] = self._at
        return made

    def _openat(self, call: Call) -> bool:
        return self._open_at(call, call.arguments[0], 1, call.arguments[2])

    def _creat(self, call: Call) -> bool:
        return self._open_at(call, "", 0, "O_TRUNC")

    def _close(self, call: Call) -> bool:
        # The kernel frees the number as the close begins: what another thread opened since has it, and is open.
        if self._since.get(call.number(0), 0) <= call.begun:
            self._open.pop(call.number(0), None)
        return False

    def _dup(self, call: Call) -> bool:
        opened = self._open.get(call.number(0))
        self._open.pop(call.result, None)
        if opened is not None:
            self._open[call.result] = opened
            self._since[call.result] = self._at
        return False

    _dup2 = _dup3 = _dup

    def _fcntl(self, call: Call) -> bool:
        return self._dup(call) if call.arguments[1].startswith("F_DUPFD") else False

    def _lseek(self, call: Call) -> bool:
        if opened := self._open.get(call.number(0)):
            opened.place = call.result
        return False

    # ------------------------------------------------------------------------------------------------- content

    def _put(self, descriptor: int, data: bytes, start: int | None) -> bool:
        opened = self._open.get(descriptor)
        if opened is None or not isinstance(opened.node, File):
            return False
        if start is None:
            begin = len(opened.node.now) if opened.appends else opened.place
            opened.place = begin + len(data)
        else:
            begin = start
        opened.node.change(Write(self._at, begin, data))
        return True

    def _write(self, call: Call) -> bool:
        return call.number(0) in self._open and self._put(call.number(0), call.data(1)[: call.result], None)

    _writev = _write

    def _pwrite64(self, call: Call) -> bool:
        return call.number(0) in self._open and self._put(
            call.number(0), call.data(1)[: call.result], int(call.arguments[3])
        )

    _pwritev = _pwritev2 = _pwrite64

    def _sendfile(self, call: Call) -> bool:
        source = self._open.get(call.number(1))
        if source is None or not isinstance(source.node, File):
            return False
        start = call.number(2)
        return self._put(call.number(0), bytes(source.node.now[start : start + call.result]), None)

    def _copy_file_range(self, call: Call) -> bool:
        source = self._open.get(call.number(0))
        if source is None or not isinstance(source.node, File):
            return False
        start = source.place if call.arguments[1] == "NULL" else call.number(1)
        source.place += call.result
        target = None if call.arguments[3] == "NULL" else call.number(3)
        return self._put(call.number(2), bytes(source.node.now[start : start + call.result]), target)

    def _ftruncate(self, call: Call) -> bool:
        opened = self._open.get(call.number(0))
        return opened is not None and self._cut(opened.node, call.number(1))

    def _truncate(self, call: Call) -> bool:
        found = self._find(None, call.text(0))
        return found is not None and self._cut(found[0].now[found[1]], call.number(1))

    def _cut(self, node: Node, size: int) -> bool:
        if isinstance(node, File):
            node.change(Write(self._at, size, cut=True))
        return True

    def _fsync(self, call: Call) -> bool:
        opened = self._open.get(call.number(0))
        if opened is not None:
            opened.node.sync(call.begun + 1)
        return opened is not None

    _fdatasync = _fsync

    # --------------------------------------------------------------------------------------------------- names

    def _name(self, directory: str, path: str, node: Node | None) -> bool:
        found = self._find(self._directory(directory), path)
        if found is None:
            return False
        folder, name = found
        folder.change(Naming(self._at, name=name, node=node) if node is not None else Naming(self._at, gone=name))
        return True

    def _mkdir(self, call: Call) -> bool:
        return self._name("", call.text(0), Folder())

    def _mkdirat(self, call: Call) -> bool:
        return self._name(call.arguments[0], call.text(1), Folder())

    def _unlink(self, call: Call) -> bool:
        return self._name("", call.text(0), None)

    _rmdir = _unlink

    def _unlinkat(self, call: Call) -> bool:
        return self._name(call.arguments[0], call.text(1), None)

    def _link(self, call: Call) -> bool:
        return self._link_at("", call.text(0), "", call.text(1))

    def _linkat(self, call: Call) -> bool:
        return self._link_at(call.arguments[0], call.text(1), call.arguments[2], call.text(3))

    def _link_at(self, directory: str, path: str, to_directory: str, to: str) -> bool:
        found = self._find(self._directory(directory), path)
        return found is not None and self._name(to_directory, to, found[0].now[found[1]])

    def _rename(self, call: Call) -> bool:
        return self._rename_at("", call.text(0), "", call.text(1))

    def _renameat(self, call: Call) -> bool:
        return self._rename_at(call.arguments[0], call.text(1), call.arguments[2], call.text(3))

    _renameat2 = _renameat

    def _rename_at(self, directory: str, path: str, to_directory: str, to: str) -> bool:
        source, target = self._find(self._directory(directory), path), self._find(self._directory(to_directory), to)
        if source is None or target is None:
            return False
        node = source[0].now[source[1]]
        if source[0] is target[0]:
            target[0].change(Naming(self._at, gone=source[1], name=target[1], node=node))
        else:
            target[0].change(Naming(self._at, name=target[1], node=node))
            source[0].change(Naming(self._at, gone=source[1]))
        return True


def _folder(node: Node) -> Folder:
    if not isinstance(node, Folder):
        raise FormatError("a call of the trace goes through a file as if it were a folder")
    return node


def tree(path: Path) -> Iterator[tuple[str, bytes | None]]:
    """Give all below *path*, sorted by name: files with their content, folders with None."""
    for each in sorted(path.rglob("*")):
        yield str(each.relative_to(path)), None if each.is_dir() else each.read_bytes()
