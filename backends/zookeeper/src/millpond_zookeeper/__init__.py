"""
ZooKeeper for Millpond: a checkpoint manager, and the coordinator's metadata with leader election.

Nothing here imports kazoo before it is used.
"""

from millpond_zookeeper.checkpoints import ZooKeeperCheckpoints
from millpond_zookeeper.metadata import ZooKeeperMetadata
from millpond_zookeeper.settings import ZooKeeperCheckpointsConfig, ZooKeeperSettings

__all__ = ["ZooKeeperCheckpoints", "ZooKeeperCheckpointsConfig", "ZooKeeperMetadata", "ZooKeeperSettings"]
