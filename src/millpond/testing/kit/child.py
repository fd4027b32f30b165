"""
Cases that need another process: it makes the suite again, does one thing, and dies or answers.

The child reads a line of JSON from its standard input: how to make the suite, the function to call, and its arguments.
It prints what the function gives as JSON. Whatever becomes of the case, its children end with it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
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

    @contextmanager
    def running(self, function: str, *arguments: Mapping[str, object]) -> Iterator[list[Child]]:
        """
        Run a child for each of *arguments* until the block ends: each calls ``module:function`` of the kit with the
        suite, the folder and its arguments. However the block ends, no child outlives it.
        """
        with ExitStack() as stack:
            yield [stack.enter_context(self._running(function, each)) for each in arguments]

    @contextmanager
    def _running(self, function: str, arguments: Mapping[str, object]) -> Iterator[Child]:
        told = {"suite": self.suite, "folder": str(self.folder), "function": function, "arguments": arguments}
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own code
            [sys.executable, "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        child = Child(process)
        try:
            child.tell(told)
            yield child
        finally:
            child.end()

    def ask(self, function: str, *, killed: bool = False, **arguments: object) -> Any:
        """Run a child, and give its answer; with *killed* it has to die by its own hand."""
        with self.running(function, arguments) as (child,):
            return child.answer(killed=killed)

    def ask_all(self, function: str, *arguments: Mapping[str, object]) -> list[Any]:
        """Run a child for each of *arguments*, all at once, and give their answers."""
        with self.running(function, *arguments) as children:
            return [child.answer() for child in children]


@frozen(eq=False)
class Child:
    """A child process that works for a case. One thread."""

    _process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """How it ended; None while it lives."""
        return self._process.poll()

    def tell(self, value: object) -> None:
        """Send a line that it can wait for; one that has ended hears nothing."""
        stdin = cast(Any, self._process.stdin)
        with suppress(BrokenPipeError):
            stdin.write(json.dumps(value).encode() + b"\n")
            stdin.flush()

    def hear(self) -> Any:
        """
        Give the next line that it prints, and print no other before it is told something.

        Raises:
            NotShownError, TransientError: As for ``answer``.
        """
        stdout = cast(Any, self._process.stdout)
        if not select.select([stdout], [], [], _DEADLINE_S)[0]:
            raise TransientError(f"a child process said nothing within {_DEADLINE_S:g} s")
        if line := stdout.readline():
            return json.loads(line)
        self.answer()
        raise TransientError("a child process ended before it said anything")

    def answer(self, *, killed: bool = False) -> Any:
        """
        Wait for its end, and give what it printed as its last line; with *killed* it has to have died by its own hand.

        Raises:
            NotShownError: The suite cannot be made in a process of its own.
            TransientError: It did not end in time, or failed.
        """
        process = self._process
        try:
            out, err = process.communicate(timeout=_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise TransientError(f"a child process did not end within {_DEADLINE_S:g} s") from None
        if process.returncode == _CANNOT_BEGIN:
            raise NotShownError("the suite cannot be made in a process of its own")
        if (process.returncode != -signal.SIGKILL) if killed else (process.returncode != 0):
            said = err.decode(errors="replace")
            error = TransientError(
                f"a child process ended with {process.returncode}: {(said.splitlines() or [''])[-1]}"
            )
            error.add_note(said[-4000:])
            raise error
        if not out:
            raise TransientError("a child process ended without an answer")
        return json.loads(out.splitlines()[-1])

    def end(self) -> None:
        """Kill it if it lives, and close its pipes."""
        process = self._process
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


def answer(value: object) -> None:
    """Print the answer of this child."""
    print(json.dumps(value), flush=True)  # noqa: T201 - it is what the parent reads


def await_word() -> None:
    """Wait until the parent tells this child something; end if it never will."""
    if not sys.stdin.readline():
        sys.exit(1)


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
    told = json.loads(sys.stdin.readline())
    try:
        suite = make_suite(told["suite"])
        suite.features(Path(told["folder"]) / "kept")
    except Exception:  # noqa: BLE001 - a class in a function, one that needs a fixture: the parent says that it is not shown
        import traceback

        traceback.print_exc()
        sys.exit(_CANNOT_BEGIN)
    answer(_named(told["function"])(suite, Path(told["folder"]), **told["arguments"]))
