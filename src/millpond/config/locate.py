"""
The line of every key in a TOML text, which no TOML reader for Python tells.

The text must be valid TOML 1.0: it was read by ``tomllib`` before. Dotted keys, inline tables, arrays and arrays of
tables are followed; a value's path is that of ``tomllib``'s result, with an index for each list.
"""

from __future__ import annotations

import re
import tomllib

from attrs import define, field

from millpond.config.model import KeyPath

_BLANK = re.compile(r"[ \t]*")
_NOTHING = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]*")


def locate(text: str) -> dict[KeyPath, int]:
    """Give the line, from 1, of each key, table, and list element of *text*."""
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


@define
class _Scanner:
    """Reads one text from front to back."""

    text: str
    place: int = 0
    line: int = 1
    lines: dict[KeyPath, int] = field(factory=dict)
    elements: dict[KeyPath, int] = field(factory=dict)
    """For each array of tables, the index of its last element."""

    def document(self) -> None:
        """Read all tables."""
        table: KeyPath = ()
        self.skip(_NOTHING)
        while self.place < len(self.text):
            if self.text.startswith("[[", self.place):
                table = self.array_header()
            elif self.text.startswith("[", self.place):
                table = self.header()
            else:
                self.assignment(table)
            self.skip(_NOTHING)

    def header(self) -> KeyPath:
        """Read ``[a.b]``."""
        line = self.line
        self.place += 1
        path = self.within_arrays(self.key())
        self.place += 1
        self.note(path, line)
        return path

    def array_header(self) -> KeyPath:
        """Read ``[[a.b]]``: one more element of that array."""
        line = self.line
        self.place += 2
        key = self.key()
        path = (*self.within_arrays(key[:-1]), key[-1])
        self.place += 2
        index = self.elements[path] = self.elements.get(path, -1) + 1
        self.note((*path, index), line)
        return (*path, index)

    def within_arrays(self, key: tuple[str, ...]) -> KeyPath:
        """Give the path of *key*, where a name of an array of tables stands for its last element."""
        path: KeyPath = ()
        for part in key:
            path = (*path, part)
            if path in self.elements:
                path = (*path, self.elements[path])
        return path

    def assignment(self, table: KeyPath) -> None:
        """Read ``a.b = value``."""
        line = self.line
        path = (*table, *self.key())
        self.note(path, line)
        self.place += 1  # the equals sign
        self.skip(_BLANK)
        self.value(path)

    def key(self) -> tuple[str, ...]:
        """Read a dotted key, and the blanks around it."""
        parts = [self.key_part()]
        while self.text.startswith(".", self.place):
            self.place += 1
            parts.append(self.key_part())
        return tuple(parts)

    def key_part(self) -> str:
        """Read one bare or quoted part of a key."""
        self.skip(_BLANK)
        quoted = self.text[self.place] in "\"'"
        raw = self.skip(_STRINGS if quoted else _BARE_KEY)
        self.skip(_BLANK)
        return str(tomllib.loads(f"key = {raw}")["key"]) if quoted else raw

    def value(self, path: KeyPath) -> None:
        """Read any value."""
        first = self.text[self.place]
        if first == "[":
            self.array(path)
        elif first == "{":
            self.inline_table(path)
        elif first in "\"'":
            self.skip(_STRINGS)
        else:
            self.skip(_SCALAR)

    def array(self, path: KeyPath) -> None:
        """Read ``[a, b]``, over any number of lines."""
        index = 0
        self.place += 1
        self.skip(_NOTHING)
        while self.text[self.place] != "]":
            self.lines[(*path, index)] = self.line
            self.value((*path, index))
            self.separator()
            index += 1
        self.place += 1

    def inline_table(self, path: KeyPath) -> None:
        """Read ``{a = 1, b = 2}``."""
        self.place += 1
        self.skip(_NOTHING)
        while self.text[self.place] != "}":
            self.assignment(path)
            self.separator()
        self.place += 1

    def separator(self) -> None:
        """Read the comma after a value, if there is one, and all that means nothing."""
        self.skip(_NOTHING)
        if self.text[self.place] == ",":
            self.place += 1
            self.skip(_NOTHING)

    def note(self, path: KeyPath, line: int) -> None:
        """Keep the line of *path*, and of the tables around it if they have none of their own."""
        for depth in range(1, len(path)):
            self.lines.setdefault(path[:depth], line)
        self.lines[path] = line

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Go past what *pattern* matches here."""
        match = pattern.match(self.text, self.place)
        found = match.group() if match else ""
        self.place += len(found)
        self.line += found.count("\n")
        return found
