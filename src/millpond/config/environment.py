"""
Environment variables as a source: ``MILLPOND_STORES__ORDERS__ENGINE=rocksdb``.

``__`` stands between the parts of a key. A part stands for the known name that it equals when letter case is ignored
and ``_`` and ``-`` are one; without such a name it is taken in lower case. A variable without ``__`` is none of ours:
an orchestrator sets some of its own, such as ``MILLPOND_SERVICE_HOST`` for a service called *millpond*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millpond.config.mapping import DEEPEST
from millpond.config.model import KeyPath, Origin
from millpond.config.problems import Problem, did_you_mean
from millpond.config.sections import TOP
from millpond.config.tree import Tree
from millpond.config.values import FlatText

PREFIX = "MILLPOND_"


def environment_tree(environ: Mapping[str, str], others: Iterable[Tree]) -> tuple[Tree, list[Problem], list[str]]:
    """Take our variables out of *environ*; the names in *others* are known. Gives problems and notes too."""
    tree, known = Tree(Origin("environment")), list(others)
    problems: list[Problem] = []
    notes: list[str] = []
    for name in sorted(name for name in environ if name.upper().startswith(PREFIX)):
        parts = name[len(PREFIX) :].split("__")
        if len(parts) == 1:
            notes += _note(name)
        elif (problem := _take(tree, known, name, parts, environ[name])) is not None:
            problems.append(problem)
    return tree, problems, notes


def _take(tree: Tree, known: list[Tree], name: str, parts: list[str], text: str) -> Problem | None:
    """Put one variable into *tree*, or say what is wrong with its name."""
    origin = Origin("environment", key=name)
    if len(parts) > DEEPEST:
        return Problem((), "the variable's name has too many parts", Origin("environment", key=f"{name[:200]}…"))
    if not all(parts):
        return Problem((), "part of the variable's name is empty", origin)
    section = parts[0].lower()
    if section not in TOP:
        return Problem((), f'no section "{section}"{did_you_mean(section, TOP)}', origin)
    path = _known_path((*known, tree), parts)
    if path in tree.origins:
        return Problem(path, f"is set twice, by {tree.origins[path].key} too", origin)
    tree.put(path, FlatText(text), origin)
    return None


def _known_path(trees: Iterable[Tree], parts: list[str]) -> KeyPath:
    """Give the path that *parts* stand for."""
    path: tuple[str, ...] = ()
    for part in parts:
        names = [name for tree in trees for name in tree.table(*path)]
        path = (*path, next((name for name in names if _plain(name) == _plain(part)), part.lower()))
    return path


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _note(name: str) -> list[str]:
    """Remark on a variable that may have been meant for us: it begins with one of our sections."""
    section = name[len(PREFIX) :].partition("_")[0].lower()
    if section not in TOP:
        return []
    return [f"environment: {name} is not read: write two underscores between the parts of a key"]
