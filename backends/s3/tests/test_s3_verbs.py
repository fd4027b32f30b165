"""Each verb of the driver against each thing that a server, or the way to it, does wrong: an error, or all of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from services.watching_proxy import LOST, Answer, watching

from millpond.blob.store import AccessDeniedError, BlobStore, BrokenBodyError, BytesBody, Unfinished
from millpond.errors import ConfigError, MillpondError, StateNotFoundError, TransientError

MIB = 1 << 20
LARGE = BytesBody(bytes(6 * MIB))
Verb = Callable[[BlobStore], Any]
VERBS: dict[str, Verb] = {
    "put": lambda store: store.put("new", BytesBody(b"y")),
    "create": lambda store: store.put("new", BytesBody(b"y"), if_absent=True),
    "put in parts": lambda store: store.put("large", LARGE),
    "create in parts": lambda store: store.put("large", LARGE, if_absent=True),
    "get": lambda store: store.get("k"),
    "get a part": lambda store: store.get("k", 1, 2),
    "list": lambda store: [entry.key for entry in store.list("k")],
    "delete": lambda store: store.delete(["gone"]),
    "unfinished": lambda store: store.unfinished("k"),
    "abort": lambda store: store.abort(Unfinished("k", "token", 0)),
}
REFUSALS = [
    (403, "AccessDenied", AccessDeniedError),
    (403, "RequestTimeTooSkewed", TransientError),
    (404, "NoSuchBucket", ConfigError),
    (404, "NoSuchKey", StateNotFoundError),
    (409, "OperationAborted", TransientError),
    (412, "PreconditionFailed", TransientError),
    (429, "TooManyRequests", TransientError),
    (500, "InternalError", TransientError),
    (503, "SlowDown", TransientError),
]
WHOLE = {"get": b"xyz", "get a part": b"yz", "list": ["k"]}


@pytest.fixture
def near(server, outside, watch, open_store):
    """A store behind the watching proxy, which sends each request once, and an object in it."""
    return _near(server, watch, open_store)


@pytest.fixture
def near_one(moto, new_bucket, open_store):
    """The same with one of the servers, where it is the proxy that answers; and the proxy."""
    new_bucket(moto)
    with watching(moto.endpoint) as watch:
        yield _near(moto, watch, open_store), watch


def _near(server, watch, open_store):
    store = open_store(
        server, endpoint=watch.endpoint, attempts=1, multipart_above=5 * MIB, part_size=5 * MIB, versions="keep"
    )
    store.put("k", BytesBody(b"xyz"))
    return store


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_with_each_refusal(near_one, verb):
    """Whatever is refused is its own kind of error, and names the place; the one exception is a key that was taken."""
    near, watch = near_one
    for status, code, kind in REFUSALS:
        watch.rule = lambda _request, status=status, code=code: Answer(status, code)
        if (verb, status) == ("create", 412):
            assert VERBS[verb](near) is False
            continue
        with pytest.raises(MillpondError) as caught:
            VERBS[verb](near)
        assert kind is type(caught.value), (code, caught.value)
        assert "s3://bucket-" in str(caught.value) or code == "NoSuchBucket"
    watch.rule = lambda _request: None
    assert b"xyz" == near.get("k")


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_with_a_lost_answer(near_one, verb):
    """An answer that is lost, with no attempt left, is a TransientError: nobody knows, and nobody says so."""
    near, watch = near_one
    watch.rule = lambda _request: LOST
    with pytest.raises(TransientError):
        VERBS[verb](near)
    watch.rule = lambda _request: None
    assert b"xyz" == near.get("k")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("cut", [0, 30])
def test_each_verb_with_a_truncated_answer(near, watch, verb, cut):
    """An answer whose body is cut is an error or changes nothing: no listing is shorter, no content is less."""
    watch.rule = lambda _request: Answer(cut=cut)
    if verb in ("list", "unfinished", "put in parts", "create in parts"):
        with pytest.raises(TransientError):
            VERBS[verb](near)
        return
    with suppress(BrokenBodyError if verb in WHOLE else TransientError):
        # Done is what the status says; the body of such an answer holds nothing.
        result = VERBS[verb](near)
        assert WHOLE.get(verb, result) == result


def test_a_skewed_clock_costs_a_commit_and_says_what_to_set(moto, new_bucket, open_store):
    """Refused for its clock, a writer is told to set it, and once it is set the same store works."""
    new_bucket(moto)
    with watching(moto.endpoint) as watch:
        store = open_store(moto, endpoint=watch.endpoint, attempts=1)
        watch.rule = lambda _request: Answer(403, "RequestTimeTooSkewed")
        with pytest.raises(TransientError, match=r"this machine's clock is wrong.*set the clock"):
            store.put("k", BytesBody(b"x"))
        watch.rule = lambda _request: None
        assert store.put("k", BytesBody(b"x")) is True
