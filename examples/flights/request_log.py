"""What the demo's S3 server noted of each request: how many of which kind, and the last ones as they came."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import frozen

SHOWN = 12
_LINE = re.compile(r'\] \S+ \S+ \S+ s3_(?P<verb>\w+) (?P<key>\S.*?) "?(?P<uri>/\S*)')
_KINDS = ("data", "records", "pins")


@frozen
class Request:
    """
    One request.

    Attributes:
        verb: S3's name for it.
        kind: What it was about: data, records, pins, or the probes by which a job tries its bucket; empty if it is
            not told, as with removals, whose keys are in the body.
        key: The object's key; "-" where there is none.
    """

    verb: str
    kind: str
    key: str


def read_log(path: Path) -> Iterator[Request]:
    """Read the server's log, which is in the form of S3's own."""
    for line in path.read_text("utf-8", "replace").splitlines():
        if found := _LINE.search(line):
            where = f"{found['key']} {found['uri']}".replace("%2F", "/")
            kind = "probes" if "/.probe-" in where else next((kind for kind in _KINDS if f"/{kind}/" in where), "")
            yield Request(found["verb"], kind, found["key"])


def say_log(path: Path) -> Iterator[str]:
    """Give lines for people about the log *path*."""
    return say(read_log(path))


def say(requests: Iterable[Request]) -> Iterator[str]:
    """Give lines for people: the counts by kind, commits first, and the last PUTs in their order."""
    known = list(requests)
    kinds = Counter((one.verb, one.kind) for one in known)
    commits, packs = kinds.pop(("PutObject", "records"), 0), kinds.pop(("PutObject", "data"), 0)
    yield f"{commits:,} PUTs of records (commits and claims), {packs:,} PUTs of data, and beside them:"
    for (verb, kind), count in sorted(kinds.items()):
        yield f"  {count:7,} {verb} {kind}".rstrip()
    yield "the last PUTs, as they came:"
    for one in [one for one in known if one.verb == "PutObject" and one.kind in _KINDS][-SHOWN:]:
        yield f"  PUT {one.key}"
