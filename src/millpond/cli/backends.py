"""``millpond backends``: which plugins are there, and why one cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from millpond.cli.asking import debug_option, json_option

if TYPE_CHECKING:
    from millpond.plugins import PluginInfo

_KINDS = {"millpond.backends": "backend", "millpond.checkpoints": "checkpoints", "millpond.engines": "engine"}


@click.command("backends")
@json_option
@debug_option
def command(as_json: bool) -> None:
    """List the state backends, checkpoint managers and store engines that a configuration can name."""
    from millpond.cli.tables import Column, print_json, print_table
    from millpond.plugins import describe

    found = describe()
    if as_json:
        print_json({"plugins": [_as_json(plugin) for plugin in found]})
        return
    columns = (
        Column("name"),
        Column("kind"),
        Column("distribution", 1),
        Column("version", 2),
        Column("SPI", 3),
        Column("can", 4, folds=True),
        Column("state", folds=True),
    )
    print_table(columns, [_row(plugin) for plugin in found])


def _row(plugin: PluginInfo) -> list[str]:
    kind = _KINDS[plugin.group]
    can = ", ".join(_capabilities(plugin))
    return [plugin.name, kind, plugin.distribution, plugin.version, plugin.spi, can, _short(plugin)]


def _short(plugin: PluginInfo) -> str:
    """Give the state without the kind and the name, which stand in the same row."""
    return (plugin.state.partition(f'"{plugin.name}" ')[2] or plugin.state).removeprefix("is ")


def _as_json(plugin: PluginInfo) -> dict[str, object]:
    return {
        "name": plugin.name,
        "kind": _KINDS[plugin.group],
        "group": plugin.group,
        "distribution": plugin.distribution or None,
        "version": plugin.version or None,
        "spi": plugin.spi or None,
        "capabilities": _capabilities(plugin),
        "ok": plugin.ok,
        "state": plugin.state,
    }


def _capabilities(plugin: PluginInfo) -> list[str]:
    """Give what a plugin says of itself before it has settings; nothing for one that cannot be used."""
    from millpond.plugins import resolve
    from millpond.spi import Capabilities, ManagerCapabilities

    capabilities = getattr(resolve(plugin.group, plugin.name), "capabilities", None) if plugin.ok else None
    match capabilities:
        case Capabilities():
            reads = [str(facet.name).lower() for facet in capabilities.facets]
            known = {"durable": capabilities.durable, "point-in-time": capabilities.point_in_time}
        case ManagerCapabilities():
            reads = [f"V{version}" for version in sorted(capabilities.versions)]
            known = {
                "durable": capabilities.durable,
                "history": capabilities.history,
                "fencing": capabilities.fencing,
            }
        case _:
            return []
    return reads + [name for name, can in known.items() if can]
