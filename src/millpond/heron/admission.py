"""Which clients are let in, and which connections there are. All on the loop."""

from __future__ import annotations

import asyncio
from typing import Any

from millpond.heron.connection import Connection
from millpond.heron.service import Service


class Admission:
    """
    The door of a server.

    Attributes:
        connections: Those that were let in, and have not ended.
        is_open: Somebody may be let in.
        all_ended: Set when there is no connection, whether let in or turned away.
    """

    def __init__(self, service: Service) -> None:
        """Open it."""
        self.connections: set[Connection] = set()
        self.is_open = True
        self.all_ended = asyncio.Event()
        self.all_ended.set()
        self._service = service
        self._made: set[Connection] = set()

    def admit(self, connection: Connection, address: str) -> str:
        """Let *connection* in, or say why not; either way it is there until it says that it has :meth:`gone`."""
        self._made.add(connection)
        self.all_ended.clear()
        if refusal := self._refusal(connection, address):
            return refusal
        self.connections.add(connection)
        return ""

    def gone(self, connection: Connection) -> None:
        """Forget *connection*."""
        self._made.discard(connection)
        if not self._made:
            self.all_ended.set()
        if connection in self.connections:
            self.connections.discard(connection)
            self._service.registry.closed(connection.link)

    def _refusal(self, connection: Connection, address: str) -> str:
        settings = self._service.settings
        if not self.is_open:
            return "the server stops"
        if not settings.admits(address):
            return "its address is not on the allow-list"
        wanted = settings.tls.client_names if settings.tls is not None else frozenset()
        if wanted:
            names = names_in(connection.link.transport.get_extra_info("peercert") or {})
            if not names & wanted:
                return f"its certificate names {', '.join(sorted(names)) or 'nobody'}"
        if len(self.connections) >= settings.max_connections:
            return f"there are {len(self.connections):,} connections, which is the limit"
        return ""


def names_in(certificate: Any) -> set[str]:
    """Give the names that a client's certificate was made for."""
    names = {value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI", "email")}
    names |= {value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"}
    return names
