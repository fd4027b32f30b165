"""
Apache Kafka: one broker that is its own controller, which can be stopped, killed and started again on its data.

    python tests/services/kafka.py        fetches 45 jars (45 MB) with Maven, once, into the checkout's build folder
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from services import maven
from services.file_system_server import CACHE
from services.processes import START_TIMEOUT_S, ServerError, free_port, stop

VERSION = "4.4.0"
JARS = CACHE / f"kafka-{VERSION}"
# The second, which must be of the version that the first brings along, because Kafka is mute without it.
ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
)
LOGGING = """<Configuration status="error"><Appenders><Console name="out">
<PatternLayout pattern="%d %p %c{1} %m%n"/></Console>
</Appenders><Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""
ARCHIVE = "classes.jsa"
CLUSTER = "millpondMillpondMillpo"
EXTERNAL = "MILLPOND_TEST_KAFKA"
# Time-outs are those of a broker whose tests cannot wait: a registration that lapses, a group that settles, a cleaner.
SETTINGS: Mapping[str, object] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "num.partitions": 1,
    "default.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 3000,
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 500,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.threads": 1,
    "log.cleaner.dedupe.buffer.size": 8388608,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 1000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "num.network.threads": 2,
    "num.io.threads": 2,
    "background.threads": 2,
}


def missing() -> str | None:
    """Say what to do where it cannot be served; None where it can, or where one outside is named."""
    if os.environ.get(EXTERNAL):
        return None
    if shutil.which("java") is None:
        return f"Kafka needs Java 17: install it, then run `python tests/services/kafka.py`; or name one by {EXTERNAL}"
    if not (JARS / ARCHIVE).is_file():
        return f"Kafka is not there: fetch it with `python tests/services/kafka.py` (Maven); or name one by {EXTERNAL}"
    return None


def install() -> None:
    """Fetch the jars, unless they are there, and archive their loaded classes; nothing half-fetched is left."""
    maven.install(JARS, ARTIFACTS, lambda folder: (folder / "log4j2.xml").write_text(LOGGING))
    if not (JARS / ARCHIVE).is_file():
        _archive_classes()


def _archive_classes() -> None:
    """Run a broker once and note the classes that it loads: later ones start in half of the time."""
    made = JARS / f".{ARCHIVE}-{os.getpid()}"
    root = CACHE / f".kafka-{os.getpid()}"
    try:
        broker = Broker(root, flags=[f"-XX:ArchiveClassesAtExit={made}"])
        broker.start()
        try:
            broker.await_ready()
        finally:
            broker.close()
        made.rename(JARS / ARCHIVE)
    finally:
        made.unlink(missing_ok=True)
        shutil.rmtree(root, ignore_errors=True)


@define
class Broker:
    """
    One broker: a Java process with a folder and ports of its own.

    Attributes:
        folder: Its configuration, data and log; made at the first start.
        settings: What its configuration says beyond, or instead of, the usual.
        flags: More words for Java.
        port: Where clients reach it; the same at every start.
    """

    folder: Path
    settings: Mapping[str, object] = field(factory=dict)
    flags: Sequence[str] = ()
    port: int = field(factory=free_port)
    _controller: int = field(factory=free_port)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """``host:port``: what a client takes for ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process, on the data that its folder has; see :meth:`await_ready`."""
        assert not self.is_running(), "two brokers on one folder ruin it"
        configuration = self.folder / "server.properties"
        if not configuration.exists():
            self._format(configuration)
        with (self.folder / "server.log").open("ab") as said:
            command = [*self._java(), "kafka.Kafka", str(configuration)]
            self._process = subprocess.Popen(command, stdout=said, stderr=said)

    def await_ready(self) -> None:
        """
        Wait until it answers for its topics, which is later than when it listens.

        Raises:
            ServerError: It ended by itself, or answers nobody after a minute.
        """
        pause, deadline = threading.Event(), time.monotonic() + START_TIMEOUT_S
        while self.is_running() and time.monotonic() < deadline:
            if _listens(self.port) and self._answers():
                return
            pause.wait(0.05)
        raise ServerError(f"Kafka in {self.folder} does not serve:\n{self.log()[-4000:]}")

    def _answers(self) -> bool:
        """Ask over a connection that knows no security: only the broker's own listener can be waited for so."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if "listeners" in self.settings:
            return True
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        try:
            return bool(admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Give what it has said since its first start."""
        return (self.folder / "server.log").read_text("utf-8", "replace")

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def stop(self) -> None:
        """End it kindly: it closes its data."""
        if self._process is not None:
            stop(self._process)

    def restart(self) -> None:
        """Start it again on its data and its port, and wait until it serves."""
        self.start()
        self.await_ready()

    def freeze(self) -> None:
        """Let it hold its connections and answer nobody, until :meth:`thaw`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after :meth:`freeze`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self.is_running():
            self.thaw()
            self.stop()

    def _format(self, configuration: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        listeners = f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self._controller}"
        own = {
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "log.dirs": self.folder / "data",
        }
        known = {"port": self.port, "controller": self._controller}
        settings = {name: str(value) for name, value in {**SETTINGS, **own}.items()}
        settings |= {name: str(value).format(**known) for name, value in self.settings.items()}
        made = configuration.with_suffix(".new")
        made.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with (self.folder / "server.log").open("ab") as said:
            command = [*self._java(), "kafka.tools.StorageTool", "format", f"--cluster-id={CLUSTER}", "-c", str(made)]
            subprocess.run(command, check=True, timeout=START_TIMEOUT_S, stdout=said, stderr=said)
        made.rename(configuration)

    def _java(self) -> list[str]:
        # The archive holds for this very list of jars, collector and compiler, and for no other.
        jars = ":".join(str(jar) for jar in sorted(JARS.glob("*.jar")))
        archive = [f"-XX:SharedArchiveFile={JARS / ARCHIVE}", "-Xshare:auto"] if (JARS / ARCHIVE).is_file() else []
        memory = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        logging = f"-Dlog4j2.configurationFile={JARS / 'log4j2.xml'}"
        return ["java", *memory, *archive, *self.flags, logging, "-cp", jars]


def _listens(port: int) -> bool:
    """Look by a bare socket: the client would complain on standard error while nobody listens."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@contextmanager
def serve(root: Path, settings: Mapping[str, object] = {}) -> Iterator[Broker]:
    """
    Serve a new, empty broker out of *root* until the block ends.

    *settings* go over the usual ones; ``{port}`` and ``{controller}`` in a value are its ports.
    """
    broker = Broker(root.absolute(), settings)
    try:
        broker.start()
        broker.await_ready()
        yield broker
    finally:
        broker.close()


def main() -> int:
    """Install it; 0 also where Java or Maven is missing, since the tests say so themselves."""
    if shutil.which("java") is None or (not JARS.is_dir() and shutil.which("mvn") is None):
        print("Java or Maven is not installed: the tests that need Kafka will say so")
        return 0
    install()
    print(f"kafka {VERSION}: {JARS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
