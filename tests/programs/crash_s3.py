"""
The crash lab on S3: it starts versitygw, makes a bucket, and runs the lab there.

``python tests/programs/crash_s3.py --seeds 0-300``; all arguments are those of the lab, but for ``--module flips`` and
the like, which come first and choose another of its modules.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from services import versitygw
from services.s3_server import S3Server

from millpond.testing.lab.seeds import in_memory

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


def main(arguments: list[str]) -> int:
    """Run the lab with *arguments* against a server of its own; give its exit code."""
    module = "millpond.testing.lab"
    if arguments[:1] == ["--module"]:
        module, arguments = f"{module}.{arguments[1]}", arguments[2:]
    place = tempfile.TemporaryDirectory(prefix="millpond-crash-s3-", dir=in_memory())
    with place as folder, versitygw.serve(Path(folder)) as server:
        template = Path(folder) / "s3.toml"
        template.write_text(template_of(server), "utf-8")
        _make_bucket(server)
        command = [sys.executable, "-m", module, "--backend", "s3", "--config-template", str(template), *arguments]
        return _run(command, {**os.environ, **server.environment})


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run the lab; told to end, let it tell what it has run by then, and end the server too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with subprocess.Popen(command, env=environment) as lab:
        try:
            return lab.wait()
        except KeyboardInterrupt:
            lab.terminate()
            return lab.wait()


def template_of(server: S3Server) -> str:
    """Give the lab's template for *server*; credentials come from the environment."""
    place = [f'bucket = "{BUCKET}"', 'prefix = "{trial}"', f'endpoint = "{server.endpoint}"', 'region = "us-east-1"']
    return TEMPLATE.format(place="\n".join(place))


def _make_bucket(server: S3Server) -> None:
    """Make the bucket with the SDK, in a process of its own: it starts threads, and the lab forks."""
    code = "import boto3, sys; boto3.client('s3', endpoint_url=sys.argv[1]).create_bucket(Bucket=sys.argv[2])"
    environment = {**os.environ, **server.environment, "AWS_DEFAULT_REGION": "us-east-1"}
    subprocess.run([sys.executable, "-c", code, server.endpoint, BUCKET], env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
