"""What a server, or the way to it, does wrong comes out as the error that says what to do."""

from __future__ import annotations

import re
import socket

import pytest
from services.watching_proxy import Answer, once

from millpond.blob.store import AccessDeniedError, BytesBody
from millpond.errors import ConfigError, StateNotFoundError, TransientError

DATE = {"Date": "Tue, 01 Jan 2030 00:00:00 GMT"}
TABLE = [
    (403, "AccessDenied", AccessDeniedError, "s3:GetObject on s3://bucket-.*/some/k at http.* is denied: grant it"),
    (403, "", AccessDeniedError, "is denied"),
    (403, "InvalidAccessKeyId", ConfigError, "access key is unknown there: correct the credentials"),
    (404, "XAdminUserNotFound", ConfigError, "access key is unknown there: correct the credentials"),
    (403, "SignatureDoesNotMatch", ConfigError, "secret key is wrong"),
    (403, "InvalidObjectState", ConfigError, "archived"),
    (400, "ExpiredToken", TransientError, "the credentials have expired"),
    (403, "RequestTimeTooSkewed", TransientError, "this machine's clock is wrong.*set the clock"),
    (404, "NoSuchKey", StateNotFoundError, "there is no such object"),
    (404, "NoSuchBucket", ConfigError, "there is no bucket 'bucket-.*': make it, or correct `bucket`"),
    (409, "OperationAborted", TransientError, "OperationAborted"),
    (412, "PreconditionFailed", TransientError, "another request was in the way"),
    (400, "AuthorizationHeaderMalformed", ConfigError, "the region eu-north-1: correct `region`"),
    (301, "PermanentRedirect", ConfigError, "the region eu-north-1: correct `region`"),
    (400, "RequestTimeout", TransientError, "2 attempts"),
    (400, "BadDigest", TransientError, "BadDigest"),
    (400, "InvalidArgument", ConfigError, "refuses the request as it is"),
    (429, "", TransientError, "429.*2 attempts"),
    (429, "TooManyRequests", TransientError, "2 attempts"),
    (500, "InternalError", TransientError, "2 attempts"),
    (501, "NotImplemented", ConfigError, "this server cannot do it"),
    (503, "SlowDown", TransientError, "SlowDown.*2 attempts"),
    (503, "", TransientError, "2 attempts"),
]


@pytest.mark.parametrize(("status", "code", "kind", "says"), TABLE)
def test_each_refusal_says_what_to_do(server, outside, watch, open_store, status, code, kind, says):
    """Each of a server's refusals, as the real client gets it, is raised as its kind, with what, where and the mend."""
    store = open_store(server, prefix="some", endpoint=watch.endpoint)
    watch.rule = lambda _request: Answer(status, code, {"x-amz-bucket-region": "eu-north-1", **DATE})

    with pytest.raises(kind) as caught:
        store.get("k")

    assert re.search(says, str(caught.value)), str(caught.value)
    assert kind is type(caught.value)


PERMISSIONS = {
    "s3:PutObject": lambda store: store.put("k", BytesBody(b"x")),
    "s3:GetObject": lambda store: store.get("k"),
    "s3:ListBucket": lambda store: list(store.list("k")),
    "s3:DeleteObject": lambda store: store.delete(["k"]),
    "s3:ListBucketMultipartUploads": lambda store: store.unfinished("k"),
    "s3:AbortMultipartUpload": lambda store: store.abort(_unfinished()),
}


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_a_denial_names_the_permission_and_the_key(moto, new_bucket, open_store, permission):
    """Each verb that is denied names the permission that it lacks, and the key."""
    from services.watching_proxy import watching

    new_bucket(moto)
    with watching(moto.endpoint) as watch:
        store = open_store(moto, endpoint=watch.endpoint, prefix="p", versions="keep")
        watch.rule = lambda _request: Answer(403, "AccessDenied")

        with pytest.raises(AccessDeniedError, match=rf"{permission} on s3://bucket-\S+/p/k at .* is denied"):
            PERMISSIONS[permission](store)


def _unfinished():
    from millpond.blob.store import Unfinished

    return Unfinished("k", "token", 0)


def test_one_denied_object_of_a_batch_is_named(moto, new_bucket, open_store):
    """When a batch is carried out but for some objects, the error names the first of them and how many there are."""
    client = new_bucket(moto)
    store = open_store(moto, prefix="p", versions="keep")
    for key in ("a", "b", "c"):
        store.put(key, BytesBody(b"x"))
    real = store._connection.client.delete_objects
    store._connection.client.delete_objects = lambda **given: {
        **real(**{**given, "Delete": {"Objects": [{"Key": "p/a"}]}}),
        "Errors": [{"Key": f"p/{key}", "Code": "AccessDenied", "Message": "no"} for key in "bc"],
    }

    with pytest.raises(AccessDeniedError, match=r"s3:DeleteObject on s3://.*/p/b at .*2 of 3 objects"):
        store.delete(["a", "b", "c"])
    assert ["p/b", "p/c"] == [one["Key"] for one in client.list_objects_v2(Bucket=store._settings.bucket)["Contents"]]


