"""What commands ask for: the configuration, a task, JSON; and the reader that they then open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from millpond.cli.exits import DEBUG
from millpond.errors import StateNotFoundError

if TYPE_CHECKING:
    from millpond.reading import JobReader

VARIABLE = "MILLPOND_CONFIG"
DEFAULT_FILE = "job.toml"

F = TypeVar("F", bound=Callable[..., Any])


def _debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Note that tracebacks are wanted, and show the log."""
    if value:
        import logging

        ctx.find_root().meta[DEBUG] = True
        logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s: %(message)s")


config_option = click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    help=f"The job's configuration. Default: ${VARIABLE}, or {DEFAULT_FILE} in this folder.",
)
task_option = click.option("-t", "--task", metavar="TASK", help="The task.")
at_option = click.option("--at", metavar="CHECKPOINT", help="A checkpoint's id, or a pin. Default: the newest.")
hex_option = click.option("--hex", "as_hex", is_flag=True, help="Keys are given, and bytes are shown, as hex.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON; its fields are stable.")
debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_debug,
    help="Show the log, and a traceback when something fails.",
)


def job_options(command: F) -> F:
    """Give *command* the options ``--config``, ``--task``, ``--json`` and ``--debug``."""
    for option in (debug_option, json_option, task_option, config_option):
        command = option(command)
    return command


def config_path(given: str | None) -> str:
    """Give the file of the job's configuration; a wrong usage if there is none."""
    path = given or os.environ.get(VARIABLE) or DEFAULT_FILE
    if os.path.isfile(path):  # noqa: PTH113 - pathlib takes a fifth of the whole time of `--help`
        return path
    where = "--config" if given else f"${VARIABLE}" if os.environ.get(VARIABLE) else "no --config, and this folder"
    hint = "" if given else f": name the job's configuration with --config or in ${VARIABLE}"
    what = f"{path} is a folder, not a file" if os.path.isdir(path) else f"there is no file {path}"  # noqa: PTH112
    raise click.UsageError(f"{what} ({where}){hint}")


@contextmanager
def open_reader(config_file: str | None) -> Iterator[JobReader]:
    """Open the job for reading; how restores go is shown on standard error."""
    from millpond.progress import ProgressBar
    from millpond.reading import JobReader

    path = config_path(config_file)
    with ProgressBar() as bar, JobReader(path, listener=bar) as reader:
        _warn(reader)
        yield reader


def _warn(reader: JobReader) -> None:
    if not reader.manager.capabilities.durable:
        click.echo(
            f"millpond: the checkpoint manager {reader.config.checkpoint.manager!r} keeps its records in the job's own "
            f"process: nothing of them can be seen from here",
            err=True,
        )


def tasks_for(reader: JobReader, task: str | None) -> list[str]:
    """
    Give *task*, or all tasks.

    Raises:
        StateNotFoundError: Nobody knows it, or there is none at all.
    """
    if task is not None:
        reader.check_task(task)
        return [task]
    found = reader.tasks()
    if not found:
        raise StateNotFoundError(f"job {reader.config.name!r} has no task yet: it has never committed")
    return found


def one_task(reader: JobReader, task: str | None) -> str:
    """
    Give *task*, or the only one that there is; a wrong usage if there are several.

    Raises:
        StateNotFoundError: Nobody knows it, or there is none at all.
    """
    from millpond.progress.words import listed

    found = tasks_for(reader, task)
    if len(found) > 1:
        names = listed(found)
        raise click.UsageError(f"job {reader.config.name!r} has several tasks, choose one with --task: {names}")
    return found[0]
