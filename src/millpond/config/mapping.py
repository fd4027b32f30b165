"""A mapping as a source: tables of Python values, copied and bounded."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.config.model import KeyPath, Origin
from millpond.config.problems import Problem
from millpond.config.tree import Tree

DEEPEST = 16
"""The most tables within one another; a mapping may also hold itself."""


def mapping_tree(values: Mapping[str, object]) -> tuple[Tree, list[Problem]]:
    """Take a mapping of sections; a key whose value is None is as good as missing."""
    tree = Tree(Origin("mapping"))
    problems: list[Problem] = []
    _take(values, (), tree, problems)
    return tree, problems


def _take(values: Mapping[str, object], path: KeyPath, tree: Tree, problems: list[Problem]) -> None:
    """Copy one table into *tree*."""
    if len(path) > DEEPEST:
        problems.append(Problem(path[:3], "is nested too deeply", tree.base))
        return
    for key, value in values.items():
        if not isinstance(key, str):
            problems.append(Problem(path, f"expected text for each key, found a {type(key).__name__}", tree.base))
        elif isinstance(value, Mapping) and value:
            _take(value, (*path, key), tree, problems)
        elif value is not None:
            tree.put((*path, key), value, tree.base)
