"""What the SDK raises, said as what a caller would do about it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import frozen

from millpond.blob.store import AccessDeniedError
from millpond.errors import ConfigError, MillpondError, StateNotFoundError, TransientError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_DENIED = frozenset({"AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden", "403"})
_STRANGERS = {
    "InvalidAccessKeyId": "the access key is unknown there",
    "XAdminUserNotFound": "the access key is unknown there",
    "SignatureDoesNotMatch": "the secret key is wrong, or something on the way changed the request",
    "InvalidSecurity": "the credentials are not valid there",
    "NotSignedUp": "the account may not use S3",
}
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"})
_ELSEWHERE = frozenset(
    {"PermanentRedirect", "Redirect", "TemporaryRedirect", "AuthorizationHeaderMalformed",
     "IllegalLocationConstraintException", "301", "307"}
)  # fmt: skip
_PASSING = frozenset(
    {"RequestTimeout", "RequestTimeoutException", "IncompleteBody", "BadDigest", "InvalidDigest", "InvalidPart",
     "InvalidPartOrder", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "NoSuchUpload", "SlowDown",
     "OperationAborted", "ConditionalRequestConflict", "RequestLimitExceeded", "Throttling", "ThrottlingException",
     "TooManyRequests", "TooManyRequestsException", "InternalError", "ServiceUnavailable", "BandwidthLimitExceeded",
     "KMS.ThrottlingException", "KMS.InternalException"}
)  # fmt: skip
_ABSENT = frozenset({"NoSuchKey", "NoSuchVersion", "404", "NotFound"})
_LACKING = frozenset({"NotImplemented", "MethodNotAllowed", "405", "501"})


@frozen
class Doing:
    """
    What was being done, for messages.

    Attributes:
        permission: What AWS asks for it, such as ``s3:PutObject``.
        place: The bucket and the key as an operator knows them.
        bucket: The bucket alone.
    """

    permission: str
    place: str
    bucket: str

    def __str__(self) -> str:
        return f"{self.permission} on {self.place}"


@contextmanager
def translated(doing: Doing, expired: Callable[[], None]) -> Iterator[None]:
    """Raise what the SDK raises in the block as one of our errors; call *expired* if other credentials may help."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.exceptions import HTTPClientError as HTTPError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        if code_of(error) in EXPIRED:
            expired()
        raise answered(doing, error) from error
    except HTTPError as error:
        raise _unreached(doing, error) from error
    except BotoCoreError as error:
        expired()
        raise _unprepared(doing, error) from error
    except ResponseParserError as error:
        raise TransientError(f"{doing}: the answer is no S3 server's: {error}") from error


def code_of(error: ClientError) -> str:
    """Give the server's word for what is wrong."""
    return str(error.response.get("Error", {}).get("Code", ""))


def answered(doing: Doing, error: ClientError) -> MillpondError:
    """Translate what a server answered."""
    told = error.response.get("Error", {})
    about = error.response.get("ResponseMetadata", {})
    headers = about.get("HTTPHeaders", {})
    status = int(about.get("HTTPStatusCode", 0))
    tries = int(about.get("RetryAttempts", 0)) + 1
    code, message = str(told.get("Code", "")), str(told.get("Message", ""))
    result = translate(doing, status, code, message, tries, headers)
    if tries > 1 and isinstance(result, ConfigError) and not _is_elsewhere(status, code):
        # It would say that nothing has happened.
        return TransientError(f"{result}; an earlier attempt was not answered, and may have been carried out")
    return result


def translate(
    doing: Doing, status: int, code: str, message: str, tries: int = 1, headers: Mapping[str, str] | None = None
) -> MillpondError:
    """Give the error for a status, a code and a message."""
    said = f"the store said {status} {code}: {message}" if message else f"the store said {status} {code}"
    if code in EXPIRED:
        return TransientError(
            f"{doing}: the credentials have expired; they are looked up anew at the next call, so renew them where the "
            f"SDK finds them ({said})"
        )
    if code == "RequestTimeTooSkewed":
        date = (headers or {}).get("date", "unknown")
        return TransientError(
            f"{doing}: this machine's clock is wrong: it is {date} at the store; set the clock ({said})"
        )
    if code in _STRANGERS:
        return ConfigError(f"{doing}: {_STRANGERS[code]}: correct the credentials ({said})")
    if _is_elsewhere(status, code):
        region = (headers or {}).get("x-amz-bucket-region")
        return ConfigError(
            f"{doing}: the bucket is in {f'the region {region}' if region else 'another region'}: correct `region` or "
            f"`endpoint` ({said})"
        )
    if code == "NoSuchBucket":
        return ConfigError(f"{doing}: there is no bucket {doing.bucket!r}: make it, or correct `bucket` ({said})")
    if code == "InvalidObjectState":
        return ConfigError(f"{doing}: the object is archived and has to be brought back first ({said})")
    if code in _PASSING or status == 429 or (status >= 500 and code not in _LACKING):
        return TransientError(f"{doing}: {said}, {tries} attempt{'s' * (tries > 1)}")
    if code in _ABSENT or status == 404:
        return StateNotFoundError(f"{doing}: there is no such object ({said})")
    if code in _LACKING:
        return ConfigError(f"{doing}: this server cannot do it ({said})")
    if code in _DENIED or status in (401, 403):
        return AccessDeniedError(f"{doing} is denied: grant it, or correct the credentials ({said})")
    if status in (409, 412):
        return TransientError(f"{doing}: another request was in the way ({said})")
    return ConfigError(f"{doing}: the store refuses the request as it is ({said})")


def expect(answer: Mapping[str, Any], name: str, place: str) -> None:
    """Refuse an *answer* about *place* that says that all is well and lacks what S3 always tells."""
    if name not in answer:
        raise TransientError(
            f"{place}: what answered is no S3 server, since its answer has no {name}: correct `endpoint`, or look for "
            "a proxy in between"
        )


def _is_elsewhere(status: int, code: str) -> bool:
    return code in _ELSEWHERE or status in (301, 307)


def _unreached(doing: Doing, error: Exception) -> MillpondError:
    """Translate what happened on the way."""
    if _holds(error, ssl.SSLCertVerificationError):
        return ConfigError(f"{doing}: the server's certificate is not trusted: set `ca_bundle` ({error})")
    return TransientError(f"{doing}: {error}")


def _unprepared(doing: Doing, error: Exception) -> MillpondError:
    """Translate what went wrong before anything was sent, or after all had been answered."""
    from botocore import exceptions as sdk

    passing = (
        sdk.IncompleteReadError,
        sdk.CredentialRetrievalError,
        sdk.MetadataRetrievalError,
        sdk.TokenRetrievalError,
        sdk.FlexibleChecksumError,
        sdk.ChecksumError,
        sdk.ConnectionError,
    )
    if isinstance(error, passing):
        return TransientError(f"{doing}: {error}")
    if isinstance(error, sdk.NoCredentialsError | sdk.PartialCredentialsError):
        return ConfigError(
            f"{doing}: the SDK finds no credentials: set `profile`, or whatever its chain reads "
            f"(environment, files, the machine's role) ({error})"
        )
    return ConfigError(f"{doing}: {error}")


def _holds(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Tell whether *error*, or what it came from, is a *kind*."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, kind):
            return True
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            waiting += [one.__cause__, one.__context__, *one.args, getattr(one, "kwargs", {}).get("error")]
            waiting.append(getattr(one, "reason", None))
    return False
