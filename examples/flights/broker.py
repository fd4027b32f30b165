"""The input in Kafka, on a broker that the demo starts itself: one topic, a partition for each airport."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flights import ORIGINS, stream_file

TESTS = Path(__file__).resolve().parents[2] / "tests"
TOPIC = "flights"


@contextmanager
def serve(root: Path) -> Iterator[str]:
    """Serve a new broker from the folder *root*; give its address."""
    sys.path.insert(0, str(TESTS))
    from services import kafka

    if (reason := kafka.missing()) is not None:
        raise SystemExit(reason)
    with kafka.serve(root) as broker:
        yield broker.address


def write_topic(address: str, streams: Path) -> None:
    """Write each origin's stream into its partition, so that a row's number is its offset."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, len(ORIGINS), 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 50, "log_level": 3})
    failed: list[object] = []
    for number, origin in enumerate(ORIGINS):
        for row in stream_file(streams, origin).read_bytes().splitlines():
            while True:
                try:
                    producer.produce(
                        TOPIC, row, partition=number, on_delivery=lambda e, _: failed.append(e) if e else None
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
    if producer.flush(60) or failed:
        raise SystemExit(f"the input could not be written to {address}: {failed[:1]}")
