"""The driver's verbs, against two servers: what goes in comes out, and nothing else does."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import threading
import time
from itertools import pairwise

import pytest
from services.watching_proxy import LOST, Answer, once, watching

from millpond.blob.store import BytesBody, FileBody
from millpond.errors import StateNotFoundError, StoreClosedError, TransientError
from millpond_s3.parts import cut

MIB = 1 << 20
HOSTILE = [
    "a%20b",
    "a+b",
    "a b".replace(" ", "%20") + "+%2F",
    "100%",
    "%",
    "a@b",
    "(a)!",
    "-",
    "_",
    "...",
    "..a",
    "%E6%97%A5%E6%9C%AC",
    "x" * 200,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_come_back(store, name):
    """A key of any allowed characters is read, listed and removed under its own name, and no other key is touched."""
    key, twin = f"job/{name}/x", "job/twin"
    store.put(key, BytesBody(b"content"))
    store.put(twin, BytesBody(b"twin"))

    assert b"content" == store.get(key)
    assert [key] == [entry.key for entry in store.list(f"job/{name}/")]
    store.delete([key])
    with pytest.raises(StateNotFoundError):
        store.get(key)
    assert b"twin" == store.get(twin)


@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1, 11 * MIB + 3])
def test_a_body_of_any_size_comes_back(server, outside, open_store, tmp_path, size):
    """An empty body, one from memory, a streamed one, one in parts: all come back exactly, whole and in ranges."""
    store = open_store(server, multipart_above=5 * MIB, part_size=5 * MIB)
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)

    assert store.put("k", FileBody(tmp_path / "file", size)) is True

    assert data == store.get("k")
    assert data[size // 2 : size // 2 + 10] == store.get("k", size // 2, 10)
    assert data[3:] == store.get("k", 3)
    assert data[-5:] == store.get("k", max(0, size - 5), 100)
    assert b"" == store.get("k", size, 10)
    assert b"" == store.get("k", 0, 0)
    assert [size] == [entry.size for entry in store.list("")]
    assert [] == store.unfinished("")


def test_a_body_that_cannot_go_back_is_opened_again(server, outside, watch, open_store):
    """A stream that only runs forward is sent whole, also in parts and when a request has to be repeated."""
    store = open_store(server, endpoint=watch.endpoint, multipart_above=6 * MIB, part_size=5 * MIB)
    small, large = ForwardBody(os.urandom(3 * MIB)), ForwardBody(os.urandom(12 * MIB))
    refuse = Answer(503, "SlowDown")
    watch.rule = once(lambda request: request.method == "PUT", refuse)
    store.put("small", small)
    watch.rule = once(lambda request: request.query.get("partNumber") == "2", refuse)
    store.put("large", large)

    assert small.data == store.get("small")
    assert large.data == store.get("large")


class ForwardBody(BytesBody):
    """A body whose stream cannot seek."""

    def open(self):
        stream = io.BytesIO(self.data)
        stream.seekable = lambda: False
        stream.seek = None
        return stream


def test_a_missing_object_is_not_found(store):
    """Reading what is not there is a StateNotFoundError that names it, also for a range or none of it."""
    for given in ({}, {"start": 5, "length": 3}, {"length": 0}):
        with pytest.raises(StateNotFoundError, match=r"some/place/absent"):
            store.get("absent", **given)


def test_a_conditional_put_keeps_what_is_there(server, outside, open_store):
    """The second creation of a key gives False and changes nothing, in one request or in parts."""
    store = open_store(server, multipart_above=5 * MIB, part_size=5 * MIB)
    large = BytesBody(os.urandom(6 * MIB))

    assert store.put("small", BytesBody(b"first"), if_absent=True) is True
    assert store.put("small", BytesBody(b"second"), if_absent=True) is False
    assert b"first" == store.get("small")
    assert store.put("large", large, if_absent=True) is True
    assert store.put("large", BytesBody(os.urandom(6 * MIB)), if_absent=True) is False
    assert large.data == store.get("large")
    assert [] == store.unfinished("")


def test_a_listing_has_pages_order_and_a_beginning(store):
    """A listing of more than a page gives every key in order, and none up to and with `after`."""
    keys = sorted(f"list/{number:04}" for number in range(1_203))
    for key in keys:
        store.put(key, BytesBody(b"x"))
    store.put("listed-elsewhere", BytesBody(b"x"))

    assert keys == [entry.key for entry in store.list("list/")]
    assert keys[1_101:] == [entry.key for entry in store.list("list/", after=keys[1_100])]
    assert [] == list(store.list("list/", after="list/~"))
    assert abs(next(iter(store.list("list/"))).millis - store.now()) < 120_000


def test_prefixes_that_begin_alike_are_strangers(server, outside, open_store):
    """What lies below the prefix `flights` is neither listed nor removed by a store at `flight` or `flights2`."""
    one, two, three = (open_store(server, prefix=prefix) for prefix in ("flights", "flight", "/flights2/"))
    for store in (one, two, three):
        store.put("k", BytesBody(store.where().encode()))

    assert ["k"] == [entry.key for entry in one.list("")]
    two.delete(["k"])
    three.delete(["k"])
    assert one.where().encode() == one.get("k")


def test_missing_objects_can_be_removed(store):
    """Removing what is not there, or nothing at all, is fine."""
    store.delete(["absent", "also/absent"])
    store.delete([])


def test_ten_thousand_objects_go_in_a_dozen_requests(gateway, new_bucket, open_store):
    """Ten thousand objects are removed with ten requests and one question, and nothing is left."""
    new_bucket(gateway)
    with watching(gateway.endpoint) as seen:
        store = open_store(gateway, endpoint=seen.endpoint, threads=8)
        keys = [f"many/{number:05}" for number in range(10_000)]
        _put_all(open_store(gateway), keys)
        seen.take()

        store.delete(keys)

        requests = seen.take()
    assert 10 == sum("delete" in request.query for request in requests)
    assert 11 == len(requests)
    assert [] == list(store.list(""))


def _put_all(store, keys: list[str]) -> None:
    threads = [
        threading.Thread(target=lambda part: [store.put(key, BytesBody(b"x")) for key in part], args=(keys[start::4],))
        for start in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_bucket_with_versions_is_really_emptied(server, outside, bucket, open_store):
    """In a bucket that keeps versions, removal leaves no version and no marker of the keys, and all of the others."""
    outside.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    store = open_store(server, prefix="p")
    keys = [f"data/{number:02}" for number in range(12)]
    for key in [*keys, *keys[:3], "data/05-other", "data/0"]:
        store.put(key, BytesBody(key.encode()))

    store.delete(keys[:3] + keys[7:9])
    store.delete(["data/05"])

    told = outside.list_object_versions(Bucket=bucket)
    assert [] == told.get("DeleteMarkers", [])
    left = {f"p/{key}" for key in [*keys[3:5], keys[6], *keys[9:], "data/05-other", "data/0"]}
    assert left == {one["Key"] for one in told["Versions"]}


def test_versions_are_kept_where_the_operator_says_so(server, outside, bucket, open_store):
    """With `versions = "keep"` a removal is a plain one: the versions stay for the bucket's own rules."""
    outside.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    store = open_store(server, versions="keep")
    store.put("k", BytesBody(b"x"))

    store.delete(["k"])

    assert [] == list(store.list(""))
    assert 1 == len(outside.list_object_versions(Bucket=bucket)["Versions"])


