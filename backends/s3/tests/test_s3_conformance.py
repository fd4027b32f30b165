"""The store, the backend and the checkpoint manager keep their contracts, against versitygw."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from millpond.spi import JobContext, VersionPolicy
from millpond.testing.kit.backend_suite import BackendSuite
from millpond.testing.kit.blob_suite import BlobSuite
from millpond.testing.kit.door import SideDoor
from millpond.testing.kit.manager_suite import CheckpointsSuite
from millpond.testing.kit.tables import check_table
from millpond_s3.backend import S3Backend, S3BackendSettings, S3Checkpoints, S3RecordsSettings
from millpond_s3.client import make_client
from millpond_s3.settings import S3Settings
from millpond_s3.store import S3Store

PAGE = Path(__file__).parents[1] / "README.md"
BUCKET = "conformance"
MIB = 1 << 20


@pytest.fixture(scope="session", autouse=True)
def _server_for_children(gateway) -> None:
    """Tell the address by the environment, where a child process of a case finds it too."""
    os.environ["MILLPOND_TESTS_S3"] = gateway.endpoint
    os.environ["MILLPOND_TESTS_S3_ACCESS"] = gateway.access_key
    os.environ["MILLPOND_TESTS_S3_SECRET"] = gateway.secret_key
    client = make_client(S3Settings(**_place(Path("/"))), 4, lambda **_: None)
    client.create_bucket(Bucket=BUCKET)
    client.close()


def _place(folder: Path) -> dict[str, Any]:
    """Give the settings of the place that is made of the name of *folder*."""
    return {
        "bucket": BUCKET,
        "prefix": hashlib.sha256(str(folder).encode()).hexdigest()[:24],
        "endpoint": os.environ["MILLPOND_TESTS_S3"],
        "region": "us-east-1",
        "access_key": os.environ["MILLPOND_TESTS_S3_ACCESS"],
        "secret_key": os.environ["MILLPOND_TESTS_S3_SECRET"],
    }


class BucketDoor(SideDoor):
    """The objects below a prefix, by the SDK's client alone."""

    def __init__(self, settings: S3Settings) -> None:
        self._bucket, self._prefix = settings.bucket, settings.prefix
        self._client = make_client(settings, 4, lambda **_: None)

    def names(self) -> Sequence[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
        return sorted(one["Key"].removeprefix(self._prefix) for page in pages for one in page.get("Contents", ()))

    def read(self, name: str) -> bytes:
        body: bytes = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"].read()
        return body

    def write(self, name: str, data: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=data)

    def delete(self, name: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)


class TestS3Store(BlobSuite):
    """Every case of the kit, on the driver."""

    name = "s3 store"

    def make(self, folder: Path) -> S3Store:
        return S3Store(S3Settings(**_place(folder), multipart_above=5 * MIB, part_size=5 * MIB), 4)

    def test_its_table_is_fresh(self, tmp_path: Path):
        """The table in the README is what this run found."""
        check_table(PAGE, self.report(tmp_path))


class TestS3Backend(BackendSuite):
    """Every case of the kit, on the backend."""

    name = "s3 backend"

    def make(self, folder: Path) -> S3Backend:
        return S3Backend("main", S3BackendSettings(**_place(folder)))

    def side_door(self, folder: Path) -> BucketDoor:
        return BucketDoor(S3Settings(**_place(folder)))

    def test_its_table_is_fresh(self, tmp_path: Path):
        """The table in the README is what this run found."""
        check_table(PAGE, self.report(tmp_path))


class TestS3Checkpoints(CheckpointsSuite):
    """Every case of the kit, on the checkpoint manager."""

    name = "s3 checkpoints"

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> S3Checkpoints:
        return S3Checkpoints(S3RecordsSettings(**_place(folder)), job, versions)

    def side_door(self, folder: Path) -> BucketDoor:
        return BucketDoor(S3Settings(**_place(folder)))

    def test_its_table_is_fresh(self, tmp_path: Path):
        """The table in the README is what this run found."""
        check_table(PAGE, self.report(tmp_path))
