"""What an operator says about an ensemble: where it is, who asks, who may read, and how long a call may take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from attrs import field, frozen

from millpond.errors import ConfigError
from millpond.spi import Secret, Size

SMALLEST_NODE = 512
LARGEST_NODE = 64 << 20
_HOST = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_ROOT = re.compile(r"(?:/[A-Za-z0-9!\-_+%@()][A-Za-z0-9!\-_.+%@()]*)+")
_ACL = re.compile(r"(world|auth|digest|ip|x509|sasl):(.*):([crwda]+)", re.DOTALL)


def _secret(value: str | None) -> Secret | None:
    """Give *value* as a secret: an empty one is none."""
    return value if isinstance(value, Secret) else Secret(value) if value else None


def _tuple(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _between(name: str, value: timedelta, least: timedelta, most: timedelta) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name} is {value}: it has to be from {least} to {most}")


@frozen(kw_only=True)
class ZooKeeperSettings:
    """
    An ensemble, the part of it that is ours, and how it is spoken to.

    Attributes:
        hosts: The servers, ``"zk1:2181,zk2:2181,zk3:2181"``; name all, so that one may fail.
        root: The node below which everything lies: the chroot. It is made where it is missing.
        user: With ``password``: who we are by ZooKeeper's scheme ``digest``.
        password: Shown in no message.
        acl: Who may do what with new nodes, as ``zkCli`` writes it: ``"digest:ops:<hash>:r"``. Empty: the user alone
            (``"auth::cdrwa"``), and without a user everybody.
        tls: Speak TLS; the servers need a ``secureClientPort``.
        ca: With ``tls``: the certificates to trust; None: the system's.
        certificate: With ``tls``: our own, where the servers ask for one.
        key: With ``certificate``: its key.
        key_password: With ``key``: what it is encrypted with.
        session_timeout: How long the servers wait for a sign of life; they may shorten or lengthen it.
        timeout: How long a call may take, reconnections included, before it is given up.
        max_node: The most bytes in one request; what is larger lies in parts, or in the folder ``large``. It has to be
            less than the servers' ``jute.maxbuffer`` (1,048,575 unless it was changed).
        large: A folder that all who read and write share, for what is larger than ``max_node``; None: in parts, in
            nodes of their own.
    """

    hosts: str = field()
    root: str = field(default="/millpond")
    user: str = ""
    password: Secret | None = field(default=None, converter=_secret)
    acl: tuple[str, ...] = field(default=(), converter=_tuple)
    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = field(default=None)
    key_password: Secret | None = field(default=None, converter=_secret)
    session_timeout: timedelta = field(default=timedelta(seconds=10))
    timeout: timedelta = field(default=timedelta(seconds=30))
    max_node: Size = field(default=Size(1_000_000))
    large: Path | None = None

    @hosts.validator
    def _check_hosts(self, _attribute: object, hosts: str) -> None:
        for host in hosts.split(","):
            if _HOST.fullmatch(host.strip()) is None:
                raise ConfigError(
                    f'hosts holds {host!r}: write "zk1:2181,zk2:2181", and what lies below which node as root'
                )

    @root.validator
    def _check_root(self, _attribute: object, root: str) -> None:
        if _ROOT.fullmatch(root) is None or root.split("/")[1] == "zookeeper" or len(root) > 256:
            raise ConfigError(
                f"root is {root!r}: write /names/of/letters, digits and !-_.+%@(), none beginning with a dot, at most "
                "256 characters, and not below /zookeeper, which is the server's own"
            )

    @password.validator
    def _check_password(self, _attribute: object, password: Secret | None) -> None:
        if bool(self.user) != (password is not None):
            raise ConfigError("user and password go together: give both, or neither")
        if ":" in self.user:
            raise ConfigError(f"user is {self.user!r}: ZooKeeper's digests have no colon in a name")

    @acl.validator
    def _check_acl(self, _attribute: object, acl: tuple[str, ...]) -> None:
        for entry in acl:
            match = _ACL.fullmatch(entry)
            if match is None:
                raise ConfigError(f"acl holds {entry!r}: write scheme:id:permissions, such as digest:ops:<hash>:cdrwa")
            if match[1] == "auth" and not self.user:
                raise ConfigError(f"acl holds {entry!r}, which means the user: give user and password")

    @key.validator
    def _check_key(self, _attribute: object, key: Path | None) -> None:
        if (key is None) != (self.certificate is None):
            raise ConfigError("certificate and key go together: give both, or neither")

    @key_password.validator
    def _check_tls(self, _attribute: object, _value: object) -> None:
        if not self.tls and (self.ca or self.certificate or self.key_password):
            raise ConfigError("ca, certificate and key_password need tls = true beside them")

    @session_timeout.validator
    def _check_session(self, _attribute: object, value: timedelta) -> None:
        _between("session_timeout", value, timedelta(seconds=1), timedelta(minutes=10))

    @timeout.validator
    def _check_timeout(self, _attribute: object, value: timedelta) -> None:
        _between("timeout", value, timedelta(seconds=1), timedelta(hours=1))

    @max_node.validator
    def _check_node(self, _attribute: object, size: int) -> None:
        if not SMALLEST_NODE <= size <= LARGEST_NODE:
            raise ConfigError(f"max_node is {size} bytes: it has to be from {SMALLEST_NODE:,} to {LARGEST_NODE:,}")

    def rules(self) -> list[tuple[str, str, str]]:
        """Give the ACL of new nodes: scheme, id and permissions of each entry."""
        found = [_ACL.fullmatch(entry) for entry in self.acl]
        given = [(match[1], match[2], match[3]) for match in found if match is not None]
        return given or [("auth", "", "cdrwa") if self.user else ("world", "anyone", "cdrwa")]

    def rules_above(self) -> list[tuple[str, str, str]]:
        """Give the ACL of new nodes above the root: others may have roots beside ours."""
        return [("auth", "", "cdrwa"), ("world", "anyone", "cr")] if self.user else [("world", "anyone", "cdrwa")]


@frozen(kw_only=True)
class ZooKeeperCheckpointsConfig(ZooKeeperSettings):
    """The section of the ``zookeeper`` checkpoint manager; what it has is an ensemble's."""
