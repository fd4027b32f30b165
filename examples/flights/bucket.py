"""A bucket for the demo, on an S3 server that the demo starts itself: versitygw if it is there, else moto."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

TESTS = Path(__file__).resolve().parents[2] / "tests"
NAME = "flights-demo"


@frozen
class Bucket:
    """
    A bucket that exists.

    Attributes:
        name: Its name.
        endpoint: Where its server listens.
        server: Which server it is.
    """

    name: str
    endpoint: str
    server: str


@contextmanager
def serve(root: Path) -> Iterator[Bucket]:
    """Serve a new bucket from the folder *root*; the SDK finds the credentials in this process's environment."""
    sys.path.insert(0, str(TESTS))
    import services.moto_server
    import services.versitygw
    from services.go_tools import VERSITYGW

    start = services.moto_server.serve if VERSITYGW.find() is None else services.versitygw.serve
    with start(root) as server:
        os.environ.update(server.environment, AWS_DEFAULT_REGION="us-east-1")
        import boto3

        boto3.client("s3", endpoint_url=server.endpoint).create_bucket(Bucket=NAME)
        yield Bucket(NAME, server.endpoint, server.name)
