"""``millpond conform``: whether a plugin keeps its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from millpond.cli.asking import debug_option, json_option
from millpond.cli.exits import NOT_OK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.testing import Report, Result

_WITH_REASON = ("known deviation", "not shown", "holds, though not declared")
"""Whose detail is somebody's own words, and not what an error said."""

_CASES_SHOWN = ("failed", "known deviation", "not shown", "not declared", "holds, though not declared")


@click.command("conform")
@click.argument("backend")
@click.option("-c", "--config", "config_file", metavar="FILE", help="A TOML file with the plugin's own settings.")
@click.option(
    "--kind",
    type=click.Choice(["backend", "checkpoints", "engine", "blob", "log"]),
    help="Its role. Default: by its name.",
)
@click.option(
    "--level", type=click.Choice(["core", "full"]), help="What is tried, and has to be reached. Default: all."
)
@click.option("--markdown", is_flag=True, help="Print the table for a README.")
@json_option
@debug_option
def command(
    backend: str, config_file: str | None, kind: str | None, level: str | None, markdown: bool, as_json: bool
) -> None:
    """
    Try every sentence of the contract on BACKEND; exit code 1 if one is broken of which the plugin does not say so.

    BACKEND is a plugin's name, or module:Class of a plugin or of a suite; with --kind blob or log, module:function
    that makes an object store or a log for a folder. A text in FILE may hold {folder}, where one case keeps its data.
    Nothing of a job is touched.
    """
    import sys

    from millpond.testing.kit.named import suite_of

    sys.path.insert(0, "")  # an author's own module lies in this folder
    try:
        suite = suite_of(backend, kind, _table(config_file))
        report = _run(suite, level or "full", shown=not (markdown or as_json))
    finally:
        sys.path.remove("")
    _print(report, markdown, as_json)
    if not _is_good(report, level):
        click.get_current_context().exit(NOT_OK)


def _is_good(report: Report, level: str | None) -> bool:
    """Say whether the plugin keeps *level*, or else the core, and all but what it ships as its limits."""
    if report.level is None or (level == "full" and report.level != "full"):
        return False
    return level is not None or not any(result.outcome == "failed" for result in report.results)


def _table(config_file: str | None) -> Mapping[str, object]:
    """Read the plugin's settings."""
    import tomllib
    from pathlib import Path

    if config_file is None:
        return {}
    try:
        return tomllib.loads(Path(config_file).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"{config_file} cannot be read: {error}") from error


def _run(suite: Any, level: str, *, shown: bool) -> Report:
    """Try all cases, and show each that did not just pass as it ends."""
    import tempfile
    from pathlib import Path

    from millpond.testing import Level

    with tempfile.TemporaryDirectory(prefix="millpond-conform-") as folder:
        place = Path(folder)
        suite.features(place / "features")  # what is wrong with the settings is told here
        if shown and (asked := getattr(suite, "as_it_asks", None)):
            told = ", ".join(f"{key} = {value!r}" for key, value in asked.items())
            click.echo(f"with {told}, as the plugin asks; --config FILE says otherwise")
        for count, result in enumerate(suite.results(place, Level(level)), 1):
            if shown:
                _show_progress("")
                if result.outcome in _CASES_SHOWN:
                    click.echo(_line(result))
                _show_progress(f"{count} cases tried")
        _show_progress("")
        report: Report = suite.report(place, Level(level))
        return report


def _show_progress(text: str) -> None:
    """Put *text* in the place of what was there, where somebody looks; a run takes seconds to minutes."""
    import sys

    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text}", nl=False, err=True)


def _line(result: Result) -> str:
    """Tell what did not just pass: what happened where it is broken, else the sentence and why."""
    if result.outcome == "failed":
        return f"FAILED: {result.case}: {result.detail}\n  broken: {result.contract}"
    why = f" ({' '.join(result.detail.split())[:150]})" if result.outcome in _WITH_REASON and result.detail else ""
    return f"{result.outcome}: {result.case}{why}\n  {result.contract}"


def _print(report: Report, markdown: bool, as_json: bool) -> None:
    if as_json:
        from millpond.cli.tables import print_json

        print_json(report.to_json())
    elif markdown:
        click.echo(report.to_markdown(), nl=False)
    else:
        counts = {
            outcome: sum(each.outcome == outcome for each in report.results) for outcome in ("passed", *_CASES_SHOWN)
        }
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
        took = sum(each.duration_s for each in report.results)
        click.echo(f"{report.name} ({report.kind}): level {report.level or 'none'}; {told}; {took:.1f} s")
