"""Three Kafka brokers that replicate each other's topics, each of which may be killed while the others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import frozen
from services.kafka import Broker
from services.processes import START_TIMEOUT_S, ServerError, free_port

COUNT = 3
REPLICATED = {
    "default.replication.factor": COUNT,
    "min.insync.replicas": COUNT - 1,
    "offsets.topic.replication.factor": COUNT,
    "transaction.state.log.replication.factor": COUNT,
    "transaction.state.log.min.isr": COUNT - 1,
    "share.coordinator.state.topic.replication.factor": COUNT,
    "share.coordinator.state.topic.min.isr": COUNT - 1,
}


@frozen
class Cluster:
    """
    Brokers that are controllers, too.

    Attributes:
        brokers: By their ids.
    """

    brokers: dict[int, Broker]

    @property
    def address(self) -> str:
        """What a client takes for ``bootstrap.servers``."""
        return ",".join(broker.address for broker in self.brokers.values())

    def leader(self, topic: str, partition: int = 0) -> Broker:
        """Give the broker that leads a partition."""
        return self.brokers[self._leader(topic, partition)]

    def _leader(self, topic: str, partition: int) -> int:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        found = admin.list_topics(topic, timeout=START_TIMEOUT_S).topics[topic]
        return int(found.partitions[partition].leader)

    def await_whole(self, topic: str) -> None:
        """Wait until every broker serves, and has all of *topic*."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        pause, deadline = threading.Event(), time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = admin.list_topics(timeout=START_TIMEOUT_S)
            parts = found.topics[topic].partitions.values() if topic in found.topics else ()
            if len(found.brokers) == COUNT and all(len(part.isrs) == COUNT for part in parts):
                return
            pause.wait(0.1)
        raise ServerError(f"not all {COUNT} brokers are there and have {topic!r} after {START_TIMEOUT_S:g} s")


@contextmanager
def serve(root: Path) -> Iterator[Cluster]:
    """Serve a new, empty cluster out of *root* until the block ends."""
    controllers = {number: free_port() for number in range(1, COUNT + 1)}
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in controllers.items())
    with ExitStack() as closing:
        brokers = {}
        for number, port in controllers.items():
            settings = {**REPLICATED, "node.id": number, "controller.quorum.voters": voters}
            brokers[number] = Broker(root.absolute() / str(number), settings, controller=port)
            closing.callback(brokers[number].kill)  # one that is alone cannot leave in good order
            brokers[number].start()
        for broker in brokers.values():
            broker.await_ready()
        cluster = Cluster(brokers)
        cluster.await_whole("")
        yield cluster
