"""``python -m millpond.coordinator``: looks at a coordinator's record in a directory; locks and changes nothing."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import click

from millpond.coordinator import record as record_format
from millpond.coordinator.numbered import in_directory
from millpond.coordinator.record import JobCheckpoint
from millpond.errors import MillpondError


@click.command()
@click.option("--directory", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option("--job", required=True, help="The job's name.")
@click.option("--job-id", default="1", show_default=True)
@click.option("--members", is_flag=True, help="Show each member's part of the newest job checkpoint, too.")
def main(directory: Path, job: str, job_id: str, members: bool) -> None:
    """Say who led last, and which job checkpoints are retained, newest first."""
    try:
        with in_directory(directory, job, job_id) as place:
            leader, stored = place.leader(), place.read()
        record = None if stored is None else record_format.decode(stored.data)
    except MillpondError as error:
        click.echo(f"millpond: {error}", err=True)
        sys.exit(1)
    click.echo("nobody has led yet" if leader is None else f"last elected: {leader[1]} with epoch {leader[0]}")
    if record is None or record.newest is None:
        click.echo("there is no job checkpoint")
        return
    for checkpoint in record.checkpoints:
        click.echo(_line(checkpoint))
    if members:
        for name, part in sorted(record.newest.members.items()):
            click.echo(f"  {name} ({part.place}): {part.state}")


def _line(checkpoint: JobCheckpoint) -> str:
    """Show one job checkpoint."""
    at = datetime.fromtimestamp(checkpoint.millis / 1000, UTC).isoformat(" ", "seconds")
    kinds = Counter(type(part.state).__name__ for part in checkpoint.members.values())
    parts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    based = "the beginning" if checkpoint.based_on is None else str(checkpoint.based_on)
    name = f" {checkpoint.name!r}" if checkpoint.name else ""
    return f"{checkpoint.id}{name}: {at}, {len(checkpoint.members)} members ({parts}), based on {based}"


if __name__ == "__main__":
    main()
