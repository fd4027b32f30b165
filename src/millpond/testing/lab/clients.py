"""One client of the S3 SDK for all children: made before they are forked, it has neither a thread nor a socket."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import attrs

Hear = Callable[..., None]

_POOL = 16


def share_clients(settings: Iterable[object]) -> None:
    """
    Make the clients that *settings* of S3 plugins ask for, and let every later store of such settings use them.

    A prefix makes no difference. To make a session and a client costs more than ten requests, and a process of a trial
    would do so four times. A store that is closed closes its client's sockets still, and the next one opens new ones.
    """
    module: Any = importlib.import_module("millpond_s3.client")
    fields = attrs.fields(importlib.import_module("millpond_s3.settings").S3Settings)
    names = [each.name for each in fields if each.name != "prefix" and each.hash is not False]
    make, made, hearing = module.make_client, dict[Hashable, Any](), list[Hear]()

    def tell(**answer: object) -> None:
        for hear in hearing:
            hear(**answer)

    def shared(asked: Any, pool: int, hear: Hear) -> Any:
        key = tuple(getattr(asked, name) for name in names)
        if key not in made:
            made[key] = make(asked, pool, tell)
        hearing.append(hear)
        return made[key]

    for each in settings:
        shared(each, _POOL, _nobody)
    module.make_client = shared


def _nobody(**_: object) -> None:
    """Hear nothing: a client that is made in advance has no store yet."""
