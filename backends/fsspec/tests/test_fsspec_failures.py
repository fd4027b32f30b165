"""What drivers raise becomes one of our errors, with the mend and without secrets."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Mapping

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec_places import every_place
from services.file_system_server import FileSystemServer

from millpond.blob import AccessDeniedError, BlobStore, BrokenBodyError, BytesBody
from millpond.errors import ConfigError, MillpondError, StateNotFoundError, TransientError
from millpond.spi import Secret
from millpond_fsspec.failures import failure, kind_of
from millpond_fsspec.hdfs import HdfsError
from millpond_fsspec.hiding import Hiding, shown_url
from millpond_fsspec.opening import open_store

PASSWORD = "correct horse/battery"
KEY = "aGVsbG8gd29ybGQ="
GONE = f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:1/a;"


class HttpProblem(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status_code = status


class ChunkedEncodingError(Exception):
    """Called like the one of requests."""


def told(error: Exception, verb: str = "read") -> MillpondError:
    return failure(error, verb, "gs://b/k", Hiding(), needs="storage.objects.get", root="gs://b")


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (FileNotFoundError("k"), StateNotFoundError),
        (HttpProblem(404), StateNotFoundError),
        (HttpProblem(401), AccessDeniedError),
        (HttpProblem(403), AccessDeniedError),
        (OSError("Forbidden: gs://b/k\nno such right"), AccessDeniedError),
        (PermissionError(errno.EACCES, "no"), AccessDeniedError),
        (HdfsError("AccessControlException", "no"), AccessDeniedError),
        (HdfsError("StandbyException", "ask the other"), TransientError),
        (HdfsError("SafeModeException", "wait"), TransientError),
        (HttpProblem(400), ConfigError),
        (HttpProblem(408), TransientError),
        (HttpProblem(429), TransientError),
        (HttpProblem(500), TransientError),
        (HttpProblem(503), TransientError),
        (TimeoutError(), TransientError),
        (ConnectionResetError(), TransientError),
        (OSError(errno.ENOSPC, "full"), TransientError),
        (OSError(errno.ENAMETOOLONG, "long"), ConfigError),
        (ChunkedEncodingError(), BrokenBodyError),
        (ImportError("no driver"), ConfigError),
        (ValueError("unable to connect"), ConfigError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else f"{type(value).__name__}-{value}"[:30],
)
def test_a_failure_says_what_a_caller_would_do(error: Exception, ours: type):
    """Each kind of failure becomes the class of ours that a caller treats as it must be treated."""
    assert ours is type(told(error))


def test_access_denied_names_the_permission_and_the_key():
    """A refusal says which permission on which key is missing."""
    assert "cannot read gs://b/k: access denied; it needs storage.objects.get" in str(told(HttpProblem(403)))


def test_a_missing_root_is_no_missing_object():
    """A write or a listing that finds nothing at all says that the bucket or folder has to be made."""
    for verb in ("write", "list"):
        assert isinstance(told(FileNotFoundError("b"), verb), ConfigError)
        assert "gs://b is not there: create it" in str(told(FileNotFoundError("b"), verb))


def test_what_nobody_knows_may_pass():
    """An error of an unknown kind is never taken for an absent object."""
    assert isinstance(told(RuntimeError("what is this")), TransientError)
    assert "what is this" in str(told(RuntimeError("what is this")))
    assert kind_of(RuntimeError("x")) is kind_of(TimeoutError())


@pytest.mark.parametrize("place", ["gcs", "azure"], indirect=True)
def test_a_missing_bucket_is_told_from_an_empty_one(place: FileSystemServer):
    """Where the bucket itself is missing no verb says that there is merely nothing in it."""
    scheme = place.url.partition("://")[0]
    store = open_store(f"{scheme}://no-such-bucket/state", place.options)

    for attempt in (
        lambda: list(store.list("")),
        lambda: store.get("records/1"),
        lambda: store.put("a/b", BytesBody(b"x")),
        lambda: store.put("a/b", BytesBody(b"x"), if_absent=True),
    ):
        with pytest.raises(ConfigError, match="create it"):
            attempt()
    store.close()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("webhdfs://127.0.0.1:1/state", {"user": "test"}),
        ("gs://bucket/state", {"endpoint_url": "http://127.0.0.1:1", "token": "anon", "project": "p"}),
        ("abfs://container/state", {"connection_string": GONE}),
        ("sftp://127.0.0.1:1/state", {"username": "t", "password": PASSWORD, "look_for_keys": False}),
    ],
    ids=["hdfs", "gcs", "azure", "sftp"],
)  # fmt: skip
def test_a_server_that_is_gone_may_come_back(url: str, options: Mapping[str, object]):
    """Where nobody answers every verb raises TransientError, in time, and shows no secret."""
    pytest.importorskip({"we": "requests", "gs": "gcsfs", "ab": "adlfs", "sf": "paramiko"}[url[:2]])
    store = open_store(url, options, timeout_s=1)

    for attempt in (lambda: store.get("a"), lambda: list(store.list("")), lambda: store.put("a", BytesBody(b"x"))):
        with pytest.raises(TransientError) as caught:
            attempt()
        shown = "".join(traceback.format_exception(caught.value))
        assert PASSWORD not in shown
        assert KEY not in shown
    store.close()


@pytest.mark.parametrize("place", ["azure"], indirect=True)
def test_a_wrong_account_key_is_denied(place: FileSystemServer):
    """With another account's key each verb says that access is denied, and shows neither key."""
    wrong = str(place.options["connection_string"]).replace("Eby8vdM02xNOcqFlqUwJPL", "Eby8vdM02xNOcqFlqUwJPX")
    store = open_store(place.url, {"connection_string": wrong}, timeout_s=20)

    for attempt in (lambda: store.get("a"), lambda: list(store.list("")), lambda: store.put("a", BytesBody(b"x"))):
        with pytest.raises(AccessDeniedError, match="access denied; it needs the role") as caught:
            attempt()
        assert "Eby8vdM02xNOcqFlqUwJPX" not in "".join(traceback.format_exception(caught.value))
    store.close()


