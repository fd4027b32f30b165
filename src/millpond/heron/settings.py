"""What an operator says about a served checkpoint manager, checked."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path

from attrs import field, frozen

from millpond.errors import ConfigError
from millpond.heron.framing import LARGEST

MIB = 1 << 20
LOOPBACK = "127.0.0.1"


def _networks(texts: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(text) for text in texts)
    except ValueError as error:
        raise ConfigError(f"the allow-list has what is no address and no network: {error}") from None


@frozen(kw_only=True)
class TlsSettings:
    """
    How connections are encrypted.

    Attributes:
        certificate: The server's, with its chain, in PEM.
        key: Its key, in PEM.
        client_ca: Clients have to show a certificate that one of these signed. None: none is asked for.
        client_names: Only clients with one of these names in their certificate; empty: all that are signed.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    client_names: frozenset[str] = frozenset()


@frozen(kw_only=True)
class ServerSettings:
    """
    A server. Sizes are bytes, times seconds.

    Attributes:
        topologies: Name to id of what is served; None: whatever registers.
        host: The address to listen at.
        port: 0 lets the system choose.
        tls: Needed beyond the loopback.
        allow: Networks that may connect; needed beyond the loopback unless ``tls`` asks for clients' certificates.
        strict: One registration slot, ids compared as texts, and a cut connection for a large packet: as Heron does.
        allow_empty: A restore may fall through to no state after it did not get the state that there is.
        spill_roots: Below these a topology may pass states through files.
        max_packet: The largest N.
        max_held_packet: The largest packet that is no save: it is held in memory.
        held_state: States up to this size are held in memory; larger ones pass through.
        max_connections: Further clients are turned away.
        pipeline: Requests of one connection that are at work; the rest waits in its socket.
        memory: What all connections may hold together, beside a socket's read each.
        threads: For the store.
        window: What of one state may wait for the disk.
        idle_timeout: Of a connection that never registered and asks for nothing.
        packet_timeout: Until the next byte of a packet that has begun; and see ``slowest``.
        slowest: A packet has ``packet_timeout`` plus its size divided by this many bytes a second.
        write_timeout: For a client that does not read its answers.
        store_timeout: Until a request is answered with NOTOK whatever the store does.
        stop_timeout: For what is at work when the server is told to stop.
        send_buffer: Of a socket; None: the system's.
        receive_buffer: Of a socket; None: the system's.
        read_size: What is read from a socket at once.
    """

    topologies: Mapping[str, str] | None = None
    host: str = LOOPBACK
    port: int = 0
    tls: TlsSettings | None = None
    allow: tuple[IPv4Network | IPv6Network, ...] = field(default=(), converter=_networks)
    strict: bool = False
    allow_empty: bool = False
    spill_roots: tuple[Path, ...] = ()
    max_packet: int = field(default=1024 * MIB)
    max_held_packet: int = 16 * MIB
    held_state: int = 256 << 10
    max_connections: int = 1024
    pipeline: int = 64
    memory: int = 256 * MIB
    threads: int = 16
    window: int = 2 * MIB
    idle_timeout: float = 600.0
    packet_timeout: float = 60.0
    slowest: int = 64 << 10
    write_timeout: float = 60.0
    store_timeout: float = 120.0
    stop_timeout: float = 20.0
    send_buffer: int | None = None
    receive_buffer: int | None = None
    read_size: int = 64 << 10

    @max_packet.validator
    def _check_packet(self, _attribute: object, size: int) -> None:
        if not 64 <= size <= LARGEST:
            raise ConfigError(f"the largest packet is {size:,} bytes: it has to be 64 to {LARGEST:,}")

    def __attrs_post_init__(self) -> None:
        """Check what hangs together."""
        for name in ("max_connections", "pipeline", "memory", "threads", "window", "read_size", "slowest"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: it has to be at least 1")
        for name in ("idle_timeout", "packet_timeout", "write_timeout", "store_timeout", "stop_timeout"):
            if not 0 < getattr(self, name) <= 7 * 24 * 3600:
                raise ConfigError(f"{name} is {getattr(self, name)}: it has to be more than nothing and at most a week")
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"port {self.port} is none")
        if not self.is_local:
            self._check_open()

    @property
    def is_local(self) -> bool:
        """Tell whether only this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def _check_open(self) -> None:
        if self.tls is None:
            raise ConfigError(
                f"{self.host} can be reached from other machines, and Heron's protocol has no protection: give "
                "--tls-certificate and --tls-key, or listen at 127.0.0.1, where Heron's own clients look"
            )
        if not self.allow and self.tls.client_ca is None:
            raise ConfigError(
                f"{self.host} can be reached from other machines: say who may connect, with --allow ADDRESS or "
                "NETWORK, or with --tls-client-ca"
            )

    def admits(self, address: str) -> bool:
        """Tell whether a client at *address* may connect."""
        if not self.allow:
            return True
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None) or found
        return any(mapped in network for network in self.allow)
