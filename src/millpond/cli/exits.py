"""
How the command ends: exit codes, and an error in a few plain lines.

The codes are part of the interface, see ``docs/command.md``.
"""

from __future__ import annotations

import os
import sys

import click

from millpond.errors import (
    ConfigError,
    FencedError,
    FormatError,
    MillpondError,
    PluginError,
    StateCorruptError,
    StateNotFoundError,
    TransientError,
)

OK = 0
NOT_OK = 1
USAGE = 2
NOT_FOUND = 3
CORRUPT = 4
TRANSIENT = 5
UNREADABLE = 6
UNEXPECTED = 70
INTERRUPTED = 130
PIPE_CLOSED = 141

DEBUG = "millpond.debug"
"""The key in the context's ``meta`` under which ``--debug`` is noted."""

CHANGED = "millpond.changed"
"""The key in the context's ``meta`` under which a command that writes says what it has done so far."""


class NoSuchKeyError(StateNotFoundError):
    """A store has no such key."""


_EXITS: tuple[tuple[type[MillpondError], int, str], ...] = (
    (PluginError, USAGE, "`millpond backends` shows what is installed"),
    (ConfigError, USAGE, "correct that, then see `millpond config check`"),
    (NoSuchKeyError, NOT_FOUND, "`millpond state scan` shows which keys there are"),
    (StateNotFoundError, NOT_FOUND, "`millpond checkpoints list` shows what there is"),
    (StateCorruptError, CORRUPT, "`millpond checkpoints verify` shows which copies are whole"),
    (TransientError, TRANSIENT, "try again; if it stays, look at the place that did not answer"),
    (FormatError, UNREADABLE, "a newer release or another program wrote it: update millpond"),
    (FencedError, TRANSIENT, "another process owns the task"),
)


def exit_code(error: BaseException) -> int:
    """Give the code with which the command ends after *error*."""
    return next((code for kind, code, _ in _EXITS if isinstance(error, kind)), UNEXPECTED)


def tell(error: Exception) -> int:
    """Write *error* to standard error: what, where and what to do. Gives the exit code."""
    code = exit_code(error)
    what = str(error) if isinstance(error, MillpondError) else f"{type(error).__name__}: {error}"
    click.echo(f"millpond: {what or type(error).__name__}", err=True)
    for note in getattr(error, "__notes__", ()):
        click.echo(f"  {note}", err=True)
    click.echo(f"  {_what_to_do(error)}", err=True)
    return code


def _what_to_do(error: Exception) -> str:
    known = next((todo for kind, _, todo in _EXITS if isinstance(error, kind)), None)
    return known or "nobody expected this: run the command again with --debug, and report what it shows"


def is_debugging(ctx: click.Context) -> bool:
    """Tell whether ``--debug`` was given."""
    return bool(ctx.find_root().meta.get(DEBUG))


def changing(done: str) -> None:
    """Note what the command has *done* so far, for whoever interrupts it."""
    click.get_current_context().find_root().meta[CHANGED] = done


def end_quietly() -> int:
    """Make Python's own flush at exit write nowhere: the reader of our output is gone. Gives the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return PIPE_CLOSED
