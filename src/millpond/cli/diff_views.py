"""The difference of two checkpoints as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import click

from millpond.blob.diff import StoreDiff
from millpond.checkpoint import Checkpoint
from millpond.cli.tables import Column, age_text, print_table
from millpond.cli.values import plain, show_value
from millpond.progress.words import count_text, size_text
from millpond.reading import JobReader
from millpond.reading.diff import Difference
from millpond.stores.serdes import serde_named

_CHANGES = ("added", "removed", "changed", "same")


def print_diff(
    reader: JobReader, task: str, before: Checkpoint, after: Checkpoint, found: Sequence[Difference], *, as_hex: bool
) -> None:
    """Print a table of files, and if keys were compared one of keys."""
    now = reader.context.clock.millis()
    ages = [age_text(each.id.millis, now) for each in (before, after)]
    click.echo(f"task {task}: from checkpoint {before.id}, {ages[0]} old")
    click.echo(f"{' ' * len(f'task {task}')}    to checkpoint {after.id}, {ages[1]} old")
    _print_files(found)
    if any(each.keys for each in found):
        click.echo()
        _print_keys(reader, found, as_hex=as_hex)


def _print_files(found: Sequence[Difference]) -> None:
    columns = (
        Column("store"),
        Column("in", 2),
        Column("added", right=True),
        Column("removed", right=True),
        Column("shared", 1, right=True),
        Column("changes", right=True),
        Column("size", right=True),
    )
    print_table(columns, [_file_row(each) for each in found])
    for each in found:
        if each.files is None:
            click.echo(f"store {each.store}: its files cannot be compared: {each.reason}")


def _file_row(each: Difference) -> list[str]:
    files = each.files
    if files is None:
        return [each.store, each.place or "", *"?????"]
    return [
        each.store,
        each.place or "",
        _counted(len(files.added), files.added_size),
        _counted(len(files.removed), files.removed_size),
        _counted(files.shared, files.shared_size),
        _counted(files.new_changes, files.new_changes_size),
        size_text(files.size),
    ]


def _counted(count: int, size: int) -> str:
    return f"{count:,}: {size_text(size)}" if count else "0"


def _print_keys(reader: JobReader, found: Sequence[Difference], *, as_hex: bool) -> None:
    columns = (Column("store"), *(Column(f"keys {name}" if name == "added" else name, right=True) for name in _CHANGES))
    print_table(
        columns, [[each.store, *(f"{each.keys.counts[name]:,}" for name in _CHANGES)] for each in found if each.keys]
    )
    for each in found:
        if each.keys and each.keys.first:
            _print_first(reader, each, as_hex=as_hex)


def _print_first(reader: JobReader, each: Difference, *, as_hex: bool) -> None:
    assert each.keys is not None
    differ = sum(each.keys.counts[name] for name in _CHANGES[:3])
    shown = len(each.keys.first)
    which = f"the first {shown} of {count_text(differ, 'key')} that differ" if shown < differ else "what differs"
    click.echo(f"store {each.store}: {which}")
    for key, change in each.keys.first:
        click.echo(f"  {change:<7}  {show_value(_decoded(reader, each.store, key), as_hex=as_hex)}")


def _decoded(reader: JobReader, store: str, key: bytes) -> object:
    """Read a key; one that its serde cannot read is shown as it is."""
    try:
        return serde_named(reader.store(store).key, key=True).decode(key)
    except ValueError:
        return key


def diff_json(
    reader: JobReader, task: str, before: Checkpoint, after: Checkpoint, found: Sequence[Difference]
) -> dict[str, object]:
    """Give what ``diff`` prints with ``--json``."""
    return {
        "job": reader.config.name,
        "task": task,
        "from": str(before.id),
        "to": str(after.id),
        "stores": {
            each.store: {
                "backend": each.place,
                "files": None if each.files is None else _files_json(each.files),
                "reason": each.reason or None,
                "keys": _keys_json(reader, each),
            }
            for each in found
        },
    }


def _files_json(files: StoreDiff) -> dict[str, object]:
    return {
        "added": len(files.added),
        "added_size": files.added_size,
        "removed": len(files.removed),
        "removed_size": files.removed_size,
        "shared": files.shared,
        "shared_size": files.shared_size,
        "changes": files.new_changes,
        "changes_size": files.new_changes_size,
        "size_before": files.size_before,
        "size": files.size,
    }


def _keys_json(reader: JobReader, each: Difference) -> dict[str, object] | None:
    if each.keys is None:
        return None
    first = [{"key": plain(_decoded(reader, each.store, key)), "change": change} for key, change in each.keys.first]
    return {**each.keys.counts, "first": first}