def test_objects_go_one_by_one_where_batches_do_not_work(server, outside, watch, open_store):
    """With `batch_delete = false` each object is removed by a request of its own."""
    store = open_store(server, endpoint=watch.endpoint, batch_delete=False)
    for key in "abc":
        store.put(key, BytesBody(b"x"))
    watch.take()

    store.delete(["a", "b", "c"])

    assert 3 == sum(request.method == "DELETE" for request in watch.take())
    assert [] == list(store.list(""))


def test_the_clock_is_the_servers(server, outside, watch, open_store):
    """The first question for the time is a request; while an answer is fresh, none is made, and time goes on."""
    store = open_store(server, endpoint=watch.endpoint)

    first = store.now()
    assert ["HEAD"] == [request.method for request in watch.take()]
    assert abs(first - time.time() * 1_000) < 5_000
    assert first <= store.now()
    assert [] == watch.take()


def test_the_clock_is_heard_from_any_answer(server, outside, watch, open_store):
    """Whatever was asked, its answer tells the time; also one that denies."""
    store = open_store(server, endpoint=watch.endpoint)
    store.put("k", BytesBody(b"x"))
    watch.take()

    assert abs(store.now() - time.time() * 1_000) < 5_000
    assert [] == watch.take()
    denied = open_store(server, endpoint=watch.endpoint, attempts=3)
    watch.rule = lambda _request: Answer(403)
    assert abs(denied.now() - time.time() * 1_000) < 5_000


