"""Where a coordinator listens, and who may speak to it there."""

from __future__ import annotations

import ipaddress
import ssl

from attrs import field, frozen

from millpond.coordinator.wire import check_secret
from millpond.errors import ConfigError
from millpond.spi import Secret


@frozen(kw_only=True)
class Address:
    """
    A place to listen at, or to connect to.

    Attributes:
        host: A name or an IP address.
        port: From 1 to 65535; 0, to listen only: any free one.
    """

    host: str = "127.0.0.1"
    port: int = 0

    def __attrs_post_init__(self) -> None:
        """Check the port."""
        if not self.host or not 0 <= self.port <= 65_535:
            raise ConfigError(f"not an address: {self.host!r}, port {self.port}")

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``host:port``, an IPv6 address in brackets; ConfigError if *text* is something else."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdecimal():
            raise ConfigError(f"not an address: {text!r} (expected host:port)")
        return cls(host=host.removeprefix("[").removesuffix("]"), port=int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than ``localhost`` is not believed to be."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@frozen(kw_only=True)
class Trust:
    """
    How the two ends know each other.

    Attributes:
        secret: What both know; at least 16 bytes.
        tls: TLS underneath, with this context; for the coordinator it has to ask for a client's certificate to count
            as authentication.
        server_name: The name in the coordinator's certificate, for a member; None: the address's host.
    """

    secret: Secret | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str | None = None

    def __attrs_post_init__(self) -> None:
        """Check the secret."""
        check_secret(self.secret)

    def check_binding(self, address: Address) -> None:
        """
        Refuse to listen where others could reach it, unless they have to prove who they are.

        Raises:
            ConfigError: *address* is no loopback, and there is neither a secret nor mutual TLS.
        """
        is_mutual = self.tls is not None and self.tls.verify_mode is ssl.CERT_REQUIRED
        if address.is_loopback or self.secret is not None or is_mutual:
            return
        half = " (the TLS context does not ask for a client certificate: set verify_mode to CERT_REQUIRED)"
        raise ConfigError(
            f"a coordinator at {address} could be reached, and ordered about, by anybody: set a shared secret, or "
            f"mutual TLS, or listen at 127.0.0.1{half if self.tls is not None else ''}"
        )
