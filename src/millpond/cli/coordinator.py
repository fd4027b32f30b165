"""``millpond coordinator``: the record of a job's coordinator, beside the running job."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from millpond.cli.asking import config_option, debug_option, json_option, open_reader

if TYPE_CHECKING:
    from millpond.coordinator.record import JobRecord


@click.command("coordinator")
@click.option("--members", is_flag=True, help="Show each member's part of the newest job checkpoint, too.")
@config_option
@json_option
@debug_option
def command(members: bool, config_file: str | None, as_json: bool) -> None:
    """
    Show who was elected last, and which job checkpoints are retained, newest first.

    The record is looked for beside the tasks' records, as [checkpoint] of the configuration says. Nothing is locked.
    """
    from millpond.cli.coordinator_views import as_json as record_json
    from millpond.cli.coordinator_views import print_members, print_record
    from millpond.cli.tables import print_json
    from millpond.coordinator import record as record_format
    from millpond.coordinator.beside import metadata_of

    with open_reader(config_file) as reader, ExitStack() as open_parts:
        place = open_parts.enter_context(metadata_of(reader, open_parts))
        leader, stored, now = place.leader(), place.read(), reader.context.clock.millis()
        record: JobRecord | None = None if stored is None else record_format.decode(stored.data)
        if as_json:
            print_json({"job": reader.config.name, **record_json(leader, record, now)})
            return
        print_record(leader, record, now)
        if members and record is not None:
            print_members(record)