def test_settings_reach_each_new_object(server, outside, bucket, watch, open_store):
    """Storage class, encryption, tags and payer are sent with objects of one request and of parts."""
    settings = {"tags": {"team": "a b", "x": "y+z"}, "storage_class": "STANDARD", "request_payer": True}
    kms = {"encryption": "SSE-KMS", "kms_key": "alias/k"} if server.name == "moto" else {}
    store = open_store(server, endpoint=watch.endpoint, multipart_above=5 * MIB, part_size=5 * MIB, **settings, **kms)
    store.put("small", BytesBody(b"x"))
    store.put("large", BytesBody(bytes(6 * MIB)))

    made = [request for request in watch.take() if request.method == "PUT" and "partNumber" not in request.query]
    made += [request for request in watch.requests if "uploads" in request.query]
    for request in made:
        assert "team=a+b&x=y%2Bz" == request.headers["x-amz-tagging"]
        assert "STANDARD" == request.headers["x-amz-storage-class"]
        assert "requester" == request.headers["x-amz-request-payer"]
        assert not kms or "aws:kms" == request.headers["x-amz-server-side-encryption"]
    if server.name == "moto":
        for key in ("small", "large"):
            tags = outside.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
            assert [{"Key": "team", "Value": "a b"}, {"Key": "x", "Value": "y+z"}] == tags
            assert "aws:kms" == outside.head_object(Bucket=bucket, Key=key)["ServerSideEncryption"]


def test_a_customers_key_goes_with_each_read_and_write(moto, new_bucket, open_store):
    """With a customer key every request for content carries it, those of parts too, and listings do not."""
    new_bucket(moto)
    key = os.urandom(32)
    with watching(moto.endpoint) as seen:
        store = open_store(
            moto,
            endpoint=seen.endpoint,
            customer_key=base64.b64encode(key).decode(),
            multipart_above=5 * MIB,
            part_size=5 * MIB,
        )
        store.put("small", BytesBody(b"x"))
        store.put("large", BytesBody(bytes(6 * MIB)))
        store.get("small")
        list(store.list(""))
        requests = seen.take()
    with_key = [request for request in requests if "x-amz-server-side-encryption-customer-key" in request.headers]
    assert base64.b64encode(key).decode() == with_key[0].headers["x-amz-server-side-encryption-customer-key"]
    md5 = base64.b64encode(hashlib.md5(key).digest()).decode()
    assert md5 == with_key[0].headers["x-amz-server-side-encryption-customer-key-md5"]
    assert 1 == len(requests) - len(with_key)


def test_one_small_object_is_one_request(server, outside, watch, open_store):
    """A small put, a conditional one, a ranged read and a listing are one request each."""
    store = open_store(server, endpoint=watch.endpoint)
    store.put("a", BytesBody(b"0123456789"))
    store.put("b", BytesBody(b"x"), if_absent=True)
    store.get("a", 2, 3)
    list(store.list(""))

    assert ["PUT", "PUT", "GET", "GET"] == [request.method for request in watch.take()]


