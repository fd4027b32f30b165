"""File names for the names that operators choose: reversible, and safe on any file system."""

from __future__ import annotations

import re

from millpond.errors import ConfigError

MAX_ESCAPED_BYTES = 200
"""The longest escaped name: a file name may have 255 bytes, and ours get prefixes and endings."""

MAX_FILE_NAME_BYTES = 255

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def escape_name(name: str) -> str:
    """
    Give a file name for *name*; different names differ, even where the file system ignores case.

    Lower-case ASCII letters, digits, ``-`` and ``_`` stay, as does a dot that is neither first nor last. An upper-case
    ASCII letter becomes ``+`` and its lower case. Each byte of anything else, in UTF-8, becomes ``%`` and two hex
    digits in lower case. So no result has ``@``, ``/``, a space, a control character, or a dot at an end.

    Raises:
        ConfigError: *name* is empty, is not valid text, or is longer than ``MAX_ESCAPED_BYTES`` when escaped.
    """
    if not name:
        raise ConfigError("a name is empty: jobs, tasks, stores and backends need one of at least one character")
    last = len(name) - 1
    escaped = "".join(_escape_character(c, name, edge=i in (0, last)) for i, c in enumerate(name))
    if len(escaped) > MAX_ESCAPED_BYTES:
        raise ConfigError(
            f"the name {name[:40]!r}… is {len(escaped)} bytes long as a file name; at most {MAX_ESCAPED_BYTES} are "
            "allowed: choose a shorter one"
        )
    return escaped


def _escape_character(character: str, name: str, *, edge: bool) -> str:
    if character in _PLAIN or (character == "." and not edge):
        return character
    if "A" <= character <= "Z":
        return "+" + character.lower()
    try:
        return "".join(f"%{byte:02x}" for byte in character.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"the name {name!r} holds half a surrogate pair, which is no character") from None


def unescape_name(escaped: str) -> str:
    """
    Give the name that :func:`escape_name` turned into *escaped*.

    Raises:
        ValueError: No name escapes to *escaped*.
    """
    try:
        raw = re.sub(r"\+([a-z])|%([0-9a-f]{2})|(.)", _unescape_match, escaped, flags=re.DOTALL)
        name = raw.encode("latin-1").decode()
        if escape_name(name) == escaped:
            return name
    except (UnicodeError, ConfigError):
        pass
    raise ValueError(f"not an escaped name: {escaped[:200]!r}")


def _unescape_match(match: re.Match[str]) -> str:
    upper, code, other = match.groups()
    if upper is not None:
        return str(upper).upper()
    return chr(int(code, 16)) if code is not None else str(other)


def job_folder(job: str, job_id: str) -> str:
    """
    Give the folder name of a job: its own, and its id behind ``@`` unless that is Samza's usual ``"1"``.

    Raises:
        ConfigError: A name is empty, or the two are too long together.
    """
    folder = escape_name(job) if job_id == "1" else f"{escape_name(job)}@{escape_name(job_id)}"
    if len(folder) > MAX_FILE_NAME_BYTES:
        raise ConfigError(
            f"the job's name and id, {job!r} and {job_id!r}, are {len(folder)} bytes long as a file name; at most "
            f"{MAX_FILE_NAME_BYTES} are allowed: choose shorter ones"
        )
    return folder
