"""One SDK client for all that speak to a bucket in the same way, and what it has heard of the store's clock."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from millpond_s3.settings import S3Settings

FRESH_S = 60.0
_AGAIN = {(409, "ConditionalRequestConflict"), (409, "OperationAborted")}
_LONGEST_DELAY_S = 20.0

_connections: dict[tuple[S3Settings, int], Connection] = {}
_lock = threading.Lock()


class Connection:
    """A client that is made when it is first needed, and closed by its last holder. Any thread may use it."""

    def __init__(self, settings: S3Settings, pool: int) -> None:
        self._settings, self._pool = settings, pool
        self._client: Any = None
        self._lock = threading.Lock()
        self._heard: tuple[int, float] | None = None
        self._holders = 0

    @property
    def client(self) -> Any:
        """The SDK's client; the first call, and the first after ``forget``, finds the credentials."""
        with self._lock:
            if self._client is None:
                self._client = make_client(self._settings, self._pool, self._hear)
            return self._client

    def forget(self) -> None:
        """Let the next call look for credentials anew: those of this client are of no use any more."""
        with self._lock:
            self._client = None

    def now(self) -> int | None:
        """
        Give the store's clock in milliseconds, by an answer of the last minute; None: there was none.

        While the machine sleeps the clock that bridges the time since then may stand: the result is too early then,
        which makes things look younger than they are.
        """
        heard = self._heard
        if heard is None or (since := time.monotonic() - heard[1]) > FRESH_S:
            return None
        return heard[0] + int(since * 1_000)

    def ask(self) -> int | None:
        """Ask for the store's clock; None if it does not tell. A refusal has a date as well."""
        from botocore.exceptions import ClientError

        try:
            self.client.head_bucket(Bucket=self._settings.bucket)
        except ClientError:
            if self.now() is None:
                raise
        return self.now()

    def close(self) -> None:
        """Hold it no more."""
        with _lock:
            self._holders -= 1
            if self._holders:
                return
            del _connections[self._settings, self._pool]
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _hear(self, response_dict: Mapping[str, Any] | None = None, **_: object) -> None:
        """Note the Date of an answer."""
        date = (response_dict or {}).get("headers", {}).get("date")
        if date:
            try:
                self._heard = int(parsedate_to_datetime(date).timestamp() * 1_000), time.monotonic()
            except ValueError:  # no date; whoever needs one asks, and is told that there is none
                return


def connect(settings: S3Settings, pool: int) -> Connection:
    """Hold this process's one connection for *settings*, which keeps at most *pool* sockets open."""
    with _lock:
        found = _connections.setdefault((settings, pool), Connection(settings, pool))
        found._holders += 1  # noqa: SLF001 - the count belongs to both, and to this lock
        return found


def make_client(settings: S3Settings, pool: int, hear: Callable[..., None]) -> Any:
    """Make a client; nothing is sent."""
    import boto3
    from botocore.config import Config

    def reveal(secret: Any) -> str | None:
        return None if secret is None else secret.reveal()

    session = boto3.session.Session(profile_name=settings.profile, region_name=settings.region)
    style = {None: {}, True: {"addressing_style": "path"}, False: {"addressing_style": "virtual"}}[settings.path_style]
    calculate = "when_supported" if settings.checksums else "when_required"
    client = session.client(
        "s3",
        endpoint_url=settings.endpoint,
        # Servers that are not AWS seldom mind, and a signature needs some region.
        region_name=session.region_name or ("us-east-1" if settings.endpoint else None),
        aws_access_key_id=reveal(settings.access_key),
        aws_secret_access_key=reveal(settings.secret_key),
        aws_session_token=reveal(settings.session_token),
        verify=None if settings.ca_bundle is None else str(settings.ca_bundle),
        config=Config(
            retries={"mode": "standard", "total_max_attempts": settings.attempts},
            max_pool_connections=pool,
            connect_timeout=settings.connect_timeout.total_seconds(),
            read_timeout=settings.read_timeout.total_seconds(),
            tcp_keepalive=True,
            request_checksum_calculation=calculate,
            response_checksum_validation=calculate,
            s3={"payload_signing_enabled": settings.sign_payload, **style},
        ),
    )
    client.meta.events.register("response-received.s3", hear)
    client.meta.events.register_last("needs-retry.s3", conflict_delay(settings.attempts))
    return client


def conflict_delay(most: int) -> Callable[..., float | None]:
    """
    Give the handler by which the SDK repeats what it does not by itself: a conditional write that met another.

    AWS asks for that after a 409; and some servers throttle by a bare 429.
    """

    def delay(response: Any = None, attempts: int = 1, **_: object) -> float | None:
        if response is None or attempts >= most:
            return None
        http, parsed = response
        met = (http.status_code, parsed.get("Error", {}).get("Code")) in _AGAIN
        if not met and http.status_code != 429:
            return None
        return random.uniform(0, min(_LONGEST_DELAY_S, 0.05 * 2**attempts))  # noqa: S311 - no secret hangs on it

    return delay
