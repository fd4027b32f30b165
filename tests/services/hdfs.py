"""
HDFS: a namenode and a datanode, as Java processes with fixed ports.

    python tests/services/hdfs.py        fetches nine jars (104 MB) with Maven, once, into the checkout's build folder
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from services import maven
from services.file_system_server import CACHE, FileSystemServer
from services.processes import ServerError, free_port, running

VERSION = "3.5.0"
JARS = CACHE / f"hadoop-{VERSION}"
ARTIFACTS = (
    f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}",
    f"org.apache.hadoop:hadoop-client-api:{VERSION}",
    f"org.apache.hadoop:hadoop-client-runtime:{VERSION}",
    "ch.qos.reload4j:reload4j:1.2.22",
    "org.slf4j:slf4j-reload4j:1.7.36",
)
# Without it both servers die silently.
LOGGING = """log4j.rootLogger=WARN,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{1} %m%n
"""
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
READY_S = 120.0


def missing() -> str | None:
    """Say what to do where it cannot be served; None where it can."""
    return maven.missing("HDFS", JARS, "python tests/services/hdfs.py")


def install() -> None:
    """Fetch the jars, unless they are there."""
    maven.install(JARS, ARTIFACTS)


@contextmanager
def serve(root: Path) -> Iterator[FileSystemServer]:
    """Serve a new, empty HDFS out of *root* until the block ends."""
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True)
    (root / "log4j.properties").write_text(LOGGING)
    http, rpc, *data = (free_port() for _ in range(5))
    settings = _settings(root, http, rpc, *data)
    log = root / "hdfs.log"
    with log.open("ab") as said:
        form = [*_java(root, NAMENODE), *settings, "-format", "-force", "-nonInteractive"]
        subprocess.run(form, check=True, timeout=READY_S, stdout=said, stderr=said, env=_environment())
    with (
        running([*_java(root, NAMENODE), *settings], http, log, **_user()),
        running([*_java(root, DATANODE), *settings], data[1], log, **_user()),
    ):
        _await_first_file(http, log)
        yield FileSystemServer("hdfs", f"webhdfs://127.0.0.1:{http}/millpond", {"user": "test"})


def _settings(root: Path, http: int, rpc: int, data: int, data_http: int, data_ipc: int) -> list[str]:
    values = {
        "fs.defaultFS": f"hdfs://127.0.0.1:{rpc}",
        "dfs.namenode.rpc-address": f"127.0.0.1:{rpc}",
        "dfs.namenode.http-address": f"127.0.0.1:{http}",
        "dfs.namenode.name.dir": f"file://{root}/name",
        "dfs.datanode.data.dir": f"file://{root}/data",
        "dfs.datanode.address": f"127.0.0.1:{data}",
        "dfs.datanode.http.address": f"127.0.0.1:{data_http}",
        "dfs.datanode.ipc.address": f"127.0.0.1:{data_ipc}",
        "dfs.datanode.hostname": "127.0.0.1",
        "dfs.replication": "1",
        "dfs.namenode.safemode.extension": "0",
        "dfs.heartbeat.interval": "1",
        "hadoop.tmp.dir": f"{root}/tmp",
        # The client inside the datanode sleeps 400 ms after each file otherwise.
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
    }
    return [part for name, value in values.items() for part in ("-D", f"{name}={value}")]


def _java(root: Path, main: str) -> list[str]:
    return ["java", "-Xmx256m", "-cp", f"{root}:{JARS}/*", main]


def _user() -> dict[str, str]:
    return {"HADOOP_USER_NAME": "test"}


def _environment() -> dict[str, str]:
    return {**os.environ, **_user()}


def _await_first_file(http: int, log: Path) -> None:
    """Wait until a file can be written: the namenode answers long before a datanode is there."""
    pause, deadline = threading.Event(), time.monotonic() + READY_S
    url = f"http://127.0.0.1:{http}/webhdfs/v1/ready?op=CREATE&overwrite=true&user.name=test"
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT", data=b""), timeout=10):
                return
        except urllib.error.HTTPError as error:
            if error.code == 307:
                with urllib.request.urlopen(
                    urllib.request.Request(error.headers["Location"], method="PUT", data=b""), timeout=30
                ):
                    return
        except OSError:
            pass
        pause.wait(0.1)
    raise ServerError(f"HDFS takes no file after {READY_S} s:\n{log.read_text('utf-8', 'replace')[-4000:]}")


def main() -> int:
    """Install it; 0 also where Java or Maven is missing, since the tests say so themselves."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        print("Java or Maven is not installed: the tests that need HDFS will say so")
        return 0
    install()
    print(f"hadoop {VERSION}: {JARS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
