"""A bad network: resets, silence, slowness and cuts, on each verb, between the real client and a real server."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from datetime import timedelta

import pytest

from millpond.blob.store import BrokenBodyError, BytesBody
from millpond.errors import StateNotFoundError, TransientError

MIB = 1 << 20
VERBS = {
    "put": lambda store: store.put("new", BytesBody(bytes(300_000))),
    "put in parts": lambda store: store.put("large", BytesBody(bytes(12 * MIB))),
    "get": lambda store: store.get("k"),
    "list": lambda store: list(store.list("")),
    "delete": lambda store: store.delete(["absent"]),
    "unfinished": lambda store: store.unfinished(""),
}


@pytest.fixture
def proxied(gateway, toxics, new_bucket, bucket):
    """A Toxiproxy in front of a bucket."""
    new_bucket(gateway)
    with toxics.before(gateway.endpoint, name=bucket) as proxy:
        yield proxy


@pytest.fixture
def poisoned(gateway, proxied, open_store):
    """A store that is reached through the proxy, and is impatient."""
    open_store(gateway).put("k", BytesBody(os.urandom(500_000)))
    return open_store(
        gateway,
        endpoint=proxied.endpoint,
        attempts=2,
        read_timeout=timedelta(seconds=1),
        connect_timeout=timedelta(seconds=1),
        multipart_above=5 * MIB,
        part_size=5 * MIB,
        versions="keep",
    )


@pytest.mark.parametrize("verb", VERBS)
def test_a_reset_connection_may_come_back(proxied, poisoned, verb):
    """Each verb over connections that are reset is a TransientError, soon; and works when they are not any more."""
    begun = time.monotonic()
    with proxied.toxic("reset_peer", timeout=0), pytest.raises(TransientError):
        VERBS[verb](poisoned)
    assert time.monotonic() - begun < 30
    VERBS[verb](poisoned)


@pytest.mark.parametrize("verb", VERBS)
def test_silence_ends_in_bounded_time(proxied, poisoned, verb):
    """Each verb whose answer never comes is a TransientError after its timeouts, never a wait without end."""
    begun = time.monotonic()
    with proxied.toxic("timeout", timeout=0), pytest.raises(TransientError):
        VERBS[verb](poisoned)
    assert time.monotonic() - begun < 40


def test_an_answer_lost_in_silence_is_no_lost_object(proxied, poisoned):
    """A creation whose answers were all lost is a TransientError; trying again says that the key is there, as it is."""
    with proxied.toxic("timeout", timeout=0), pytest.raises(TransientError):
        poisoned.put("record", BytesBody(b"ours"), if_absent=True)

    assert poisoned.put("record", BytesBody(b"ours"), if_absent=True) is False
    assert b"ours" == poisoned.get("record")


def test_a_truncated_body_is_not_taken_for_the_whole(proxied, poisoned):
    """A download that the network cuts is a BrokenBodyError, and a cut record is not there, not even in part."""
    with proxied.toxic("limit_data", bytes=200_000), pytest.raises(BrokenBodyError):
        poisoned.get("k")
    assert 500_000 == len(poisoned.get("k"))
    with proxied.toxic("limit_data", upstream=True, bytes=100_000), pytest.raises(TransientError):
        poisoned.put("cut", BytesBody(bytes(300_000)), if_absent=True)
    with pytest.raises(StateNotFoundError):
        poisoned.get("cut")


def test_a_cut_in_mid_part_costs_that_part_alone(gateway, proxied, open_store):
    """An upload in parts survives connections that are cut in the middle of a part, and nothing of it is left open."""
    store = open_store(
        gateway, endpoint=proxied.endpoint, attempts=6, multipart_above=5 * MIB, part_size=5 * MIB, connections=1
    )
    body = BytesBody(os.urandom(22 * MIB))
    with proxied.toxic("limit_data", upstream=True, bytes=8 * MIB):  # of each connection
        assert store.put("large", body) is True

    assert body.data == store.get("large")
    assert [] == store.unfinished("")


def test_a_slow_network_is_no_broken_one(proxied, poisoned):
    """A body that comes in small pieces, with pauses shorter than the timeout, is whole."""
    with proxied.toxic("slicer", average_size=50_000, delay=10_000):
        assert 500_000 == len(poisoned.get("k"))
    with proxied.toxic("latency", latency=300):
        assert ["k"] == [entry.key for entry in poisoned.list("k")]


def test_a_server_that_is_away_for_a_moment_is_waited_for(gateway, proxied, open_store):
    """A put during which the server is away for a second succeeds within the SDK's attempts."""
    store = open_store(gateway, endpoint=proxied.endpoint, attempts=8)
    store.put("before", BytesBody(b"x"))
    with _returning(proxied, after_s=1.0):
        assert store.put("k", BytesBody(b"x")) is True


@contextmanager
def _returning(proxied, after_s):
    """Take the proxy away, and bring it back while the block goes on."""
    back = threading.Event()
    with proxied.down():
        timer = threading.Timer(
            after_s, lambda: (proxied.toxiproxy.ask("POST", f"/proxies/{proxied.name}", {"enabled": True}), back.set())
        )
        timer.start()
        try:
            yield
        finally:
            timer.join()
            assert back.is_set()
