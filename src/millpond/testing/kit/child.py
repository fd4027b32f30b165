"""
Cases that need another process: it makes the suite again, does one thing, and dies or answers.

The child reads one JSON object from its standard input: how to make the suite, the function to call, and its arguments.
It prints what the function gives as JSON.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from attrs import frozen

from millpond.errors import TransientError
from millpond.testing.kit.contract import NotShownError

_DEADLINE_S = 60.0
_CANNOT_BEGIN = 9
_CODE = "from millpond.testing.kit.child import main; main()"


@frozen
class ChildRecipe:
    """
    How a child process makes the world of a case.

    Attributes:
        suite: What ``Suite.recipe`` gave.
        folder: The case's folder.
    """

    suite: dict[str, str]
    folder: Path

    def start(self, function: str, **arguments: object) -> subprocess.Popen[bytes]:
        """Start a child that calls ``module:function`` of the kit with the suite, the folder and *arguments*."""
        told = {"suite": self.suite, "folder": str(self.folder), "function": function, "arguments": arguments}
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        child = subprocess.Popen(  # noqa: S603 - our own interpreter, our own code
            [sys.executable, "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        stdin = cast(Any, child.stdin)
        stdin.write(json.dumps(told).encode())
        stdin.close()
        child.stdin = None
        return child

    def ask(self, function: str, *, killed: bool = False, **arguments: object) -> Any:
        """Start a child, wait for it, and give its answer; with *killed* it has to die by its own hand."""
        return answer_of(self.start(function, **arguments), killed=killed)


def answer_of(child: subprocess.Popen[bytes], *, killed: bool = False) -> Any:
    """
    Give what *child* printed as its last line; with *killed* it has to have died by its own hand.

    Raises:
        NotShownError: The suite cannot be made in a process of its own.
        TransientError: It did not end in time, or failed.
    """
    try:
        out, err = child.communicate(timeout=_DEADLINE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise TransientError(f"a child process did not end within {_DEADLINE_S:g} s") from None
    if child.returncode == _CANNOT_BEGIN:
        raise NotShownError("the suite cannot be made in a process of its own")
    if (child.returncode != -9) if killed else (child.returncode != 0):
        said = err.decode(errors="replace")
        error = TransientError(f"a child process ended with {child.returncode}: {(said.splitlines() or [''])[-1]}")
        error.add_note(said[-4000:])
        raise error
    return json.loads(out.splitlines()[-1])


def answer(value: object) -> None:
    """Print the answer of this child."""
    print(json.dumps(value), flush=True)  # noqa: T201 - it is what the parent reads


def make_suite(recipe: dict[str, str]) -> Any:
    """Make the suite that *recipe* describes."""
    if "function" in recipe:
        return _named(recipe["function"])(recipe)
    path = Path(recipe["file"])
    spec = importlib.util.spec_from_file_location(f"kit_child_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    found: Any = module
    for name in recipe["class"].split("."):
        found = getattr(found, name)
    return found()


def _named(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def main() -> None:
    """Do what standard input says."""
    told = json.load(sys.stdin)
    try:
        suite = make_suite(told["suite"])
        suite.features(Path(told["folder"]) / "kept")
    except Exception:  # noqa: BLE001 - a class in a function, one that needs a fixture: the parent says that it is not shown
        import traceback

        traceback.print_exc()
        sys.exit(_CANNOT_BEGIN)
    answer(_named(told["function"])(suite, Path(told["folder"]), **told["arguments"]))
