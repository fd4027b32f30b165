"""``millpond config``: whether a configuration is right, and where each value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from millpond.cli.asking import config_option, config_path, debug_option, json_option
from millpond.cli.exits import NOT_OK
from millpond.errors import ConfigError

if TYPE_CHECKING:
    from millpond.config import JobConfig, Origin

file_argument = click.argument("file", required=False, metavar="[FILE]")


@click.group("config")
def command() -> None:
    """Check a job's configuration, or explain each of its values."""


@command.command("check")
@file_argument
@config_option
@json_option
@debug_option
def check(file: str | None, config_file: str | None, as_json: bool) -> None:
    """Report every problem of FILE at once; exit code 1 if there is one."""
    from millpond.config import load

    path = config_path(file or config_file)
    try:
        config = load(path)
    except ConfigError as error:
        _report_problems(path, error, as_json)
        click.get_current_context().exit(NOT_OK)
    if as_json:
        from millpond.cli.tables import print_json

        print_json({"file": path, "ok": True, "job": config.name, "problems": [], "notes": list(config.notes)})
        return
    click.echo(f"{path}: ok: {_summary(config)}")
    for note in config.notes:
        click.echo(f"  note: {note}")


def _summary(config: JobConfig) -> str:
    from millpond.progress.words import count_text

    tasks = "any task" if config.tasks is None else count_text(len(config.tasks), "task")
    stores, backends = count_text(len(config.stores), "store"), count_text(len(config.backends), "backend")
    return f"job {config.name}, {tasks}, {stores}, {backends}, checkpoints by {config.checkpoint.manager}"


def _report_problems(path: str, error: ConfigError, as_json: bool) -> None:
    from millpond.cli.tables import print_json
    from millpond.config.problems import ConfigProblemsError, show_path

    problems = error.problems if isinstance(error, ConfigProblemsError) else ()
    if not as_json:
        click.echo("\n".join(map(str, problems)) or str(error))
        click.echo(f"millpond: {path} has {len(problems) or 1} problem{'s' if len(problems) > 1 else ''}", err=True)
        return
    rows: list[dict[str, object]] = [
        {"key": show_path(problem.path) or None, "text": problem.text, **_place(problem.origin)} for problem in problems
    ]
    found = rows or [{"key": None, "text": str(error), **_place(None)}]
    print_json({"file": path, "ok": False, "job": None, "problems": found, "notes": []})


def _place(origin: Origin | None) -> dict[str, object]:
    if origin is None:
        return {"source": None, "line": None}
    return {"source": origin.source, "line": origin.line}


@command.command("explain")
@file_argument
@config_option
@json_option
@debug_option
def explain(file: str | None, config_file: str | None, as_json: bool) -> None:
    """Show every effective value of FILE, where it was set, and its default; secrets are hidden."""
    from millpond.cli.tables import Column, print_json, print_table
    from millpond.config import load
    from millpond.config.explain import explain as rows_of

    rows = rows_of(load(config_path(file or config_file)))
    if as_json:
        found = [
            {"key": row.key, "value": row.value, "source": row.source, "default": row.default or None} for row in rows
        ]
        print_json({"values": found})
        return
    columns = (Column("key"), Column("value", folds=True), Column("source", folds=True), Column("default", 1))
    print_table(columns, [[row.key, row.value, row.source, row.default] for row in rows])
