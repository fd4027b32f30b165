"""The file systems that tests run on, by name."""

from __future__ import annotations

import pytest

PLACES = ("file", "memory", "hdfs", "gcs", "azure", "sftp")
EXCLUSIVE = ("file", "memory", "hdfs", "gcs", "azure")
SHARED = ("file", "hdfs", "gcs", "azure")  # exclusive, and seen by several processes

every_place = pytest.mark.parametrize("place", PLACES, indirect=True)
exclusive_places = pytest.mark.parametrize("place", EXCLUSIVE, indirect=True)
shared_places = pytest.mark.parametrize("place", SHARED, indirect=True)
