"""
A Kafka consumer group whose partitions are tasks with state: a job is a function and a configuration.

::

    import millpond.hosts.kafka

    def process(record, task):
        counts = task.store("counts")
        counts[record.key()] = counts.get(record.key(), 0) + 1

    millpond.hosts.kafka.run("job.toml", process)

*record* is confluent-kafka's ``Message``. The client is imported when a host is made, and not before.
"""

from millpond.hosts.kafka.health import HostHealth
from millpond.hosts.kafka.host import KafkaHost
from millpond.hosts.kafka.hosted import HostedTask, Process
from millpond.hosts.kafka.running import run, stopped_by_signals
from millpond.hosts.kafka.settings import KafkaSettings
from millpond.hosts.source import SourceGoneError

__all__ = [
    "HostHealth",
    "HostedTask",
    "KafkaHost",
    "KafkaSettings",
    "Process",
    "SourceGoneError",
    "run",
    "stopped_by_signals",
]
