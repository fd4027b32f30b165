"""Ending an asyncio server's listening without losing sight of a connection."""

from __future__ import annotations

import asyncio

_ROUNDS_TO_ACCEPT = 4


async def close_listener(server: asyncio.Server) -> None:
    """
    Close the listening sockets of *server*, whose loop this runs on; what it has accepted becomes a connection first.

    A socket that was accepted, and is no connection yet when its listener closes, stays open until the garbage
    collector finds it (CPython's issue 109564). So first nothing more is accepted, then the loop goes round.
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    for _ in range(_ROUNDS_TO_ACCEPT):
        await asyncio.sleep(0)
    server.close()
