"""
Where a state lies: Heron's own layout, ``<topology>/<checkpoint>/<component>/<index>``, with safe names. Pure.

A name that any file system and object store takes as it is stays as it is, so that Heron finds what we write. Any other
one is written as ``%`` and its escaped form: no name leads out of its folder, and different names differ. What is not
Heron's lies below ``.millpond/``, beside the topologies.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from millpond.errors import ConfigError

OWN = ".millpond"
LONGEST_NAME = 200

_PLAIN = re.compile(r"[A-Za-z0-9!_+@()-][A-Za-z0-9!_.+@()-]{0,199}")
_SAFE = "!_.+@()-"


class NameRefusedError(ConfigError):
    """A name in a request cannot be one of a file or an object."""


class StateKey(NamedTuple):
    """
    Which state: Heron's storage key.

    Attributes:
        topology: The topology's name; Heron does not use its id.
        checkpoint: The checkpoint's id.
        component: The component's name.
        index: The instance's position among those of its component; not its task id.
    """

    topology: str
    checkpoint: str
    component: str
    index: int  # type: ignore[assignment]  # nobody looks for the place of a part in it

    def __str__(self) -> str:
        return f"{self.component}/{self.index} of checkpoint {self.checkpoint!r} of {self.topology}"

    @property
    def path(self) -> str:
        """The key of its object."""
        return _path(self.topology, self.checkpoint, self.component, self.index)

    @property
    def heron_path(self) -> str | None:
        """Where Heron would have put it, if that is elsewhere and in no other folder."""
        parts = [self.topology, self.checkpoint, *self.component.split("/"), str(self.index)]
        path = "/".join(parts)
        return path if path != self.path and all(map(_leads_nowhere, parts)) else None


@lru_cache(maxsize=4096)
def segment(name: str) -> str:
    """
    Give the part of a path that stands for *name*.

    Raises:
        NameRefusedError: It is longer than a file's name may be, or no text.
    """
    if _PLAIN.fullmatch(name):
        return name
    try:
        escaped = "%" + quote(name, safe=_SAFE).replace("~", "%7E")
    except UnicodeEncodeError:
        raise NameRefusedError(f"the name {name[:40]!r} holds half a surrogate pair, which is no character") from None
    if len(escaped) > LONGEST_NAME:
        raise NameRefusedError(
            f"the name {name[:40]!r}… has {len(escaped)} bytes as a file's name: at most {LONGEST_NAME} are allowed"
        )
    return escaped


@lru_cache(maxsize=1024)
def _path(topology: str, checkpoint: str, component: str, index: int) -> str:
    return f"{checkpoint_prefix(topology, checkpoint)}{segment(component)}/{index}"


def name_of(part: str) -> str:
    """Give the name that a part of a path stands for; a part that is Heron's stands for itself."""
    return unquote(part[1:]) if part.startswith("%") else part


def topology_prefixes(topology: str) -> tuple[str, ...]:
    """Give what the keys of a topology's state begin with: ours, and Heron's where it differs and is harmless."""
    ours = segment(topology)
    raw = (f"{topology}/",) if topology != ours and "/" not in topology and _leads_nowhere(topology) else ()
    return (f"{ours}/", *raw)


def checkpoint_prefix(topology: str, checkpoint: str) -> str:
    """
    Give what the keys of a checkpoint begin with.

    Raises:
        NameRefusedError: There can be no such checkpoint; the empty id, which means "no state", is none.
    """
    if not checkpoint:
        raise NameRefusedError("a state has no checkpoint id: the empty id stands for no state at all")
    return f"{segment(topology)}/{segment(checkpoint)}/"


def own_prefix(topology: str, what: str) -> str:
    """Give what the keys of something of our own about a topology begin with."""
    return f"{OWN}/{segment(topology)}/{what}/"


def _leads_nowhere(part: str) -> bool:
    return part not in ("", ".", "..", OWN) and "\0" not in part and not part.startswith("%")
