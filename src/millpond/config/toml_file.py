"""The TOML file: read once, bounded, each value with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from millpond.config.locate import locate
from millpond.config.mapping import DEEPEST
from millpond.config.model import Origin
from millpond.config.problems import Problem
from millpond.config.tree import Tree, leaves

LARGEST_FILE = 1 << 20
"""Bytes; a longer file is no configuration."""

_LINE = re.compile(r"\(at line (\d+), column \d+\)")

_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"""(?<![\w."'-])(?:{_PART}[ \t]*+\.[ \t]*+){{{4 * DEEPEST}}}""")
"""A key with so many parts costs a reader of TOML time that grows with their square."""

_KEY = re.compile(r"\s*([A-Za-z0-9_.-]+(?=\s*=)|\[[^\]]*\])")
_DOUBLED = re.compile(r"Cannot overwrite a value|Cannot declare \(.*\) twice")


def read_text(name: str) -> str | Problem:
    """Read the file *name*, or say why it cannot be read."""
    origin, path = Origin(name), Path(name)
    try:
        if not path.is_file():
            return Problem((), _why_no_file(path), origin)
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        return Problem((), f"cannot be read: {getattr(error, 'strerror', None) or error}", origin)
    if len(data) > LARGEST_FILE:
        return Problem((), f"is longer than {LARGEST_FILE} bytes: not a configuration", origin)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Problem((), "is not text in UTF-8", Origin(name, line))


def _why_no_file(path: Path) -> str:
    """Say what stands where a file should be."""
    if path.is_dir():
        return "is a folder, not a file"
    return "is not a regular file" if path.exists() else "there is no such file"


def parse_toml(name: str, text: str) -> tuple[Tree, list[Problem]]:
    """Read the TOML *text* of the file *name*."""
    tree = Tree(Origin(name))
    if _DEEP_KEY.search(text):
        return tree, [Problem((), "is nested too deeply", tree.base)]
    try:
        values = tomllib.loads(text)
        if _is_deep(values):
            return tree, [Problem((), "is nested too deeply", tree.base)]
        lines = locate(text)
    except tomllib.TOMLDecodeError as error:
        return tree, [_syntax_problem(name, text, str(error))]
    except RecursionError:
        return tree, [Problem((), "is nested too deeply", tree.base)]
    for path, value in leaves(values):
        tree.put(path, value, Origin(name, lines.get(path)))
    tree.origins |= {path: Origin(name, line) for path, line in lines.items()}
    return tree, []


def _is_deep(values: Mapping[str, object]) -> bool:
    """Say whether more tables lie within one another than anybody has a use for."""
    tables = [values]
    for _ in range(DEEPEST + 1):
        tables = [inner for table in tables for inner in table.values() if isinstance(inner, Mapping)]
    return bool(tables)


def _syntax_problem(name: str, text: str, said: str) -> Problem:
    """Turn what ``tomllib`` has *said* of the *text* into a problem with its line, and its key if that is doubled."""
    found = _LINE.search(said)
    line = int(found[1]) if found else None
    words = _LINE.sub("", said).strip()
    doubled = _doubled(text, line) if _DOUBLED.fullmatch(words) else None
    told = f"{doubled} is set for the second time" if doubled else f"{words[:1].lower()}{words[1:]}"
    return Problem((), f"is not TOML: {told}", Origin(name, line))


def _doubled(text: str, line: int | None) -> str | None:
    """Give the key or the section on *line*; never anything of its value, which may be a secret."""
    lines = text.splitlines()
    found = _KEY.match(lines[line - 1]) if line is not None and line <= len(lines) else None
    return found[1] if found else None
