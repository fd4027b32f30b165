"""
Samza's keys and class names, and what each stands for here. Tables only; :mod:`millpond.config.samza` reads them.

Source: Samza's configuration reference and its ``JobConfig``, ``TaskConfig``, ``StorageConfig`` and
``RocksDbOptionsHelper``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

ENGINES: Mapping[str, str] = {
    "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory": "rocksdb",
    "org.apache.samza.storage.kv.inmemory.InMemoryKeyValueStorageEngineFactory": "memory",
}
"""A store's factory class to our engine."""

CHANGELOG_FACTORY = "org.apache.samza.storage.KafkaChangelogStateBackendFactory"

BACKENDS: Mapping[str, str] = {
    CHANGELOG_FACTORY: "changelog",
    "org.apache.samza.storage.blobstore.BlobStoreStateBackendFactory": "blob",
}
"""A state backend's factory class to the name of our section for it."""

MANAGERS: Mapping[str, str] = {
    "org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory": "kafka",
    "org.apache.samza.checkpoint.file.FileSystemCheckpointManagerFactory": "directory",
}
"""A checkpoint manager's factory class to our manager."""

SERDES: Mapping[str, str] = {
    "org.apache.samza.serializers.StringSerdeFactory": "str",
    "org.apache.samza.serializers.ByteSerdeFactory": "bytes",
    "org.apache.samza.serializers.JsonSerdeFactory": "json",
    "org.apache.samza.serializers.JsonSerdeV2Factory": "json",
}
"""A serde's factory class to a serde of ours that reads what it wrote."""

USUAL_SERDES: Mapping[str, str] = {"string": "str", "byte": "bytes", "json": "json"}
"""Names that Samza registers by itself."""

DEFAULTS: Mapping[tuple[str, ...], object] = {
    ("checkpoint", "write_versions"): (1, 2),
    ("checkpoint", "read_versions"): (1,),
    ("commit", "interval"): "60s",
    ("commit", "timeout"): "30m",
    ("restore", "parallel"): 2,
}
"""What Samza takes where its file says nothing, and we would take something else."""

ROCKSDB_OPTIONS: Mapping[str, str] = {
    "rocksdb.compression": "compression",
    "rocksdb.block.size.bytes": "block_size",
    "rocksdb.compaction.style": "compaction_style",
    "rocksdb.num.write.buffers": "max_write_buffer_number",
    "rocksdb.max.log.file.size.bytes": "max_log_file_size",
    "rocksdb.keep.log.file.num": "keep_log_file_num",
    "rocksdb.delete.obsolete.files.period.micros": "delete_obsolete_files_period_micros",
    "rocksdb.max.open.files": "max_open_files",
    "rocksdb.max.file.opening.threads": "max_file_opening_threads",
    "rocksdb.max.manifest.file.size": "max_manifest_file_size",
    "rocksdb.max.background.jobs": "max_background_jobs",
    "rocksdb.compaction.num.levels": "num_levels",
    "rocksdb.compaction.level0.file.num.compaction.trigger": "level0_file_num_compaction_trigger",
    "rocksdb.compaction.target.file.size.base": "target_file_size_base",
    "rocksdb.compaction.target.file.size.multiplier": "target_file_size_multiplier",
    "rocksdb.compaction.universal.max.size.amplification.percent": ("universal_max_size_amplification_percent"),
    "rocksdb.compaction.universal.size.ratio": "universal_size_ratio",
    "rocksdb.compaction.universal.min.merge.width": "universal_min_merge_width",
    "rocksdb.compaction.universal.max.merge.width": "universal_max_merge_width",
    "rocksdb.compaction.universal.compaction.stop.style": "universal_stop_style",
}
"""A store's key to the engine's option."""

COMPRESSIONS: Mapping[str, str] = {"bzip2": "bz2"}
"""Samza's words for compressions, where RocksDB's differ."""