def test_a_bucket_that_is_not_there_is_a_mistake_in_the_configuration(server, open_store):
    """Every verb against a bucket that does not exist is a ConfigError that names it, never an empty answer."""
    store = open_store(server, bucket="no-such-bucket-anywhere")
    calls = [
        lambda: store.get("k"),
        lambda: store.put("k", BytesBody(b"x")),
        lambda: list(store.list("")),
        lambda: store.delete(["k"]),
        lambda: store.unfinished(""),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match="no-such-bucket-anywhere"):
            call()


def test_wrong_keys_are_a_mistake_in_the_configuration(gateway, new_bucket, open_store):
    """A wrong secret and an unknown access key are ConfigErrors, and no message shows the secret."""
    new_bucket(gateway)
    for wrong in ({"secret_key": "hush-hush"}, {"access_key": "nobody", "secret_key": "hush-hush"}):
        with pytest.raises(ConfigError, match="correct the credentials") as caught:
            open_store(gateway, **wrong).put("k", BytesBody(b"x"))
        assert "hush" not in str(caught.value)
        assert "hush" not in repr(open_store(gateway, **wrong)._settings)


def test_after_an_attempt_without_an_answer_nothing_is_called_impossible(server, outside, watch, open_store):
    """A refusal that would mean "nothing was written" is a TransientError if an earlier attempt went unanswered."""
    store = open_store(server, endpoint=watch.endpoint)
    watch.rule = once(lambda _request: True, Answer(500, "InternalError"), Answer(404, "NoSuchBucket"))

    with pytest.raises(TransientError, match="may have been carried out"):
        store.put("k", BytesBody(b"x"))


def test_a_conflict_is_asked_again(server, outside, watch, open_store):
    """A conditional put that met another (409) is repeated by the SDK, within its attempts, and says how it ended."""
    store = open_store(server, endpoint=watch.endpoint, attempts=3)
    conflict = Answer(409, "ConditionalRequestConflict")
    watch.rule = once(lambda request: request.method == "PUT", conflict, conflict)

    assert store.put("k", BytesBody(b"x"), if_absent=True) is True
    assert 3 == len(watch.take())

    watch.rule = lambda _request: conflict
    with pytest.raises(TransientError, match=r"ConditionalRequestConflict.*3 attempts"):
        store.put("other", BytesBody(b"x"), if_absent=True)
    assert 3 == len(watch.take())


def test_throttling_passes_within_the_attempts(server, outside, watch, open_store):
    """SlowDown and a bare 429 are waited out: the put succeeds, whole."""
    store = open_store(server, endpoint=watch.endpoint, attempts=4)
    watch.rule = once(lambda _request: True, Answer(503, "SlowDown"), Answer(429), Answer(503))

    assert store.put("k", BytesBody(b"x")) is True
    assert b"x" == store.get("k")


def test_expired_credentials_are_looked_up_anew(gateway, new_bucket, open_store, monkeypatch, tmp_path):
    """After an ExpiredToken the next call asks the SDK's chain again: renewed credentials work without a restart."""
    from services.watching_proxy import watching

    new_bucket(gateway)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    file.write_text("[worker]\naws_access_key_id = old\naws_secret_access_key = old-secret\n")
    with watching(gateway.endpoint) as watch:
        store = open_store(gateway, endpoint=watch.endpoint, access_key=None, secret_key=None, profile="worker")
        watch.rule = once(lambda _request: True, Answer(400, "ExpiredToken"))
        with pytest.raises(TransientError, match="expired") as caught:
            store.put("k", BytesBody(b"x"))
        assert "old-secret" not in str(caught.value)
        file.write_text(
            f"[worker]\naws_access_key_id = {gateway.access_key}\naws_secret_access_key = {gateway.secret_key}\n"
        )
        assert store.put("k", BytesBody(b"x")) is True


@pytest.mark.parametrize("given", [{"profile": "absent"}, {}])
def test_no_credentials_at_all_say_where_they_are_looked_for(moto, open_store, monkeypatch, tmp_path, given):
    """Without credentials, or with a profile that does not exist, the error says so before anything is sent."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = open_store(moto, access_key=None, secret_key=None, **given)

    with pytest.raises(ConfigError, match="absent" if given else "finds no credentials.*profile"):
        store.get("k")


def test_a_server_that_is_not_there_may_come_back(server, outside, open_store):
    """A refused connection is a TransientError that names the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    store = open_store(server, endpoint=f"http://127.0.0.1:{port}", attempts=1)

    with pytest.raises(TransientError, match=str(port)):
        store.get("k")


def test_an_endpoint_that_is_no_object_store_is_no_empty_one(open_store, moto):
    """A web server that says 200 to everything is an error, never an empty listing or a write that was done."""
    from services.watching_proxy import watching

    with watching(moto.endpoint) as watch:
        watch.rule = lambda _request: Answer(200)
        store = open_store(moto, endpoint=watch.endpoint)
        with pytest.raises(TransientError, match="no S3 server"):
            list(store.list(""))
        with pytest.raises(TransientError, match="no S3 server"):
            store.put("k", BytesBody(b"x"))