def test_checksums_and_signed_bodies_are_off_and_can_be_turned_on(server, outside, watch, open_store):
    """By default no body is hashed by the SDK; each setting turns its own hash on."""
    open_store(server, endpoint=watch.endpoint).put("k", BytesBody(b"x"))
    open_store(server, endpoint=watch.endpoint, sign_payload=True).put("k", BytesBody(b"x"))
    open_store(server, endpoint=watch.endpoint, checksums=True).put("k", BytesBody(b"x"))

    plain, signed, summed = watch.take()
    assert "UNSIGNED-PAYLOAD" == plain.headers["x-amz-content-sha256"]
    assert not any(name.startswith("x-amz-checksum") for name in plain.headers)
    assert hashlib.sha256(b"x").hexdigest() == signed.headers["x-amz-content-sha256"]
    assert any(name.startswith("x-amz-checksum") for name in summed.headers)


def test_a_lost_answer_to_a_conditional_put_reads_as_taken(server, outside, watch, open_store):
    """A creation whose answer was lost is repeated by the SDK, and says False, with our own content there."""
    store = open_store(server, endpoint=watch.endpoint)
    watch.rule = once(lambda request: request.method == "PUT", LOST)

    assert store.put("record", BytesBody(b"ours"), if_absent=True) is False
    assert b"ours" == store.get("record")


@pytest.mark.parametrize("verb", ["put", "get", "list", "delete", "unfinished"])
def test_a_lost_answer_changes_nothing(server, outside, watch, open_store, verb):
    """Each verb whose answer was lost is repeated by the SDK and ends as if it had not been."""
    store = open_store(server, endpoint=watch.endpoint)
    store.put("k", BytesBody(b"x"))
    calls = {
        "put": lambda: store.put("new", BytesBody(b"y")),
        "get": lambda: store.get("k"),
        "list": lambda: [entry.key for entry in store.list("")],
        "delete": lambda: store.delete(["k"]),
        "unfinished": lambda: store.unfinished(""),
    }
    watch.rule = once(lambda _request: True, LOST)

    result = calls[verb]()

    assert {"put": True, "get": b"x", "list": ["k"], "delete": None, "unfinished": []}[verb] == result


def test_a_lost_part_is_sent_again_alone(server, outside, watch, open_store):
    """Of three parts, one that was lost and one that the server threw back are sent again, and no other."""
    store = open_store(server, endpoint=watch.endpoint, multipart_above=5 * MIB, part_size=5 * MIB)
    body = BytesBody(os.urandom(13 * MIB))
    lose = once(lambda request: request.query.get("partNumber") == "2", LOST)
    refuse = once(lambda request: request.query.get("partNumber") == "3", Answer(503, "SlowDown"))
    watch.rule = lambda request: lose(request) or refuse(request)

    store.put("k", body)

    sent = sorted(request.query["partNumber"] for request in watch.take() if "partNumber" in request.query)
    assert ["1", "2", "2", "3", "3"] == sent
    assert body.data == store.get("k")


def test_a_lost_answer_to_the_last_request_of_an_upload_is_found_out(server, outside, watch, open_store):
    """When the answer to the completion is lost and its repetition finds no upload, the object itself tells."""
    store = open_store(server, endpoint=watch.endpoint, multipart_above=5 * MIB, part_size=5 * MIB)
    body = BytesBody(os.urandom(6 * MIB))
    completes = lambda request: request.method == "POST" and "uploadId" in request.query  # noqa: E731
    watch.rule = once(completes, LOST, Answer(404, "NoSuchUpload"))

    assert store.put("k", body) is True
    assert body.data == store.get("k")


def test_another_objects_completion_is_not_ours(server, outside, watch, open_store):
    """When the upload is gone and the key holds somebody else's object, the put fails, and may be tried again."""
    store = open_store(server, endpoint=watch.endpoint, multipart_above=5 * MIB, part_size=5 * MIB)
    store.put("k", BytesBody(b"another's"))
    completes = lambda request: request.method == "POST" and "uploadId" in request.query  # noqa: E731
    watch.rule = once(completes, Answer(404, "NoSuchUpload"))

    with pytest.raises(TransientError, match="NoSuchUpload"):
        store.put("k", BytesBody(bytes(6 * MIB)))


