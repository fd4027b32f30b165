"""What is known of a running file-system server, and of what it takes to have one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from attrs import field, frozen

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / "build" / "servers"


@frozen
class FileSystemServer:
    """
    A server that listens on this machine.

    Attributes:
        name: Which server it is.
        url: An empty folder or bucket on it, as fsspec writes it.
        options: What fsspec needs to reach it.
    """

    name: str
    url: str
    options: Mapping[str, object] = field(factory=dict)


Serve = Callable[[Path], AbstractContextManager[FileSystemServer]]


def is_needed(name: str) -> bool:
    """
    Tell whether this run insists on the server *name*: then a missing one is a failure, and no skip.

    A registry that does not answer is no fault of the code, so nobody insists unless MILLPOND_INSIST is set.
    """
    return bool(os.environ.get("MILLPOND_INSIST")) and name in os.environ.get("MILLPOND_SERVERS", "").split(",")
