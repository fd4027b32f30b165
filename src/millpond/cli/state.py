"""``millpond state``: a store as a checkpoint has it, read from a restore of our own."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from millpond.cli.asking import at_option, hex_option, job_options, one_task, open_reader
from millpond.cli.exits import NoSuchKeyError

if TYPE_CHECKING:
    from millpond.config import StoreConfig

store_option = click.option("-s", "--store", required=True, metavar="STORE", help="The store.")


@click.group("state")
def command() -> None:
    """
    Look into a store as a checkpoint has it.

    The store is restored from its backends into a temporary folder, below $TMPDIR, which is removed afterwards.
    """


@command.command("get")
@store_option
@click.option("-k", "--key", required=True, metavar="KEY", help="The key, as the store's key serde has it.")
@at_option
@hex_option
@job_options
def get(
    store: str, key: str, at: str | None, as_hex: bool, config_file: str | None, task: str | None, as_json: bool
) -> None:
    """Print the value of one key; exit code 3 if there is none."""
    from millpond.cli.tables import print_json
    from millpond.cli.values import plain, show_value
    from millpond.reading import open_store

    with open_reader(config_file) as reader:
        name = one_task(reader, task)
        wanted = _key(key, reader.store(store), as_hex=as_hex)
        with open_store(reader, name, store, at) as (id, records):
            missing = object()
            value = records.get(wanted, missing)
    if value is missing:
        raise NoSuchKeyError(f"store {store!r} of task {name!r} has no key {key!r} at checkpoint {id}")
    if as_json:
        shown = {"task": name, "checkpoint": str(id), "store": store, "key": plain(wanted), "value": plain(value)}
        print_json(shown)
    else:
        click.echo(show_value(value, as_hex=as_hex))


def _key(text: str, store: StoreConfig, *, as_hex: bool) -> Any:
    """Read a key of *store*; one that its serde cannot store is a wrong usage."""
    from millpond.cli.values import parse_key
    from millpond.stores.serdes import serde_named

    try:
        key = parse_key(text, store.key, as_hex=as_hex)
        serde_named(store.key, key=True).encode(key)
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"store {store.name!r}: {text!r} cannot be a key: {error}") from error
    return key


@command.command("scan")
@store_option
@click.option("--start", metavar="KEY", help="The first key, inclusive.")
@click.option("--stop", metavar="KEY", help="The key to stop before.")
@click.option("--reverse", is_flag=True, help="The same entries, the last first.")
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="At most so many; 0: all.")
@at_option
@hex_option
@job_options
def scan(
    store: str,
    start: str | None,
    stop: str | None,
    reverse: bool,
    limit: int,
    at: str | None,
    as_hex: bool,
    config_file: str | None,
    task: str | None,
    as_json: bool,
) -> None:
    """
    Print entries in the order of their keys' bytes: key, tab, value.

    With --json each line is one object with "key" and "value".
    """
    from millpond.reading import open_store

    with open_reader(config_file) as reader:
        name, configured = one_task(reader, task), reader.store(store)
        low = None if start is None else _key(start, configured, as_hex=as_hex)
        high = None if stop is None else _key(stop, configured, as_hex=as_hex)
        with (
            open_store(reader, name, store, at) as (id, records),
            closing(records.scan(low, high, reverse=reverse)) as entries,  # type: ignore[type-var]
        ):
            for key, value in islice(entries, limit or None):
                click.echo(_line(key, value, as_json=as_json, as_hex=as_hex))
            more = limit and next(entries, None) is not None
    if more:
        click.echo(f"millpond: there is more after these {limit} (checkpoint {id}): --limit 0 gives all", err=True)


def _line(key: object, value: object, *, as_json: bool, as_hex: bool) -> str:
    from millpond.cli.values import plain, show_value

    if as_json:
        return json.dumps({"key": plain(key), "value": plain(value)})
    return f"{show_value(key, as_hex=as_hex)}\t{show_value(value, as_hex=as_hex)}"
