"""What an operator says about a bucket: where it is, who asks, and how objects are kept."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from attrs import field, frozen

from millpond.errors import ConfigError
from millpond.spi import Secret, Size

MIB = 1 << 20
LEAST_PART = 5 * MIB
LARGEST_PUT = 5 << 30

_BUCKET = re.compile(
    r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,253}[a-zA-Z0-9]|arn:[\w-]+:s3[\w-]*:[\w-]*:[0-9]*:accesspoint[/:][\w./:-]+"
)
_PREFIX_PART = re.compile(r"[A-Za-z0-9!_.+%@()=-]+")
_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
_ENCRYPTIONS = {"SSE-S3": "AES256", "SSE-KMS": "aws:kms", "SSE-KMS-DSSE": "aws:kms:dsse"}
_TAG = re.compile(r"[\w \t+\-=.:/@]*")
_VERSIONS = ("remove", "keep")


def _text(value: str | None) -> str | None:
    """Give *value* as it was written; None for nothing."""
    return value or None


def _secret(value: str | None) -> Secret | None:
    """Give *value* as a secret: an empty one is none."""
    return value if isinstance(value, Secret) else Secret(value) if value else None


def _seconds(name: str, value: timedelta) -> None:
    if not timedelta(0) < value <= timedelta(hours=1):
        raise ConfigError(f"{name} is {value}: it has to be more than nothing and at most an hour")


def _clean_prefix(prefix: str) -> str:
    """Give *prefix* with one slash at its end, or nothing."""
    stripped = prefix.strip("/")
    return f"{stripped}/" if stripped else ""


@frozen(kw_only=True, slots=False)
class S3Settings:
    """
    A bucket, or a part of one, and how it is spoken to.

    Attributes:
        bucket: Its name, or an access point's ARN.
        prefix: Everything lies below it; ``flights`` and ``flights2`` are strangers to one another.
        endpoint: The address of a server that is not AWS, ``"http://host:port"``. None: what the SDK finds out.
        region: None: what the SDK's own chain says.
        profile: A profile of the SDK's configuration files. None: the SDK's default.
        access_key: With ``secret_key``, and a ``session_token`` where there is one: fixed credentials. Best left to
            the SDK's chain, which also renews them.
        ca_bundle: Certificates to trust in place of the SDK's.
        path_style: Addresses as ``host/bucket`` (True) or ``bucket.host`` (False). None: the SDK's choice, which is the
            path for an ``endpoint``.
        request_payer: The one who asks pays: for a bucket that wants it so.
        storage_class: Of all objects; None: the bucket's. What cannot be read at once is refused.
        encryption: ``"SSE-S3"``, ``"SSE-KMS"`` or ``"SSE-KMS-DSSE"``; None: the bucket's own.
        kms_key: With SSE-KMS: the key's id or ARN. None: the account's default key.
        customer_key: 32 bytes in base64 that the server encrypts with and does not keep (SSE-C). Who loses it loses
            the state.
        tags: At most ten, on each object.
        versions: In a bucket with versioning, ``"remove"`` removes each version of what is garbage, for good;
            ``"keep"`` leaves a delete marker each, and versions for the bucket's lifecycle rules to remove.
        sign_payload: The SDK hashes each body into the signature. The state's own digests make that needless.
        checksums: The SDK adds a CRC to each body and checks it. Likewise.
        batch_delete: Remove up to a thousand objects with one request. False: one by one, for servers that cannot.
        multipart_above: A larger object goes in parts.
        part_size: Of such an object; it grows where ten thousand parts would not do.
        connections: How many parts of large objects are on their way at once; twice as many connections are kept open.
            None: as many as the job has transfer threads.
        attempts: The SDK's, for each request, with growing delays.
        connect_timeout: For a connection.
        read_timeout: For the next byte of an answer.
    """

    bucket: str = field()
    prefix: str = field(default="", converter=_clean_prefix)
    endpoint: str | None = field(default=None, converter=_text)
    region: str | None = field(default=None, converter=_text)
    profile: str | None = field(default=None, converter=_text)
    access_key: Secret | None = field(default=None, converter=_secret)
    secret_key: Secret | None = field(default=None, converter=_secret)
    session_token: Secret | None = field(default=None, converter=_secret)
    ca_bundle: Path | None = None
    path_style: bool | None = None
    request_payer: bool = False
    storage_class: str | None = field(default=None, converter=_text)
    encryption: str | None = field(default=None, converter=_text)
    kms_key: str | None = field(default=None, converter=_text)
    customer_key: Secret | None = field(default=None, converter=_secret)
    tags: Mapping[str, str] = field(factory=dict, hash=False)
    versions: str = field(default="remove")
    sign_payload: bool = False
    checksums: bool = False
    batch_delete: bool = True
    multipart_above: Size = field(default=Size(64 * MIB))
    part_size: Size = field(default=Size(32 * MIB))
    connections: int | None = field(default=None)
    attempts: int = field(default=5)
    connect_timeout: timedelta = field(default=timedelta(seconds=5))
    read_timeout: timedelta = field(default=timedelta(seconds=60))

    @bucket.validator
    def _check_bucket(self, _attribute: object, bucket: str) -> None:
        if not _BUCKET.fullmatch(bucket):
            raise ConfigError(f"bucket is {bucket!r}: write a bucket's name, or an access point's ARN")
        if bucket.endswith("--x-s3"):
            raise ConfigError(
                f"bucket is {bucket!r}, a directory bucket: those do not list objects in order, and cannot be used; "
                "take a general-purpose bucket"
            )

    @prefix.validator
    def _check_prefix(self, _attribute: object, prefix: str) -> None:
        for part in prefix.rstrip("/").split("/") if prefix else ():
            if not _PREFIX_PART.fullmatch(part) or part in (".", ".."):
                raise ConfigError(
                    f"prefix is {prefix!r}: its parts, with / between, are letters, digits and ! _ . + % @ ( ) = -, "
                    "and none is empty, . or .."
                )
        if len(prefix) > 256:
            raise ConfigError(f"prefix has {len(prefix)} characters: at most 256, since keys end at 1,024")

    @endpoint.validator
    def _check_endpoint(self, _attribute: object, endpoint: str | None) -> None:
        if endpoint is None:
            return
        parts = urlsplit(endpoint)
        if parts.username or parts.password:
            raise ConfigError("endpoint holds a name or a password: credentials have keys of their own")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f'endpoint is {endpoint!r}: write it as "https://host" or "http://host:port"')

    @secret_key.validator
    def _check_keys(self, _attribute: object, secret_key: Secret | None) -> None:
        if (self.access_key is None) != (secret_key is None):
            raise ConfigError("access_key and secret_key go together: give both, or neither for the SDK's own chain")
        if secret_key is not None and self.profile is not None:
            raise ConfigError("profile and access_key exclude each other: say one way to credentials")

    @session_token.validator
    def _check_token(self, _attribute: object, token: Secret | None) -> None:
        if token is not None and self.access_key is None:
            raise ConfigError("session_token needs access_key and secret_key beside it")

    @storage_class.validator
    def _check_class(self, _attribute: object, name: str | None) -> None:
        if name in _ARCHIVES:
            raise ConfigError(
                f"storage_class is {name!r}: what it holds takes hours to be read, and a restore cannot wait"
            )

    @encryption.validator
    def _check_encryption(self, _attribute: object, name: str | None) -> None:
        if name is not None and name not in _ENCRYPTIONS:
            raise ConfigError(f"encryption is {name!r}: one of {', '.join(_ENCRYPTIONS)}; or customer_key for SSE-C")

    @kms_key.validator
    def _check_kms(self, _attribute: object, key: str | None) -> None:
        if key is not None and not (self.encryption or "").startswith("SSE-KMS"):
            raise ConfigError('kms_key needs encryption = "SSE-KMS" beside it')

    @customer_key.validator
    def _check_customer_key(self, _attribute: object, key: Secret | None) -> None:
        if key is None:
            return
        if self.encryption is not None:
            raise ConfigError("customer_key and encryption exclude each other: an object is encrypted one way")
        if len(_decoded(key)) != 32:
            raise ConfigError("customer_key has to be 32 bytes in base64, as `openssl rand -base64 32` prints them")

    @tags.validator
    def _check_tags(self, _attribute: object, tags: Mapping[str, str]) -> None:
        if len(tags) > 10:
            raise ConfigError(f"tags has {len(tags)} entries: S3 takes ten")
        for key, value in tags.items():
            if not (0 < len(key) <= 128 and len(value) <= 256 and _TAG.fullmatch(key) and _TAG.fullmatch(value)):
                raise ConfigError(f"tags has {key!r} = {value!r}: letters, digits, spaces and + - = . : / @ alone")

    @versions.validator
    def _check_versions(self, _attribute: object, versions: str) -> None:
        if versions not in _VERSIONS:
            raise ConfigError(f"versions is {versions!r}: one of {', '.join(_VERSIONS)}")

    @multipart_above.validator
    def _check_threshold(self, _attribute: object, size: int) -> None:
        if not LEAST_PART <= size <= LARGEST_PUT:
            raise ConfigError(f"multipart_above is {size} bytes: from 5 MiB to 5 GiB, the most that one request takes")

    @part_size.validator
    def _check_part(self, _attribute: object, size: int) -> None:
        if not LEAST_PART <= size <= LARGEST_PUT:
            raise ConfigError(f"part_size is {size} bytes: S3 takes parts from 5 MiB to 5 GiB")

    @connections.validator
    def _check_connections(self, _attribute: object, count: int | None) -> None:
        if count is not None and not 1 <= count <= 1_000:
            raise ConfigError(f"connections is {count}: from 1 to 1,000")

    @attempts.validator
    def _check_attempts(self, _attribute: object, count: int) -> None:
        if not 1 <= count <= 100:
            raise ConfigError(f"attempts is {count}: from 1 to 100")

    @connect_timeout.validator
    def _check_connect(self, _attribute: object, value: timedelta) -> None:
        _seconds("connect_timeout", value)

    @read_timeout.validator
    def _check_read(self, _attribute: object, value: timedelta) -> None:
        _seconds("read_timeout", value)

    def for_any(self) -> dict[str, object]:
        """Give the parameters of every request."""
        return {"Bucket": self.bucket, **({"RequestPayer": "requester"} if self.request_payer else {})}

    def for_content(self) -> dict[str, object]:
        """Give the parameters of every request that reads or writes an object's content."""
        if self.customer_key is None:
            return self.for_any()
        return {**self.for_any(), "SSECustomerAlgorithm": "AES256", "SSECustomerKey": _decoded(self.customer_key)}

    def for_new(self) -> dict[str, object]:
        """Give the parameters of a request that makes an object."""
        chosen = {
            "StorageClass": self.storage_class,
            "ServerSideEncryption": _ENCRYPTIONS.get(self.encryption or ""),
            "SSEKMSKeyId": self.kms_key,
            "Tagging": urlencode(sorted(self.tags.items())) or None,
        }
        return {**self.for_content(), **{name: value for name, value in chosen.items() if value is not None}}


def _decoded(key: Secret) -> bytes:
    """Give the bytes of a key in base64; nothing if it is none."""
    try:
        return base64.b64decode(key.reveal(), validate=True)
    except (binascii.Error, ValueError):
        return b""
