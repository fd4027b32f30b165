"""Toxiproxy: connections that are slow, cut, reset, or silent."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from attrs import frozen
from services.go_tools import TOXIPROXY
from services.processes import free_port, running

TIMEOUT_S = 10.0


@frozen
class Toxiproxy:
    """
    A running Toxiproxy.

    Attributes:
        control: The address of its own interface.
    """

    control: str

    @contextmanager
    def before(self, endpoint: str, name: str = "store") -> Iterator[Proxied]:
        """Put a proxy in front of *endpoint* until the block ends."""
        port = free_port()
        given = {"name": name, "listen": f"127.0.0.1:{port}", "upstream": urlsplit(endpoint).netloc}
        self.ask("POST", "/proxies", given)
        try:
            yield Proxied(self, name, f"http://127.0.0.1:{port}")
        finally:
            self.ask("DELETE", f"/proxies/{name}")

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> None:
        """Ask for something; an answer above 400 raises."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.control + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            answer.read()


@frozen
class Proxied:
    """
    A proxy in front of a server.

    Attributes:
        toxiproxy: Whose it is.
        name: Its name there.
        endpoint: Where it listens.
    """

    toxiproxy: Toxiproxy
    name: str
    endpoint: str

    @contextmanager
    def toxic(self, kind: str, *, upstream: bool = False, toxicity: float = 1.0, **attributes: int) -> Iterator[None]:
        """Poison the stream from the server, or with *upstream* the one to it, for the block."""
        given = {"name": kind, "type": kind, "stream": "upstream" if upstream else "downstream"}
        poison = {**given, "toxicity": toxicity, "attributes": attributes}
        self.toxiproxy.ask("POST", f"/proxies/{self.name}/toxics", poison)
        try:
            yield
        finally:
            self.toxiproxy.ask("DELETE", f"/proxies/{self.name}/toxics/{kind}")

    @contextmanager
    def down(self) -> Iterator[None]:
        """Refuse connections for the block, and cut those that are open."""
        self.toxiproxy.ask("POST", f"/proxies/{self.name}", {"enabled": False})
        try:
            yield
        finally:
            self.toxiproxy.ask("POST", f"/proxies/{self.name}", {"enabled": True})


@contextmanager
def serve(root: Path) -> Iterator[Toxiproxy]:
    """Run Toxiproxy until the block ends; *root* gets its log."""
    binary = TOXIPROXY.find()
    if binary is None:
        raise FileNotFoundError(TOXIPROXY.missing())
    root.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with running([str(binary), "-host", "127.0.0.1", "-port", str(port)], port, root / "toxiproxy.log"):
        yield Toxiproxy(f"http://127.0.0.1:{port}")
