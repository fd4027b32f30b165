"""``python -m millpond.testing.fuzz``: the fuzzer's command."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path

import click

from millpond.errors import ConfigError
from millpond.testing.fuzz.reader import Reader
from millpond.testing.fuzz.readers import READERS
from millpond.testing.fuzz.running import Finding, fuzz
from millpond.testing.lab.seeds import seeds_of


@click.command("fuzz")
@click.option("--seeds", default="0-2000", show_default=True, help="One input, or FIRST-END, of each reader.")
@click.option("--reader", "names", multiple=True, help="Only readers whose name begins so; may be given again.")
@click.option("--table", "tables", multiple=True, help="module:NAME of another table of readers, beside ours.")
@click.option("--keep", type=click.Path(path_type=Path), help="Where inputs that are not borne are kept.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(seeds: str, names: tuple[str, ...], tables: tuple[str, ...], keep: Path | None, as_json: bool) -> None:
    """Give each reader of bytes inputs that are nearly right; exit code 1 if it does not bear one."""
    readers = [each for each in [*READERS, *others(tables)] if not names or each.name.startswith(names)]

    def tell(finding: Finding) -> None:
        click.echo(f"{finding.reader}, seed {finding.seed}: {finding.what}\n  {finding.data[:120]!r}", err=True)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{finding.reader.replace(' ', '-')}-{finding.seed}").write_bytes(finding.data)

    run = fuzz(readers, seeds_of(seeds), tell)
    if as_json:
        click.echo(json.dumps(run.as_json()))
    else:
        for reader in readers:
            count = sum(each.reader == reader.name for each in run.findings)
            click.echo(f"{reader.name}: {run.inputs[reader.name]} inputs, {count} not borne")
        click.echo(f"{sum(run.inputs.values())} inputs, {len(run.findings)} not borne, {run.seconds:.0f} s")
    click.get_current_context().exit(1 if run.findings else 0)


def others(tables: Sequence[str]) -> list[Reader]:
    """
    Give the readers of other tables.

    Raises:
        ConfigError: One is not there.
    """
    found: list[Reader] = []
    for reference in tables:
        module, _, name = reference.partition(":")
        try:
            found += getattr(importlib.import_module(module), name or "READERS")
        except (ImportError, AttributeError, TypeError) as error:
            raise ConfigError(f"{reference} is no table of readers: {error}") from error
    return found


if __name__ == "__main__":
    main()
