"""Real servers, and stores on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))

from services import moto_server, toxiproxy, versitygw, watching_proxy
from services.go_tools import TOXIPROXY, VERSITYGW, GoTool
from services.s3_server import S3Server

from millpond_s3.client import make_client
from millpond_s3.settings import S3Settings
from millpond_s3.store import S3Store

_numbers = count(1)


def need(tool: GoTool) -> None:
    """Skip, or where MILLPOND_INSIST is set fail, a test whose server has not been built."""
    if tool.find() is None:
        (pytest.fail if os.environ.get("MILLPOND_INSIST") else pytest.skip)(tool.missing())


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A moto server."""
    with moto_server.serve(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A versitygw server."""
    need(VERSITYGW)
    with versitygw.serve(tmp_path_factory.mktemp("versitygw")) as server:
        yield server


@pytest.fixture(scope="session")
def toxics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[toxiproxy.Toxiproxy]:
    """A Toxiproxy."""
    need(TOXIPROXY)
    with toxiproxy.serve(tmp_path_factory.mktemp("toxiproxy")) as proxy:
        yield proxy


@pytest.fixture(params=["moto", "versitygw"])
def server(request: pytest.FixtureRequest) -> S3Server:
    """Each of the servers in turn."""
    found: S3Server = request.getfixturevalue({"moto": "moto", "versitygw": "gateway"}[request.param])
    return found


@pytest.fixture
def bucket() -> str:
    """A name that no other test has."""
    return f"bucket-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def new_bucket(bucket: str) -> Iterator[Callable[[S3Server], Any]]:
    """Make the test's bucket on a server, and give a client to look at it from outside."""
    clients: list[Any] = []

    def make(server: S3Server) -> Any:
        clients.append(make_client(S3Settings(bucket=bucket, **server.settings), 4, lambda **_: None))
        clients[-1].create_bucket(Bucket=bucket)
        return clients[-1]

    yield make
    for client in clients:
        client.close()


OpenStore = Callable[..., S3Store]


@pytest.fixture
def open_store(bucket: str) -> Iterator[OpenStore]:
    """Open stores; all are closed in the end."""
    opened: list[S3Store] = []

    def open_one(server: S3Server, *, threads: int = 4, **settings: Any) -> S3Store:
        given: dict[str, Any] = {**server.settings, "bucket": bucket, "attempts": 2, **settings}
        opened.append(S3Store(S3Settings(**given), threads))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def outside(server: S3Server, new_bucket: Callable[[S3Server], Any]) -> Any:
    """A bucket on the server, as a client of the SDK sees it."""
    return new_bucket(server)


@pytest.fixture
def store(server: S3Server, outside: Any, open_store: OpenStore) -> S3Store:
    """A store below a prefix of the bucket."""
    return open_store(server, prefix="some/place")


@pytest.fixture
def watch(server: S3Server) -> Iterator[watching_proxy.Watch]:
    """A proxy in front of the server."""
    with watching_proxy.watching(server.endpoint) as seen:
        yield seen
