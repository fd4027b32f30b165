"""
ZooKeeper: one server, or an ensemble whose servers can be killed, stopped and started one by one.

    python tests/services/zookeeper.py        fetches 23 jars (14 MB) with Maven, once, into the checkout's build folder
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from attrs import define, field

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from services import maven
from services.file_system_server import CACHE
from services.processes import START_TIMEOUT_S, ServerError, free_port, stop

VERSION = "3.9.5"
JARS = CACHE / f"zookeeper-{VERSION}"
# The last two are needed at run time and not asked for by the first: look at them when its version moves.
ARTIFACTS = (
    f"org.apache.zookeeper:zookeeper:{VERSION}",
    "org.xerial.snappy:snappy-java:1.1.10.5",
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
)
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
EXTERNAL = "MILLPOND_TEST_ZOOKEEPER"
TICK_MS = 200


def missing() -> str | None:
    """Say what to do where it cannot be served; None where it can."""
    return maven.missing("ZooKeeper", JARS, "python tests/services/zookeeper.py")


def install() -> None:
    """Fetch the jars, unless they are there."""
    maven.install(JARS, ARTIFACTS)


@define
class Server:
    """
    One server: a Java process with a folder and a port of its own. It may be killed and started again on its data.

    Attributes:
        folder: Its configuration, data and log.
        port: Where clients reach it.
        memory: The most that Java's heap may take.
        secure_port: Where clients reach it with TLS, if it was asked for.
    """

    folder: Path
    port: int
    memory: str = "256m"
    secure_port: int | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process; see :meth:`await_ready`."""
        java = [
            "java",
            f"-Xmx{self.memory}",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{JARS}/*",
        ]
        with (self.folder / "server.log").open("ab") as said:
            command = [*java, MAIN, str(self.folder / "zoo.cfg")]
            self._process = subprocess.Popen(command, stdout=said, stderr=said)

    def await_ready(self) -> None:
        """
        Wait until it serves sessions, which is later than when it listens.

        Raises:
            ServerError: It ended by itself, or serves nobody after a minute.
        """
        pause, deadline = threading.Event(), time.monotonic() + START_TIMEOUT_S
        while self.is_running() and time.monotonic() < deadline:
            if self.mode() is not None:
                return
            pause.wait(0.05)
        log = (self.folder / "server.log").read_text("utf-8", "replace")
        raise ServerError(f"ZooKeeper in {self.folder} does not serve:\n{log[-4000:]}")

    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def mode(self) -> str | None:
        """Give ``leader``, ``follower`` or ``standalone``; None while it serves nobody."""
        said = self.ask("srvr")
        return next((line[6:] for line in said.splitlines() if line.startswith("Mode: ")), None)

    def ask(self, word: str) -> str:
        """Give the answer to a four-letter word; nothing if there is none."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode("utf-8", "replace")
        return ""

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def signal(self, number: int) -> None:
        """Send a signal, such as SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill() if self.mode() is None else stop(self._process)
            self._process.wait(30)


@define
class Ensemble:
    """
    Servers that serve together; one alone is one as well.

    Attributes:
        servers: All of them, running or not.
    """

    servers: Sequence[Server]

    @property
    def hosts(self) -> str:
        """The addresses of all, as a client wants them."""
        return ",".join(server.address for server in self.servers)

    def leader(self) -> Server:
        """Give the server that leads now; ServerError if none does within a minute."""
        pause, deadline = threading.Event(), time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            for server in self.servers:
                if server.is_running() and server.mode() in ("leader", "standalone"):
                    return server
            pause.wait(0.05)
        raise ServerError("no server of the ensemble leads")

    def await_ready(self) -> None:
        """Wait until each running server serves."""
        for server in self.servers:
            if server.is_running():
                server.await_ready()


@contextmanager
def serve(root: Path, count: int = 1, *, secure: bool = False, **more: object) -> Iterator[Ensemble]:
    """
    Serve a new, empty ensemble of *count* servers out of *root*, with *more* settings, until the block ends.

    *secure* gives each a port for TLS as well; the settings then have to say which certificate.
    """
    folders = [root.absolute() / str(number) for number in range(1, count + 1)]
    ensemble = Ensemble([_configured(folder, free_port(), more) for folder in folders])
    for server in ensemble.servers if secure else ():
        server.secure_port = free_port()
        with (server.folder / "zoo.cfg").open("a") as settings:
            settings.write(f"secureClientPort={server.secure_port}\nsecureClientPortAddress=127.0.0.1\n")
    if count > 1:
        _introduce(ensemble.servers)
    with ExitStack() as stack:
        for server in ensemble.servers:
            stack.callback(server.close)
            server.start()
        ensemble.await_ready()
        yield ensemble


def _configured(folder: Path, port: int, more: Mapping[str, object]) -> Server:
    (folder / "data").mkdir(parents=True)
    settings = {
        "tickTime": TICK_MS,
        "dataDir": folder / "data",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
        "minSessionTimeout": 1000,
        "maxSessionTimeout": 60000,
        "maxClientCnxns": 0,
        "commitLogCount": 20,  # requests that stay in memory, 500 unless set: with large nodes they fill the heap
        **more,
    }
    (folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return Server(folder, port)


def _introduce(servers: Sequence[Server]) -> None:
    """Tell each server of the others."""
    known = "".join(f"server.{n}=127.0.0.1:{free_port()}:{free_port()}\n" for n in range(1, len(servers) + 1))
    for number, server in enumerate(servers, 1):
        server.memory = "96m"
        (server.folder / "data" / "myid").write_text(f"{number}\n")
        with (server.folder / "zoo.cfg").open("a") as settings:
            settings.write(f"initLimit=25\nsyncLimit=10\n{known}")


def main() -> int:
    """Install it; 0 also where Java or Maven is missing, since the tests say so themselves."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        print("Java or Maven is not installed: the tests that need ZooKeeper will say so")
        return 0
    install()
    print(f"zookeeper {VERSION}: {JARS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
