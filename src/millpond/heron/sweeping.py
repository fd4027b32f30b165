"""Deadlines of all connections, looked at by one task: a timer for each would cost more than the connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millpond.heron.settings import ServerSettings

if TYPE_CHECKING:
    from millpond.heron.connection import Connection
    from millpond.heron.server import HeronServer


async def sweep(server: HeronServer) -> None:
    """Look at every connection again and again, until cancelled."""
    settings = server.settings
    shortest = min(settings.idle_timeout, settings.packet_timeout, settings.write_timeout, settings.store_timeout)
    while True:
        await asyncio.sleep(min(1.0, shortest / 4))
        now = server.loop.time()
        for connection in list(server.connections):
            _look(connection, settings, now, is_registered=server.registry.is_registered(connection))


def _look(connection: Connection, settings: ServerSettings, now: float, *, is_registered: bool) -> None:
    for slot in list(connection.answers.slots):
        if slot.answer is None and slot.work is not None and now - slot.since > settings.store_timeout:
            connection.answers.give_up(slot, f"the store did not answer within {settings.store_timeout:g} s")
    reason = overdue(connection, settings, now, is_registered=is_registered)
    if reason:
        connection.drop(reason)
        if connection.write_paused_since is not None:
            connection.transport.abort()


def overdue(connection: Connection, settings: ServerSettings, now: float, *, is_registered: bool) -> str:
    """Say which deadline a connection has missed; empty: none."""
    paused = connection.write_paused_since
    if paused is not None and now - paused > settings.write_timeout:
        return f"it has not read its answers for {settings.write_timeout:g} s"
    if connection.is_stopped:
        return ""
    begun, total = connection.reader.packet_since, connection.reader.packet_total
    if begun is not None:
        if now - connection.last > settings.packet_timeout:
            return f"nothing of a packet that has begun came for {settings.packet_timeout:g} s"
        longest = settings.packet_timeout + total / settings.slowest
        if now - begun > longest:
            return f"a packet of {total:,} bytes took longer than {longest:.0f} s"
    if not connection.answers.is_busy and not is_registered and now - connection.last > settings.idle_timeout:
        return f"it never registered, and asked for nothing for {settings.idle_timeout:g} s"
    return ""
