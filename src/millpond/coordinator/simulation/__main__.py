"""``python -m millpond.coordinator.simulation``: many seeds, and a table of what happened."""

from __future__ import annotations

import sys
import time

import click

from millpond.coordinator.simulation.run import Outcome, simulate
from millpond.coordinator.simulation.verdict import BrokenPromiseError
from millpond.coordinator.simulation.world import Trouble


@click.command()
@click.option("--steps", default=100_000, show_default=True, help="Things that happen in each run.")
@click.option("--seeds", default="0-9", show_default=True, help="Runs: one number, or first-last.")
@click.option("--damage", default=0.0, show_default=True, help="The chance that a saved state cannot be read back.")
def main(steps: int, seeds: str, damage: float) -> None:
    """Run the coordinator in a world of its own; the exit code is 1 if a promise was broken."""
    first, _, last = seeds.partition("-")
    outcomes, begun = [], time.perf_counter()
    for seed in range(int(first), int(last or first) + 1):
        try:
            outcomes.append(simulate(seed, steps, Trouble(damage=damage)))
        except BrokenPromiseError as violation:
            click.echo(f"VIOLATION: {violation}", err=True)
            sys.exit(1)
        click.echo(_line(outcomes[-1]))
    total = sum(outcome.steps for outcome in outcomes)
    took_s = time.perf_counter() - begun
    click.echo(f"{len(outcomes)} runs, {total:,} steps in {took_s:.1f} s ({total / took_s:,.0f} a second): all held")


def _line(outcome: Outcome) -> str:
    return (
        f"seed {outcome.seed}: {outcome.virtual_s:,.0f} virtual s, {outcome.elections} elections, {outcome.births} "
        f"births, {outcome.attempts} attempts, {outcome.recorded} whole, {outcome.restarts} restarts, newest "
        f"{outcome.acknowledged}"
    )


if __name__ == "__main__":
    main()