@pytest.mark.parametrize("place", ["hdfs"], indirect=True)
def test_a_stranger_in_hdfs_is_denied(place: FileSystemServer, store: BlobStore):
    """A user who may not write there is told which permission on which folder is missing."""
    store.put("a/b", BytesBody(b"x"))
    stranger = open_store(place.url, {"user": "stranger"})

    with pytest.raises(AccessDeniedError, match="it needs write and execute on that folder"):
        stranger.put("a/c", BytesBody(b"x"))
    with pytest.raises(AccessDeniedError, match="it needs write and execute on that folder"):
        stranger.delete(["a/b"])
    stranger.close()


# Secrets


def test_secrets_are_taken_out_of_messages():
    """Passwords, keys, tokens and the values in a connection string are hidden, plain and quoted."""
    hiding = Hiding.of(
        "sftp://user:url-password@host/x",
        {
            "password": PASSWORD,
            "connection_string": "AccountName=a;AccountKey=c2VjcmV0LWtleQ==;",
            "nested": {"key": ["in-a-list"]},
            "host": "example",
        },
    )
    text = (
        f"{PASSWORD} correct%20horse%2Fbattery url-password c2VjcmV0LWtleQ== in-a-list example "
        "http://me:pw@host/?sig=abc&x=1 http://host/?delegation=HAAE&op=OPEN"
    )

    clean = hiding.clean(text)

    for secret in (PASSWORD, "horse", "url-password", "c2VjcmV0", "in-a-list", "me:pw", "abc", "HAAE"):
        assert secret not in clean
    assert "example" in clean
    assert "op=OPEN" in clean


def test_a_url_is_shown_without_user_and_query():
    """What messages name is the place alone."""
    assert "sftp://host:22/a/b" == shown_url("sftp://user:pw@host:22/a/b?x=y#z")


def test_an_error_that_shows_a_secret_is_not_chained():
    """A traceback of ours shows neither the secret in the driver's error nor in what that was raised from."""

    class Leaking(MemoryFileSystem):
        protocol = "leaking"

        def info(self, path: str, **kwargs: object) -> dict:
            try:
                raise ValueError(f"server said: {PASSWORD}")
            except ValueError as error:
                raise RuntimeError("cannot read") from error

    fsspec.register_implementation("leaking", Leaking, clobber=True)
    store = open_store("leaking://x", {"password": Secret(PASSWORD)})

    with pytest.raises(TransientError) as caught:
        store.get("a")

    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__suppress_context__


@every_place
def test_where_names_the_place_and_no_secret(place: FileSystemServer, store: BlobStore):
    """Messages name an object by its URL, without who asks for it."""
    assert f"{place.url}/a/b" == store.where("a/b")
