"""``millpond heron-ckptmgr``: a checkpoint manager for Heron's stream managers, with Heron's own command line."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millpond.cli.asking import debug_option
from millpond.errors import ConfigError

if TYPE_CHECKING:
    from millpond.heron.heron_files import StoreChoice
    from millpond.heron.metrics import Metrics
    from millpond.heron.server import HeronServer
    from millpond.heron.settings import ServerSettings

_JAVA_CLASS = "ckptmgr.CheckpointManager"
_METRICS_EVERY_S = 10.0

_file = click.Path(path_type=Path)


class _LikeJava(click.Command):
    """A command that may be called in place of Java: what stands before the name of Heron's class is left alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what follows the class's name."""
        own = next((at + 1 for at, each in enumerate(args) if each.endswith(_JAVA_CLASS)), 0)
        return super().parse_args(ctx, args[own:])


@click.command("heron-ckptmgr", cls=_LikeJava)
@click.option("-t", "--topology-name", metavar="NAME", help="The topology that is served.")
@click.option("-i", "--topology-id", metavar="ID", help="Its id.")
@click.option("-c", "--ckptmgr-id", metavar="ID", default="ckptmgr", help="This process's name, for the log.")
@click.option("-p", "--port", type=int, default=0, help="Default: one that is free.")
@click.option("-f", "--config-file", type=_file, help="Heron's stateful.yaml.")
@click.option("-o", "--override-config-file", type=_file, help="Heron's overrides, flat.")
@click.option("-g", "--heron-internals-config-file", type=_file, help="Heron's heron_internals.yaml.")
@click.option("--serve", multiple=True, metavar="NAME=ID", help="A further topology.")
@click.option("--any-topology", is_flag=True, help="Serve whatever registers.")
@click.option("--store", metavar="TYPE", help="folder, memory, or a backend such as s3. Default: the files' choice.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the store.")
@click.option("--also-read", multiple=True, metavar="PLACE", help="A folder or URL with states that Heron wrote.")
@click.option("--keep", type=click.IntRange(min=1), help="Keep so many whole checkpoints, whatever cleans say.")
@click.option("--scratch", type=_file, help="Where large states are spooled. Default: the store's or the system's.")
@click.option("--spill-root", multiple=True, type=_file, help="Topologies may pass states through files below it.")
@click.option("--allow-empty", is_flag=True, help="Restores that fail may fall through to no state at all.")
@click.option("--strict", is_flag=True, help="One registration, ids compared as texts, large packets cut: as Heron.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Beyond it, TLS and an allow-list are needed.")
@click.option("--allow", multiple=True, metavar="NETWORK", help="Who may connect.")
@click.option("--tls-certificate", type=_file, help="The server's certificate, PEM.")
@click.option("--tls-key", type=_file, help="Its key, PEM.")
@click.option("--tls-client-ca", type=_file, help="Clients need a certificate that one of these signed, PEM.")
@click.option("--tls-client-name", multiple=True, metavar="NAME", help="Only clients with such a name.")
@click.option("--max-packet", type=int, metavar="BYTES", help="The largest packet. Default: Heron's key, or 1 GiB.")
@click.option("--max-connections", type=int, help="Default: 1024.")
@click.option("--memory", type=int, metavar="BYTES", help="For all connections together. Default: 256 MiB.")
@click.option("--metrics", type=_file, help="A file that gets OpenMetrics text every ten seconds.")
@debug_option
def command(**given: Any) -> None:
    """
    Serve Heron's checkpoint manager protocol: topologies save, get and clean their states here.

    Takes the flags and the files that Heron's executor gives, so that a deployment changes one path. Ends by SIGTERM or
    SIGINT, after what is at work.
    """
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        from millpond.heron import heron_files
    except ImportError as error:  # protobuf
        raise ConfigError('heron needs what is not installed: pip install "millpond[heron]"') from error
    config = heron_files.read(given["config_file"], given["override_config_file"], given["heron_internals_config_file"])
    settings = _settings(given, heron_files.server_values(config))
    choice = _choice(given, config)
    asyncio.run(_serve(given, settings, choice))


def _settings(given: Mapping[str, Any], from_files: Mapping[str, Any]) -> ServerSettings:
    from millpond.heron.settings import ServerSettings

    values = dict(from_files)
    values |= {name: given[name] for name in ("max_packet", "max_connections", "memory") if given[name] is not None}
    return ServerSettings(
        topologies=_topologies(given),
        host=given["host"],
        port=given["port"],
        tls=_tls(given),
        allow=given["allow"],
        strict=given["strict"],
        allow_empty=given["allow_empty"],
        spill_roots=given["spill_root"],
        **values,
    )


def _topologies(given: Mapping[str, Any]) -> dict[str, str] | None:
    named = dict(_pairs("--serve", given["serve"]))
    if (given["topology_name"] is None) != (given["topology_id"] is None):
        raise click.UsageError("-t and -i belong together: a topology's name and its id")
    if given["topology_name"] is not None:
        named = {given["topology_name"]: given["topology_id"], **named}
    if bool(named) == given["any_topology"]:
        raise click.UsageError("say what is served: -t NAME -i ID, --serve NAME=ID, or --any-topology")
    return named or None


def _pairs(option: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    for text in texts:
        if "=" not in text:
            raise click.UsageError(f"{option} {text}: write it as NAME=VALUE")
    return [(text.partition("=")[0], text.partition("=")[2]) for text in texts]


def _tls(given: Mapping[str, Any]) -> Any:
    from millpond.heron.settings import TlsSettings

    certificate, key = given["tls_certificate"], given["tls_key"]
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-certificate and --tls-key belong together")
    if certificate is None:
        if given["tls_client_ca"] or given["tls_client_name"]:
            raise click.UsageError("--tls-client-ca and --tls-client-name need --tls-certificate and --tls-key")
        return None
    if given["tls_client_name"] and given["tls_client_ca"] is None:
        raise click.UsageError("--tls-client-name needs --tls-client-ca")
    names = frozenset(given["tls_client_name"])
    return TlsSettings(certificate=certificate, key=key, client_ca=given["tls_client_ca"], client_names=names)


def _choice(given: Mapping[str, Any], config: Any) -> StoreChoice:
    from attrs import evolve

    from millpond.heron import heron_files

    pairs = {f"{heron_files.STORE}.{key}": value for key, value in _pairs("--set", given["settings"])}
    if given["store"] is not None:
        storage = {key: value for key, value in config.storage.items() if not key.startswith(heron_files.STORE)}
        config = evolve(config, storage={**storage, heron_files.STORE: given["store"], **pairs})
    elif pairs:
        config = evolve(config, storage={**config.storage, **pairs})
    choice = heron_files.store_choice(config)
    also = (*choice.also, *given["also_read"])
    return evolve(choice, also=also, keep=given["keep"] if given["keep"] is not None else choice.keep)


async def _serve(given: Mapping[str, Any], settings: ServerSettings, choice: StoreChoice) -> None:
    from millpond.events import Listeners
    from millpond.heron.metrics import Metrics
    from millpond.heron.opening import open_states
    from millpond.heron.server import HeronServer
    from millpond.progress.log import LogListener

    metrics = Metrics()
    tell = Listeners.of([LogListener(), metrics])
    with open_states(
        choice, tell, strict=settings.strict, threads=settings.threads, scratch=given["scratch"]
    ) as states:
        server = HeronServer(states, settings, tell)
        try:
            await server.start()
        except OSError as error:
            raise ConfigError(f"cannot listen at {settings.host}:{settings.port}: {error}") from error
        place = states.blobs.where().removesuffix(":")
        click.echo(f"{given['ckptmgr_id']} listens at {settings.host}:{server.port}, states in {place}")
        if states.instant:
            click.echo("millpond: states are kept in this process's memory, and end with it", err=True)
        await _until_told(server, metrics, given["metrics"])


async def _until_told(server: HeronServer, metrics: Metrics, file: Path | None) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    while not told.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), _METRICS_EVERY_S if file else None)
        if file is not None:
            await asyncio.to_thread(_write_metrics, metrics, file, server.gauges())
    await server.stop()


def _write_metrics(metrics: Metrics, file: Path, gauges: Mapping[str, float]) -> None:
    try:
        metrics.write(file, gauges)
    except Exception as error:  # noqa: BLE001 - a server does not end because nobody can read its figures
        logging.getLogger("millpond").warning("the metrics were not written: %s", error)
