"""What an operator may write, and how each mistake is told, all without a server."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

import millpond
from millpond.errors import ConfigError
from millpond_s3.client import connect
from millpond_s3.settings import S3Settings

KEY = base64.b64encode(bytes(range(32))).decode()

MISTAKES = [
    ({"bucket": ""}, "bucket is ''"),
    ({"bucket": "a/b"}, "bucket is 'a/b'"),
    ({"bucket": "fast--euw1-az1--x-s3"}, "a directory bucket: those do not list objects in order"),
    ({"prefix": "a//b"}, "prefix is 'a//b/'"),
    ({"prefix": "../a"}, "prefix is '../a/'"),
    ({"prefix": "a b"}, "prefix is 'a b/'"),
    ({"prefix": "x" * 300}, "prefix has 301 characters"),
    ({"endpoint": "minio:9000"}, 'write it as "https://host"'),
    ({"endpoint": "https://me:hush@host"}, "credentials have keys of their own"),
    ({"endpoint": "https://host/?x=1"}, 'write it as "https://host"'),
    ({"access_key": "a"}, "access_key and secret_key go together"),
    ({"secret_key": "hush"}, "access_key and secret_key go together"),
    ({"access_key": "a", "secret_key": "hush", "profile": "p"}, "profile and access_key exclude each other"),
    ({"session_token": "hush"}, "session_token needs access_key"),
    ({"storage_class": "GLACIER"}, "takes hours to be read"),
    ({"storage_class": "DEEP_ARCHIVE"}, "takes hours to be read"),
    ({"encryption": "AES256"}, "one of SSE-S3, SSE-KMS"),
    ({"kms_key": "k"}, 'kms_key needs encryption = "SSE-KMS"'),
    ({"kms_key": "k", "encryption": "SSE-S3"}, 'kms_key needs encryption = "SSE-KMS"'),
    ({"customer_key": "hush"}, "32 bytes in base64"),
    ({"customer_key": KEY, "encryption": "SSE-S3"}, "customer_key and encryption exclude each other"),
    ({"tags": {str(number): "x" for number in range(11)}}, "tags has 11 entries"),
    ({"tags": {"": "x"}}, "tags has '' = 'x'"),
    ({"tags": {"a": "<x>"}}, "tags has 'a'"),
    ({"versions": "all"}, "one of remove, keep"),
    ({"multipart_above": 1}, "multipart_above is 1 bytes"),
    ({"part_size": 4 << 20}, "part_size is 4194304 bytes: S3 takes parts from 5 MiB"),
    ({"connections": 0}, "connections is 0"),
    ({"attempts": 0}, "attempts is 0"),
]


@pytest.mark.parametrize(("given", "says"), MISTAKES)
def test_each_mistake_is_told_before_anything_is_sent(given, says):
    """A setting that cannot be right is a ConfigError that quotes it and says what may be written, and no secret."""
    with pytest.raises(ConfigError) as caught:
        S3Settings(**{"bucket": "state", **given})

    assert says in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "bucket",
    ["state", "my.state-1", "arn:aws:s3:eu-north-1:123456789012:accesspoint/state", "x" * 63],
)
def test_buckets_and_access_points_are_accepted(bucket):
    """A bucket's name, with dots too, and an access point's ARN are what a section may name."""
    assert bucket == S3Settings(bucket=bucket).for_any()["Bucket"]


def test_a_job_is_told_of_all_mistakes_and_shown_no_secret(tmp_path):
    """A configuration loads with sizes, times and secrets as text; what is wrong is reported with the key's path."""
    table = {
        "job": {"name": "j", "state_dir": str(tmp_path)},
        "checkpoint": {"manager": "s3", "bucket": "state", "prefix": "/a/b/", "read_timeout": "30s"},
        "backends": {
            "archive": {
                "type": "s3",
                "bucket": "state",
                "part_size": "8MiB",
                "access_key": "me",
                "secret_key": "hush-hush",
                "tags": {"team": "streams"},
                "grace": "30m",
            }
        },
        "stores": {"s": {"engine": "memory", "backup": ["archive"]}},
    }
    with millpond.open_job(table) as job:
        assert "hush" not in repr(job)
    table["backends"]["archive"] |= {"kms_key": "k"}
    with pytest.raises(ConfigError, match=r"backends\.archive.*kms_key needs encryption") as caught:
        millpond.open_job(table)
    assert "hush" not in str(caught.value)
    table["backends"]["archive"] |= {"kms_kye": "k"}
    with pytest.raises(ConfigError, match="kms_kye"):
        millpond.open_job(table)


def test_secrets_stay_out_of_texts():
    """Neither the settings' text nor that of a secret among them shows it; the SDK gets the real one."""
    settings = S3Settings(bucket="state", access_key="me", secret_key="hush-hush", customer_key=KEY)

    assert "hush" not in repr(settings) + str(settings) + f"{settings.secret_key}"
    assert KEY not in repr(settings)
    connection = connect(settings, 2)
    assert "hush-hush" == connection.client._request_signer._credentials.secret_key
    assert bytes(range(32)) == settings.for_content()["SSECustomerKey"]
    connection.close()


def test_the_address_has_the_style_that_was_asked_for():
    """`path_style` decides between `host/bucket` and `bucket.host`; with an endpoint the path is the default."""
    hosts = {}
    for style in (None, True, False):
        connection = connect(S3Settings(bucket="state", endpoint="https://host", path_style=style, **_keys()), 2)
        hosts[style] = connection.client.generate_presigned_url("get_object", {"Bucket": "state", "Key": "k"})
        connection.close()

    assert hosts[None].startswith("https://host/state/k")
    assert hosts[True].startswith("https://host/state/k")
    assert hosts[False].startswith("https://state.host/k")


def _keys():
    return {"access_key": "a", "secret_key": "b"}


def test_the_sdk_is_imported_when_something_is_opened():
    """Loading the entry points and the settings imports neither boto3 nor botocore."""
    load = "import sys, millpond_s3.backend as loaded; loaded.S3Settings(bucket='abc')"
    code = f"{load}; print({{'boto3', 'botocore'}} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert "set()" == said.stdout.strip()


def test_connections_are_given_back():
    """After the last holder's `close` nothing is kept for the settings, however often they were used."""
    from millpond_s3 import client

    settings = S3Settings(bucket="state", endpoint="https://host", **_keys())
    for _ in range(3):
        one, two = connect(settings, 2), connect(settings, 2)
        assert one is two
        one.close()
        assert settings in {key for key, _ in client._connections}
        two.close()
    assert settings not in {key for key, _ in client._connections}
