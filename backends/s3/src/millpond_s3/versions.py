"""
Removing objects, in a bucket that keeps versions too.

A plain deletion there removes nothing: it adds a marker, and each version goes on to be paid for. So the versions of
a key are looked up and removed by their ids, markers and all. Many keys are looked up together: what is collected
together was made together, and lies together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import commonprefix
from typing import Any

from attrs import frozen

from millpond_s3.driver_errors import code_of, expect
from millpond_s3.settings import S3Settings

BATCH = 1_000
_UNVERSIONED = frozenset({"NotImplemented", "MethodNotAllowed", "501", "405"})

Target = dict[str, str]
"""A key, and the version that is meant."""


@frozen
class Failure:
    """What the server said about one object of a batch."""

    key: str
    code: str
    message: str


def keeps_versions(client: Any, settings: S3Settings) -> bool:
    """Ask whether the bucket keeps, or once kept, versions."""
    from botocore.exceptions import ClientError

    try:
        told = client.get_bucket_versioning(Bucket=settings.bucket)
    except ClientError as error:
        if code_of(error) in _UNVERSIONED:
            return False
        raise
    return told.get("Status") in ("Enabled", "Suspended")


def remove(client: Any, settings: S3Settings, keys: Sequence[str], *, versioned: bool) -> list[Failure]:
    """Remove *keys*; give what the server would not remove."""
    targets = _versions_of(client, settings, sorted(keys)) if versioned else [{"Key": key} for key in keys]
    if settings.batch_delete:
        return [
            failure
            for start in range(0, len(targets), BATCH)
            for failure in _remove_batch(client, settings, targets[start : start + BATCH])
        ]
    for target in targets:
        client.delete_object(**settings.for_any(), **target)
    return []


def _remove_batch(client: Any, settings: S3Settings, batch: Sequence[Target]) -> Iterator[Failure]:
    told = client.delete_objects(**settings.for_any(), Delete={"Objects": batch, "Quiet": True})
    for error in told.get("Errors", ()):
        if error.get("Code") not in ("NoSuchKey", "NoSuchVersion"):
            yield Failure(error.get("Key", ""), error.get("Code", ""), error.get("Message", ""))


def _versions_of(client: Any, settings: S3Settings, keys: Sequence[str]) -> Sequence[Target]:
    """Give every version and marker of *keys*, which are sorted, by one pass over what lies between them."""
    if not keys:
        return ()
    wanted, last, found = set(keys), keys[-1], []
    prefix = commonprefix([keys[0], last])  # noqa: RUF071 - of keys, which are no paths
    for page in client.get_paginator("list_object_versions").paginate(**settings.for_any(), Prefix=prefix):
        expect(page, "IsTruncated", prefix)
        listed = (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
        found += [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in listed if one["Key"] in wanted]
        if page.get("NextKeyMarker", "") > last:
            break
    return found
