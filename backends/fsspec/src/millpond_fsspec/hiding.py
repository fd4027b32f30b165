"""Keeping secrets out of messages and tracebacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlsplit, urlunsplit

from attrs import frozen

HIDDEN = "***"

_IN_URL = re.compile(
    r"(?i)\b(sig|signature|token|access_token|delegation|x-goog-signature|x-amz-signature|accountkey|"
    r"sharedaccesssignature|password)=[^&;\s'\"<>]+"
)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]*@")
PLAIN = frozenset({
    "account_host", "account_name", "anon", "endpoint_url", "host", "host_key_policy", "kerberos", "key_filename",
    "port", "project", "proxy_to", "requester_pays", "tenant_id", "use_https", "user", "username",
})  # fmt: skip
"""Options that only say where and who: their values may be shown."""

_PART = re.compile(r"[;\s]+")


@frozen
class Hiding:
    """
    Takes secrets out of texts.

    Attributes:
        secrets: The texts to hide, the longest first.
    """

    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, url: str, options: Mapping[str, object]) -> Hiding:
        """Hide the password in *url*, and every option but those that only say where and who."""
        found = {text for name, value in options.items() if name not in PLAIN for text in _texts(value)}
        password = urlsplit(url).password
        found |= {password} if password else set()
        quoted = {quote(text, safe="") for text in found}
        return cls(tuple(sorted((text for text in found | quoted if len(text) > 3), key=len, reverse=True)))

    def clean(self, text: str) -> str:
        """Give *text* with ``***`` for what must not be read."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return _IN_URL.sub(rf"\1={HIDDEN}", _USERINFO.sub(f"{HIDDEN}@", text))

    def shows(self, error: BaseException) -> bool:
        """Tell whether a traceback of *error* would show a secret."""
        seen: BaseException | None = error
        while seen is not None:
            if self.clean(str(seen)) != str(seen):
                return True
            seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
        return False


def shown_url(url: str) -> str:
    """Give *url* without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _texts(value: object) -> Iterator[str]:
    """Give the texts in *value*, and the values inside a connection string."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        text = str.__str__(value)
        yield text
        if "=" in text and ";" in text:
            secret = (part.partition("=") for part in _PART.split(text))
            yield from (after for name, _, after in secret if "key" in name.lower() or "signature" in name.lower())
