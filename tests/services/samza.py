"""
Samza's own checkpoint manager, in Java, to read what we write.

    python tests/services/samza.py        fetches 66 jars (44 MB) with Maven, and compiles one class
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from services import maven
from services.file_system_server import CACHE

VERSION = "1.8.0"
JARS = CACHE / f"samza-{VERSION}"
SOURCE = Path(__file__).parent / "java" / "ReadCheckpoints.java"
ARTIFACTS = (f"org.apache.samza:samza-kafka_2.12:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")
LONGEST_READ_S = 90


class SamzaStoppedError(Exception):
    """Samza could not start on the topic; the message has what it said."""


@frozen
class SamzaCheckpoint:
    """
    What Samza read for a task.

    Attributes:
        version: 1 or 2; None if it found nothing.
        offsets: As Java shows the map.
    """

    version: int | None
    offsets: str


def missing() -> str | None:
    """Say what to do where it cannot run; None where it can."""
    if shutil.which("java") is None:
        return "Samza needs Java 17 with a compiler: install it, then run `python tests/services/samza.py`"
    if not (JARS / "ReadCheckpoints.class").is_file():
        return "Samza is not there: fetch it with `python tests/services/samza.py` (Maven, javac)"
    return None


def install() -> None:
    """Fetch the jars and compile the class, unless they are there; nothing half-made is left."""
    maven.install(JARS, ARTIFACTS, _compile)


def _compile(folder: Path) -> None:
    subprocess.run(["javac", "-cp", f"{folder}/*", "-d", str(folder), str(SOURCE)], check=True, timeout=120)


def read(address: str, job: str, versions: str, tasks: Sequence[str]) -> dict[str, SamzaCheckpoint]:
    """
    Let Samza read the last checkpoints of *tasks*, with ``task.checkpoint.read.versions=<versions>``.

    Raises:
        SamzaStoppedError: It stops.
    """
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]
    command = [*java, "-Dsun.jnu.encoding=UTF-8", "-cp", f"{JARS}:{JARS}/*", "ReadCheckpoints", address, job, versions]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run([*command, *tasks], capture_output=True, timeout=LONGEST_READ_S, env=environment, check=False)
    said = done.stdout.decode()
    if done.returncode != 0:
        raise SamzaStoppedError(f"{said}\n{done.stderr.decode()[-4000:]}")
    lines = [line.split("\t") for line in said.splitlines() if line.startswith("READ\t")]
    return {task: SamzaCheckpoint(None if v == "none" else int(v), offsets) for _, task, v, offsets in lines}


def main() -> int:
    """Install it; 0 also where Java or Maven is missing, since the tests say so themselves."""
    if any(shutil.which(each) is None for each in ("java", "javac", "mvn")):
        print("Java, its compiler or Maven is not installed: the test that needs Samza will say so")
        return 0
    install()
    print(f"samza {VERSION}: {JARS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
