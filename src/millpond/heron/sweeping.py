"""Deadlines of all connections, looked at by one task: a timer for each would cost more than the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from millpond.heron.connection import Connection
from millpond.heron.service import Service
from millpond.heron.settings import ServerSettings


async def sweep(connections: Collection[Connection], service: Service) -> None:
    """Look at each of *connections*, which come and go, again and again, until cancelled."""
    settings = service.settings
    shortest = min(settings.idle_timeout, settings.packet_timeout, settings.write_timeout, settings.store_timeout)
    while True:
        await asyncio.sleep(min(1.0, shortest / 4))
        now = service.loop.time()
        for connection in list(connections):
            _look(connection, settings, now, is_registered=service.registry.is_registered(connection.link))


def _look(connection: Connection, settings: ServerSettings, now: float, *, is_registered: bool) -> None:
    connection.answers.give_up_before(
        now - settings.store_timeout, f"the store did not answer within {settings.store_timeout:g} s"
    )
    reason = overdue(connection, settings, now, is_registered=is_registered)
    if reason:
        connection.link.drop(reason)
        if connection.link.write_paused_since is not None:
            connection.link.transport.abort()


def overdue(connection: Connection, settings: ServerSettings, now: float, *, is_registered: bool) -> str:
    """Say which deadline a connection has missed; empty: none."""
    link, reader = connection.link, connection.reader
    paused = link.write_paused_since
    if paused is not None and now - paused > settings.write_timeout:
        return f"it has not read its answers for {settings.write_timeout:g} s"
    if link.is_stopped:
        return ""
    begun, total = reader.packet_since, reader.packet_total
    if begun is not None:
        if now - link.last > settings.packet_timeout:
            return f"nothing of a packet that has begun came for {settings.packet_timeout:g} s"
        longest = settings.packet_timeout + total / settings.slowest
        if now - begun > longest:
            return f"a packet of {total:,} bytes took longer than {longest:.0f} s"
    if not connection.answers.is_busy and not is_registered and now - link.last > settings.idle_timeout:
        return f"it never registered, and asked for nothing for {settings.idle_timeout:g} s"
    return ""