STORE_IDLE: Mapping[str, str] = {
    "container.write.buffer.size.bytes": "all stores of a process share one budget, [engines.rocksdb]",
    "container.cache.size.bytes": "all stores of a process share one cache, [engines.rocksdb]",
    "rocksdb.wal.enabled": "a live database is never trusted after a restart, so it needs no log",
    "rocksdb.metrics.list": "",
    "rocksdb.compaction.max.background.compactions": "use rocksdb.max.background.jobs",
    "write.batch.size": "writes are always gathered",
    "object.cache.size": "writes are always gathered",
    "accesslog.enabled": "",
    "accesslog.sampling.ratio": "",
    "disallow.large.messages": "a record that a backend cannot hold is always refused",
    "drop.large.messages": "a record that a backend cannot hold is always refused, never dropped",
    "clean.on.container.start": "a live database is always made anew",
    "side.inputs": "there are no side inputs here",
    "side.inputs.processor.factory": "there are no side inputs here",
    "side.inputs.processor.serialized.instance": "there are no side inputs here",
    "changelog.replication.factor": "topics are made with the backend's settings",
    "changelog.max.message.size.bytes": "the backend declares its own limit",
    "changelog.max.message.bytes": "topics are made with the backend's settings",
    "changelog.delete.retention.ms": "topics are made with the backend's settings",
    "changelog.min.compaction.lag.ms": "topics are made with the backend's settings",
}
"""A store's keys that mean nothing here, and why."""

TASK_IDLE: Mapping[str, str] = {
    "task.commit.max.delay.ms": "a commit never waits for another",
    "task.checkpoint.replication.factor": "topics are made with the manager's settings",
    "task.checkpoint.segment.bytes": "topics are made with the manager's settings",
    "task.checkpoint.max.message.bytes": "topics are made with the manager's settings",
    "job.container.commit.thread.pool.size": "",
    "job.container.commit.thread.pool.max.size": "",
    "job.container.restore.thread.pool.max.size": "",
    "job.non-logged.store.base.dir": "all stores live under state_dir",
    "blob.store.manager.factory": "a blob store is a section [backends.<name>]",
    "blob.store.admin.factory": "a blob store is a section [backends.<name>]",
    "blob.store.retry.policy.max.retries": "",
    "blob.store.retry.policy.max.retry.duration.millis": "",
    "blob.store.retry.policy.backoff.delay.millis": "",
    "blob.store.retry.policy.backoff.delay.factor": "",
    "blob.store.retry.policy.backoff.max.delay.millis": "",
    "blob.store.retry.policy.jitter.factor": "",
    "blob.store.compare.file.owners.on.restore": "files are compared by their digests alone",
}
"""Other keys that mean nothing here, and why."""

SIMPLE: Mapping[str, tuple[tuple[str, ...], str]] = {
    "job.name": (("job", "name"), "text"),
    "job.id": (("job", "id"), "text"),
    "job.logged.store.base.dir": (("job", "state_dir"), "text"),
    "job.container.restore.thread.pool.size": (("restore", "parallel"), "text"),
    "task.commit.ms": (("commit", "interval"), "interval"),
    "task.commit.timeout.ms": (("commit", "timeout"), "millis"),
    "task.checkpoint.path": (("checkpoint", "path"), "text"),
    "task.checkpoint.write.versions": (("checkpoint", "write_versions"), "text"),
    "task.checkpoint.read.versions": (("checkpoint", "read_versions"), "text"),
    "task.live.checkpoint.max.age": (("checkpoint", "max_age"), "millis"),
}
"""A key to its place here, and how its text is read."""

ELSEWHERE = re.compile(
    r"(app|aspect|azure|cluster-manager|container|coordinator|csm|diagnostics|elasticsearch|fs|hdfs|host-affinity|job|metrics"
    r"|processor|samza|security|sensitive|serializers|startpoint|streams|systems|task|yarn|zookeeper)\..*",
    re.DOTALL,
)
"""Keys of rooms of Samza that have no counterpart here: its systems, streams, containers and so on."""

OWN_STORE_KEYS = (
    "factory",
    "key.serde",
    "msg.serde",
    "changelog",
    "backup.factories",
    "restore.factories",
    "rocksdb.ttl.ms",
)
"""A store's keys that are translated one by one."""

OTHERS_READ = (
    "job.default.system",
    "job.changelog.system",
    "stores.backup.factories",
    "stores.restore.factories",
    "task.checkpoint.factory",
    "task.checkpoint.system",
    "task.commit.skip.commit.during.failures.enabled",
    "task.commit.skip.commit.exception.max.limit",
    "task.commit.skip.commit.timeout.max.limit",
)
"""Other keys that are translated one by one."""
