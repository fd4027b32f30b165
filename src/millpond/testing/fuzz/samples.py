"""Valid things of every kind, small, with all that a kind may have."""

from __future__ import annotations

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Layout, SystemStreamPartition
from millpond.formats.blob_manifest import BackupManifest, StoredChanges, StoredFile
from millpond.formats.changelog_marker import KafkaStateCheckpointMarker
from millpond.formats.changelog_offset import KafkaChangelogSSPOffset
from millpond.formats.digest import digest_bytes
from millpond.formats.log_key import KafkaCheckpointLogKey
from millpond.formats.manifest import ImageManifest, ManifestFile

SSP = SystemStreamPartition("kafka", "my.topic", 3)
PLAIN = SystemStreamPartition("kafka", "plain", 1, 4)
ID = CheckpointId(1_700_000_000_123, 456)
DIGEST = digest_bytes(b"abc")
OBJECT = "7-1700000000123-456-00ff00ff00ff00ff"

BARE = Checkpoint(ID, {PLAIN: "7"}, {"factory": {"delays": "marker"}})
FULL = Checkpoint(
    ID,
    {SSP: "42", PLAIN: "7", SystemStreamPartition("kafka", "", -1): ""},
    {"archive": {"delays": "data/7", "ä b": "1"}, "other": {}},
    claim=Claim("Partition 0", 7, "00ff"),
    parent=CheckpointId(1, 1),
    layout=Layout(("Partition 0", "Partition 1"), "murmur2"),
    images={"delays": "12-34-00ff"},
    properties={"delays": {"merge": "1"}, "ä b": {"merge": "1", "ttl": "2"}},
)
IMAGE = ImageManifest(
    "delays",
    "rocksdb",
    ID,
    "00ff",
    (ManifestFile("a/b.sst", 3, DIGEST), ManifestFile("CURRENT", 0, digest_bytes(b""))),
    "boot",
    {"merge": "1"},
)
BACKUP = BackupManifest(
    "delays",
    "rocksdb",
    ID,
    "00ff",
    {OBJECT: 1000},
    (StoredFile("a/b.sst", 3, DIGEST, OBJECT, 10), StoredFile("CURRENT", 0, digest_bytes(b""), "", 0)),
    (StoredChanges(OBJECT, 13, 100, DIGEST, 400),),
    {"merge": "1"},
)
MARKER = KafkaStateCheckpointMarker(SSP, "811")
OFFSET = KafkaChangelogSSPOffset(ID, "811")
KEY = KafkaCheckpointLogKey("checkpoint-v2", "Partition 0", "GroupByPartition")
CHANGES = [(b"%03d" % number, None if number % 3 == 0 else b"value" * number) for number in range(12)]
ENTRIES = [(b"%03d" % number, b"value" * number) for number in range(12)]

TOML = b"""
[job]
name = "flights"
id = "1"
state_dir = "state"
tasks = ["Partition 0", "Partition 1"]
partitioner = "murmur2"

[commit]
interval = "1m"
timeout = "10m"

[checkpoint]
manager = "directory"
path = "records"
retain = 3

[backends.archive]
type = "memory"

[stores.delays]
engine = "memory"
key = "str"
value = "json"
backup = ["archive"]
restore = ["archive"]
ephemeral = true

[stores."a b"]
engine = "memory"
ephemeral = true
"""

PROPERTIES = b"""
# Samza's own words
job.name=flights
job.id=1
task.checkpoint.factory=org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory
stores.delays.factory=org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory
stores.delays.key.serde=string
stores.delays.msg.serde=json
millpond.checkpoint.path=records
millpond.checkpoint.write_versions=2
millpond.checkpoint.read_versions=2
millpond.stores.delays.ephemeral=true
stores.delays.rocksdb.ttl.ms=60000
task.commit.ms=60000
job.logged.store.base.dir=state \\
   deeper
millpond.checkpoint.manager=directory
caf\\u00e9 = \\u0041
"""
