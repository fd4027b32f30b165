"""A coordinator's record in a real bucket keeps the contract."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from services import versitygw
from services.go_tools import VERSITYGW
from services.s3_server import S3Server

from millpond.coordinator import conformance, in_blob_store
from millpond.coordinator.metadata import CoordinatorMetadata
from millpond.spi import Secret

_numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A versitygw server, whose conditional writes have one winner."""
    pytest.importorskip("millpond_s3")
    if VERSITYGW.find() is None:
        (pytest.fail if os.environ.get("MILLPOND_INSIST") else pytest.skip)(VERSITYGW.missing())
    with versitygw.serve(tmp_path_factory.mktemp("versitygw")) as running:
        yield running


@pytest.fixture
def open_place(server: S3Server) -> Iterator[Callable[[], CoordinatorMetadata]]:
    """Open the place in a new bucket, each time with connections of its own."""
    import boto3

    from millpond_s3.settings import S3Settings
    from millpond_s3.store import S3Store

    said: dict[str, Any] = server.settings | {
        "bucket": f"coordinator-{next(_numbers)}",
        "access_key": Secret(server.access_key),
        "secret_key": Secret(server.secret_key),
    }
    settings = S3Settings(**said)
    boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
    ).create_bucket(Bucket=settings.bucket)
    with ExitStack() as stack:

        def opened() -> CoordinatorMetadata:
            store = S3Store(settings)
            stack.callback(store.close)
            return in_blob_store(store, "job", lease_s=20.0)

        yield opened


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_a_bucket_keeps_the_contract(
    open_place: Callable[[], CoordinatorMetadata], check: Callable[[Any], None]
) -> None:
    """A record in a bucket passes every check of the role: one leader at a time, compare-and-set, nothing half."""
    check(open_place)
