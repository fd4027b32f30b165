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
        log: Where it notes each request; None: it does not.
    """

    name: str
    endpoint: str
    server: str
    log: Path | None = None


@contextmanager
def serve(root: Path) -> Iterator[Bucket]:
    """Serve a new bucket from the folder *root*; the SDK finds the credentials in this process's environment."""
    sys.path.insert(0, str(TESTS))
    import services.moto_server
    import services.versitygw
    from services.go_tools import VERSITYGW

    log = None if VERSITYGW.find() is None else root / "requests.log"
    if log is None:
        served = services.moto_server.serve(root)
    else:
        log.unlink(missing_ok=True)
        served = services.versitygw.serve(root, access_log=log)
    with served as server:
        os.environ.update(server.environment, AWS_DEFAULT_REGION="us-east-1")
        import boto3

        boto3.client("s3", endpoint_url=server.endpoint).create_bucket(Bucket=NAME)
        yield Bucket(NAME, server.endpoint, server.name, log)
