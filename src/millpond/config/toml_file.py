"""The TOML file: read once, bounded, each value with its line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from millpond.config.locate import locate
from millpond.config.model import Origin
from millpond.config.problems import Problem
from millpond.config.tree import Tree, leaves

LARGEST_FILE = 1 << 20
"""Bytes; a longer file is no configuration."""

_LINE = re.compile(r"\(at line (\d+), column \d+\)")


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
    try:
        values = tomllib.loads(text)
        lines = locate(text)
    except tomllib.TOMLDecodeError as error:
        return tree, [_syntax_problem(name, str(error))]
    except RecursionError:
        return tree, [Problem((), "is nested too deeply", tree.base)]
    for path, value in leaves(values):
        tree.put(path, value, Origin(name, lines.get(path)))
    tree.origins |= {path: Origin(name, line) for path, line in lines.items()}
    return tree, []


def _syntax_problem(name: str, text: str) -> Problem:
    """Turn what ``tomllib`` says into a problem with its line."""
    found = _LINE.search(text)
    words = _LINE.sub("", text).strip()
    return Problem((), f"is not TOML: {words[:1].lower()}{words[1:]}", Origin(name, int(found[1]) if found else None))
