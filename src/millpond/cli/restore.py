"""``millpond restore --plan``: where each store of a task would come from, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from millpond.cli.asking import at_option, job_options, open_reader, tasks_for
from millpond.cli.exits import NOT_OK

if TYPE_CHECKING:
    from millpond.reading import ExplainedPlan, ExplainedStore

_VERDICTS = {"first": "first", "fallback": "then", "rejected": "no"}


@click.command("restore")
@click.option("--plan", is_flag=True, help="Explain, and change nothing.")
@at_option
@job_options
def command(plan: bool, at: str | None, config_file: str | None, task: str | None, as_json: bool) -> None:
    """
    Explain where a restore would take each store from.

    Restores themselves happen when a host opens a task. Without --task, every task is explained. Exit code 1 if a
    restore would be refused.
    """
    from millpond.cli.tables import print_json
    from millpond.reading import explain

    if not plan:
        raise click.UsageError("a restore happens when a host opens the task; add --plan to see what it would do")
    with open_reader(config_file) as reader:
        plans = [explain(reader, name, at) for name in tasks_for(reader, task)]
        if as_json:
            print_json({"job": reader.config.name, "plans": [_as_json(each) for each in plans]})
        else:
            for number, each in enumerate(plans):
                _print(each, reader.context.clock.millis(), first=not number)
    if not all(each.possible for each in plans):
        click.get_current_context().exit(NOT_OK)


def _print(plan: ExplainedPlan, now_millis: int, *, first: bool) -> None:
    from millpond.cli.tables import Column, age_text, print_table

    if not first:
        click.echo()
    if plan.checkpoint is None:
        click.echo(f"task {plan.task}: {plan.reason}")
    else:
        age = age_text(plan.checkpoint.id.millis, now_millis)
        click.echo(f"task {plan.task}: checkpoint {plan.checkpoint.id}, {age} old: {plan.reason}")
    if plan.refusal is not None:
        click.echo(f"refused: {plan.refusal}")
    columns = (Column("store"), Column("from"), Column("asked"), Column("why", folds=True))
    print_table(columns, [row for store in plan.stores for row in _rows(store)])
    for store, key in plan.ignored:
        click.echo(f"left alone: store {store} in {key}, which is not configured")


def _rows(store: ExplainedStore) -> list[list[str]]:
    rows = [
        [store.store, candidate.source, _VERDICTS[candidate.verdict], candidate.reason]
        for candidate in store.candidates
    ]
    if store.source is None:
        return [[store.store, "nowhere", "refused", store.reason], *rows]
    if store.source == "new":
        return [[store.store, "empty", "first", store.reason]]
    return rows


def _as_json(plan: ExplainedPlan) -> dict[str, object]:
    return {
        "task": plan.task,
        "checkpoint": None if plan.checkpoint is None else str(plan.checkpoint.id),
        "reason": plan.reason,
        "possible": plan.possible,
        "refusal": plan.refusal,
        "stores": [_store_as_json(store) for store in plan.stores],
        "ignored": [{"store": store, "backend": key} for store, key in plan.ignored],
    }


def _store_as_json(store: ExplainedStore) -> dict[str, object]:
    return {
        "store": store.store,
        "source": store.source,
        "reason": store.reason,
        "candidates": [
            {
                "source": candidate.source,
                "verdict": candidate.verdict,
                "reason": candidate.reason,
                "marker": candidate.marker,
            }
            for candidate in store.candidates
        ],
    }