@pytest.mark.parametrize("fails", ["part", "complete"])
def test_a_failed_upload_is_aborted(server, outside, watch, open_store, fails):
    """When a part or the completion fails for good, no object appears and no part is left."""
    store = open_store(server, endpoint=watch.endpoint, multipart_above=5 * MIB, part_size=5 * MIB)
    kinds = {
        "part": lambda request: request.query.get("partNumber") == "3",
        "complete": lambda request: request.method == "POST" and "uploadId" in request.query,
    }
    watch.rule = lambda request: Answer(500, "InternalError") if kinds[fails](request) else None

    with pytest.raises(TransientError, match="InternalError"):
        store.put("k", BytesBody(bytes(13 * MIB)))

    assert [] == store.unfinished("")
    assert [] == list(store.list(""))


def test_an_upload_that_cannot_be_aborted_is_listed_and_dropped_later(server, outside, watch, open_store):
    """When the abort fails too, the first error is raised, and the upload is found and dropped afterwards."""
    store = open_store(server, prefix="p", endpoint=watch.endpoint, multipart_above=5 * MIB, part_size=5 * MIB)
    watch.rule = lambda request: Answer(403, "AccessDenied") if "uploadId" in request.query else None

    with pytest.raises(Exception, match="denied") as caught:
        store.put("task/k", BytesBody(bytes(13 * MIB)))
    watch.rule = lambda _request: None

    assert "garbage collection" in " ".join(caught.value.__cause__.__notes__)
    (left,) = store.unfinished("task/")
    assert "task/k" == left.key
    assert server.name == "moto" or abs(left.millis - store.now()) < 120_000  # moto says 2010 of each
    assert [] == store.unfinished("task/other")
    store.abort(left)
    store.abort(left)
    assert [] == store.unfinished("")


def test_a_broken_body_is_never_taken_for_a_whole_one(server, outside, watch, open_store):
    """An answer that ends early, at once or in the middle, is a TransientError, never fewer bytes."""
    store = open_store(server, endpoint=watch.endpoint)
    store.put("k", BytesBody(os.urandom(300_000)))
    for cut_at in (0, 1, 150_000, 299_999):
        watch.rule = once(lambda request: request.method == "GET", Answer(cut=cut_at))
        with pytest.raises(TransientError, match="broke off"):
            store.get("k")
        assert 300_000 == len(store.get("k"))


def test_parts_cover_the_body_and_are_not_too_many():
    """Parts follow one another without gaps, all but the last alike, and at most ten thousand make any body."""
    for size in (1, 5 * MIB, 5 * MIB + 1, 160_000 * MIB + 7, 5 << 40):
        parts = list(cut(size, 5 * MIB))
        assert len(parts) <= 10_000
        assert size == sum(part.size for part in parts)
        assert all(part.start == before.start + before.size for before, part in pairwise(parts))
        assert {part.size for part in parts[:-1]} <= {parts[0].size}


def test_a_closed_store_says_so_and_leaves_no_thread(server, outside, open_store):
    """After `close` every call is a StoreClosedError, and the threads that sent parts are gone."""
    before = threading.active_count()
    store = open_store(server, multipart_above=5 * MIB, part_size=5 * MIB)
    store.put("k", BytesBody(bytes(11 * MIB)))
    assert threading.active_count() > before
    store.close()
    store.close()

    assert before == threading.active_count()
    with pytest.raises(StoreClosedError):
        store.get("k")


def test_stores_of_one_kind_share_a_client(server, outside, open_store):
    """Two stores with the same settings use one client, which the second's closing leaves usable."""
    one, two = open_store(server), open_store(server)
    one.put("k", BytesBody(b"x"))

    assert one._connection is two._connection
    two.close()
    assert b"x" == one.get("k")
