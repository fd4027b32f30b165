"""``python -m millpond.testing.lab``: the crash lab's command."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path

import click

from millpond.testing.lab.places import Place
from millpond.testing.lab.seeds import run_seeds, seeds_of
from millpond.testing.lab.tally import told
from millpond.testing.lab.trial import Verdict


@click.command("lab")
@click.option("--backend", default="rocksdb-local", show_default=True, help="rocksdb-local, fsspec, or a template's.")
@click.option("--seeds", default="0-300", show_default=True, help="One seed, or FIRST-END.")
@click.option("--config-template", type=click.Path(path_type=Path), help="TOML: [checkpoint] and [backends.*].")
@click.option("--engine", "engines", multiple=True, help="Of the stores; default: rocksdb and memory, by seed.")
@click.option("--jobs", default=2, show_default=True, help="Trials at once.")
@click.option("--keep", type=click.Path(path_type=Path), help="Where trials that failed leave their files.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where trials work; default: in memory, else $TMPDIR.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    backend: str,
    seeds: str,
    config_template: Path | None,
    engines: tuple[str, ...],
    jobs: int,
    keep: Path | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """
    Kill jobs at named steps and at any moment, and see that they go on exactly; exit code 1 if one did not.

    In a text of the template {root} is the trial's folder, and {trial} a name of its own.
    """
    place = Place.named(backend, config_template, engines or ("rocksdb", "memory"))
    replay = f"python -m millpond.testing.lab --backend {shlex.quote(backend)} --jobs 1"
    replay += "".join(f" --engine {engine}" for engine in engines)
    replay += f" --config-template {shlex.quote(str(config_template))}" if config_template else ""

    def tell(verdict: Verdict) -> None:
        if not verdict.good:
            click.echo(f"seed {verdict.seed}: {told(verdict)}", err=True)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the table of what has been run by then
    tally = run_seeds(place, seeds_of(seeds), jobs, replay, keep=keep, folder=folder, told=tell)
    click.echo(json.dumps(tally.as_json()) if as_json else "\n".join(tally.lines()))
    click.get_current_context().exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
