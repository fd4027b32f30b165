"""Sees whether a call that must not do I/O does some: Python's own audit events, on the calling thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_watched = threading.local()
_installing = threading.Lock()
_installed = False

_EVENTS = ("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.link", "os.rmdir", "shutil.")
_PREFIXES = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "sqlite3.connect", "subprocess.Popen")
_IMPORTED = (".py", ".pyc", ".so", ".pth", ".pyd", ".zip")


@contextmanager
def watched_io() -> Iterator[list[str]]:
    """Give a list that fills with the I/O of the block on this thread; reading a module to import it is none."""
    _install()
    seen: list[str] = []
    _watched.seen = seen
    try:
        yield seen
    finally:
        _watched.seen = None


def _install() -> None:
    global _installed  # noqa: PLW0603 - an audit hook cannot be removed, so there is one
    with _installing:
        if not _installed:
            sys.addaudithook(_hook)
            _installed = True


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    seen = getattr(_watched, "seen", None)
    if seen is None or not (event.startswith(_PREFIXES) or event in _EVENTS or event.startswith("shutil.")):
        return
    target = str(arguments[0]) if arguments else ""
    if not (event == "open" and target.endswith(_IMPORTED)) and not _is_import():
        seen.append(f"{event} {target}")


def _is_import() -> bool:
    frame = sys._getframe(2)  # noqa: SLF001 - there is no other way to see who opens a file
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
