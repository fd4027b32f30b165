"""
The ``millpond`` command: one file for each group of commands, loaded when it is called.

``asking`` has the options that commands share, ``exits`` the exit codes and the lines of an error, ``tables`` and
``values`` what is printed. Only ``click`` is loaded until a command runs.
"""

from __future__ import annotations

import click

from millpond.cli.lazy import LazyGroup

COMMANDS = {
    "backends": "List the plugins that are installed, and why one cannot be used.",
    "checkpoints": "List, show, compare, verify and pin the checkpoints of a job.",
    "config": "Check a job's configuration, or explain each of its values.",
    "conform": "Try whether a plugin keeps its contract.",
    "coordinator": "Show the record of a job's coordinator: who leads, what is whole.",
    "doctor": "Try what a job relies on: disk, permissions, races, clocks.",
    "gc": "Remove what no checkpoint needs any more.",
    "heron-ckptmgr": "Serve Heron's checkpoint manager from any store.",
    "restore": "Explain where a restore would take each store from.",
    "savepoint": "Keep checkpoints under a name, and copy them elsewhere.",
    "state": "Look into a store as a checkpoint has it.",
}


@click.group(cls=LazyGroup, commands_by_name=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="millpond", message="millpond %(version)s")
def main() -> None:
    """
    Look at a Millpond job: its configuration, its checkpoints and its state.

    Nothing here claims a task or takes a lock: a job that runs meanwhile notices nothing.
    """


__all__ = ["main"]
