"""
The crash lab on S3: it starts versitygw, makes a bucket, and runs the lab there.

``python tests/programs/crash_s3.py --seeds 0-300``; all arguments are those of the lab, but for ``--module flips`` and
the like, which come first and choose another of its modules.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab_runs import Served, run_beside
from services import versitygw
from services.s3_server import S3Server

BUCKET = "crash-lab"
TEMPLATE = """
[checkpoint]
manager = "s3"
tidy_every = 1
{place}

[backends.main]
type = "s3"
{place}
max_links = 3
cleanup_every = 1
"""


@contextmanager
def serve(folder: Path) -> Iterator[Served]:
    """Serve a bucket; credentials come from the environment."""
    with versitygw.serve(folder) as server:
        _make_bucket(server)
        yield Served(template_of(server), server.environment)


def template_of(server: S3Server) -> str:
    """Give the lab's template for *server*."""
    place = [f'bucket = "{BUCKET}"', 'prefix = "{trial}"', f'endpoint = "{server.endpoint}"', 'region = "us-east-1"']
    return TEMPLATE.format(place="\n".join(place))


def _make_bucket(server: S3Server) -> None:
    """Make the bucket with the SDK, in a process of its own: it starts threads, and the lab forks."""
    code = "import boto3, sys; boto3.client('s3', endpoint_url=sys.argv[1]).create_bucket(Bucket=sys.argv[2])"
    environment = {**os.environ, **server.environment, "AWS_DEFAULT_REGION": "us-east-1"}
    subprocess.run([sys.executable, "-c", code, server.endpoint, BUCKET], env=environment, check=True)


if __name__ == "__main__":
    sys.exit(run_beside("s3", serve, sys.argv[1:]))
