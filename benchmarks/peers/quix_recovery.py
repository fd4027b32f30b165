"""
How long Quix Streams takes to recover a store from its changelog, in an environment that has quixstreams.

    python quix_recovery.py BROKER TOPIC STATE_FOLDER

The changelog is there; one record in TOPIC makes the application begin. It prints the seconds from the beginning of the
recovery to its end, by the application's own log lines.
"""

from __future__ import annotations

import logging
import sys
import threading
import time

from quixstreams import Application
from quixstreams.models import TopicConfig

GROUP = "quix"


class Stopwatch(logging.Handler):
    """Notes when the recovery begins and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: float | None = None
        self.ended = threading.Event()
        self.taken = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Look at one line."""
        text = record.getMessage()
        if text.startswith("Beginning recovery check"):
            self.begun = time.perf_counter()
        elif text.startswith("Recovery process complete") and self.begun is not None:
            self.taken = time.perf_counter() - self.begun
            self.ended.set()


def main() -> None:
    """Recover once."""
    broker, topic, folder = sys.argv[1:]
    watch = Stopwatch()
    logging.getLogger("quixstreams").addHandler(watch)
    logging.getLogger("quixstreams").setLevel(logging.INFO)
    app = Application(broker_address=broker, consumer_group=GROUP, state_dir=folder, auto_offset_reset="earliest")
    source = app.topic(topic, config=TopicConfig(num_partitions=1, replication_factor=1), value_deserializer="bytes")
    rows = app.dataframe(source)
    rows.apply(lambda value, state: state.set("seen", 1) or value, stateful=True)

    def stop() -> None:
        watch.ended.wait(600)
        app.stop()

    threading.Thread(target=stop, daemon=True).start()
    app.run()
    print(watch.taken if watch.ended.is_set() else "nothing was recovered")


if __name__ == "__main__":
    main()
