"""Checkpoints and their copies as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from millpond.checkpoint import Checkpoint, SystemStreamPartition
from millpond.cli.tables import Column, age_text, local_time, print_table, utc_time
from millpond.progress.words import count_text, duration_text, listed, size_text
from millpond.reading import Finding, Listed

_LIST = (
    Column("checkpoint"),
    Column("time", 2),
    Column("age"),
    Column("V", 6, right=True),
    Column("epoch", 5, right=True),
    Column("stores", 3, right=True),
    Column("inputs", 4, right=True),
    Column("pins", 1, folds=True),
    Column("parent", 7),
)


def version_of(checkpoint: Checkpoint) -> int:
    """Give the version of the record: only a V1 has neither a claim nor markers."""
    return 1 if checkpoint.claim is None and not checkpoint.markers else 2


def stores_of(checkpoint: Checkpoint) -> list[str]:
    """Give the stores that a checkpoint holds, sorted."""
    return sorted({*checkpoint.images, *(store for held in checkpoint.markers.values() for store in held)})


def print_list(found: Mapping[str, Sequence[Listed]], now_millis: int) -> None:
    """Print a table for each task."""
    for number, (task, checkpoints) in enumerate(found.items()):
        if number:
            click.echo()
        click.echo(f"task {task}: {count_text(len(checkpoints), 'checkpoint') if checkpoints else 'no checkpoint yet'}")
        if checkpoints:
            print_table(_LIST, [_row(each, now_millis) for each in checkpoints])


def _row(each: Listed, now_millis: int) -> list[str]:
    checkpoint = each.checkpoint
    return [
        str(checkpoint.id),
        local_time(checkpoint.id.millis),
        age_text(checkpoint.id.millis, now_millis),
        str(version_of(checkpoint)),
        "" if checkpoint.claim is None else str(checkpoint.claim.epoch),
        str(len(stores_of(checkpoint))),
        str(len(checkpoint.offsets)),
        ", ".join(each.pins),
        "" if checkpoint.parent is None else str(checkpoint.parent),
    ]


def print_one(task: str, each: Listed, now_millis: int) -> None:
    """Print everything that a checkpoint says."""
    checkpoint = each.checkpoint
    click.echo(f"checkpoint {checkpoint.id} of task {task}")
    for name, text in _facts(each, now_millis):
        click.echo(f"  {name:<8}{text}")
    click.echo()
    stores = [row for store in stores_of(checkpoint) for row in _store_rows(checkpoint, store)]
    print_table((Column("store"), Column("in"), Column("marker", folds=True)), stores)
    click.echo()
    columns = (
        Column("system"),
        Column("stream", folds=True),
        Column("partition", right=True),
        Column("last processed"),
    )
    print_table(columns, [_offset_row(source, offset) for source, offset in _offsets(checkpoint)])


def _facts(each: Listed, now_millis: int) -> list[tuple[str, str]]:
    checkpoint = each.checkpoint
    claim, layout = checkpoint.claim, checkpoint.layout
    age = age_text(checkpoint.id.millis, now_millis)
    by = "Samza" if claim is None else f"epoch {claim.epoch}, writer {claim.writer}"
    tasks = "not stated" if layout is None else f"{listed(layout.tasks)} by {layout.partitioner}"
    kept = "" if each.listed else " (its own record is gone: only the pin keeps it)"
    return [
        (
            "time",
            f"{local_time(checkpoint.id.millis)}, {age} ago" if age[0].isdigit() else local_time(checkpoint.id.millis),
        ),
        ("by", f"{by}, version {version_of(checkpoint)}"),
        ("parent", "none" if checkpoint.parent is None else str(checkpoint.parent)),
        ("pins", (", ".join(each.pins) or "none") + kept),
        ("layout", tasks),
    ]


def _store_rows(checkpoint: Checkpoint, store: str) -> list[list[str]]:
    """Give a row for the local image and for each backend's marker."""
    image = checkpoint.images.get(store)
    rows = [] if image is None else [[store, "local image", image]]
    return rows + [[store, key, held[store]] for key, held in checkpoint.markers.items() if store in held]


def _offsets(checkpoint: Checkpoint) -> list[tuple[SystemStreamPartition, str]]:
    return sorted(checkpoint.offsets.items())


def _offset_row(source: SystemStreamPartition, offset: str) -> list[str]:
    bucket = "" if source.key_bucket == -1 else f", bucket {source.key_bucket}"
    return [source.system, source.stream, f"{source.partition}{bucket}", offset]


def as_json(task: str, each: Listed, now_millis: int) -> dict[str, object]:
    """Give what ``list`` and ``show`` print with ``--json``."""
    checkpoint = each.checkpoint
    claim, layout = checkpoint.claim, checkpoint.layout
    return {
        "task": task,
        "id": str(checkpoint.id),
        "time": utc_time(checkpoint.id.millis),
        "age_s": (now_millis - checkpoint.id.millis) / 1000,
        "version": version_of(checkpoint),
        "epoch": None if claim is None else claim.epoch,
        "writer": None if claim is None else claim.writer,
        "parent": None if checkpoint.parent is None else str(checkpoint.parent),
        "pins": list(each.pins),
        "listed": each.listed,
        "layout": None if layout is None else {"tasks": list(layout.tasks), "partitioner": layout.partitioner},
        "stores": {store: _store_json(checkpoint, store) for store in stores_of(checkpoint)},
        "offsets": [_offset_json(source, offset) for source, offset in _offsets(checkpoint)],
    }


def _store_json(checkpoint: Checkpoint, store: str) -> dict[str, object]:
    markers = {key: held[store] for key, held in checkpoint.markers.items() if store in held}
    return {"image": checkpoint.images.get(store), "markers": markers}


def _offset_json(source: SystemStreamPartition, offset: str) -> dict[str, object]:
    return {
        "system": source.system,
        "stream": source.stream,
        "partition": source.partition,
        "key_bucket": None if source.key_bucket == -1 else source.key_bucket,
        "offset": offset,
    }


def print_findings(findings: Sequence[Finding]) -> None:
    """Print the copies of each task, and what they come to."""
    columns = (
        Column("store"),
        Column("backend"),
        Column("state"),
        Column("size", 2, right=True),
        Column("took", 3, right=True),
        Column("detail", folds=True),
    )
    for number, task in enumerate(dict.fromkeys(finding.task for finding in findings)):
        if number:
            click.echo()
        copies = [finding for finding in findings if finding.task == task]
        click.echo(f"task {task}: checkpoint {copies[0].checkpoint}")
        print_table(columns, [_finding_row(copy) for copy in copies])
        click.echo(conclusion(copies))
    if not findings:
        click.echo("nothing to verify: no configured store is backed up")


def _finding_row(finding: Finding) -> list[str]:
    size = "" if finding.size is None else size_text(finding.size)
    took = duration_text(finding.duration_s) if finding.duration_s else ""
    return [finding.store, finding.backend, finding.state, size, took, finding.detail]


def conclusion(copies: Sequence[Finding]) -> str:
    """Say in one line what the *copies* of one task's checkpoint come to."""
    bad = [copy for copy in copies if not copy.good]
    whole = {copy.store for copy in copies if copy.state == "ok"}
    lost = sorted({copy.store for copy in copies} - whole)
    if not bad and not lost:
        return f"all {len(copies)} copies are whole" if len(copies) > 1 else "the copy is whole"
    told = f"{len(bad)} of {count_text(len(copies), 'copy', 'copies')} cannot be used"
    if not lost:
        return f"{told}; every store can still be restored from another"
    return f"{told}; NOT RESTORABLE: {listed(lost)}"
