"""
A shelf of the coordinator's on a Heron checkpoint manager: states of job checkpoints, kept through Heron's protocol.

A state of *member* at an attempt is saved under the attempt's id, written with as many digits as make Heron's order of
texts the order of numbers, and under a component of its own, ``<member>.<random>``, so that no second start of a member
overwrites what the record names.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection

from attrs import define

from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.shelf import MAX_STATE, StateShelf
from millpond.coordinator.state import LocatedState
from millpond.errors import ConfigError, StateCorruptError
from millpond.formats.digest import algorithm_of, digest_bytes
from millpond.heron.client import CheckpointClient
from millpond.heron.peers import Instance

_LOCATION = re.compile(r"([0-9]{19}-[0-9]{10})/(.+\.[0-9a-f]{16})", re.DOTALL)


def heron_id(attempt: JobCheckpointId) -> str:
    """
    Give the checkpoint's id under which an attempt's states are saved.

    Raises:
        ConfigError: It has more digits than Heron's order of texts allows.
    """
    if attempt.epoch >= 10**19 or attempt.number >= 10**10:
        raise ConfigError(f"the attempt {attempt} has more digits than an id of Heron's may have")
    return f"{attempt.epoch:019d}-{attempt.number:010d}"


@define
class HeronShelf(StateShelf):
    """
    Keeps large states of one job's members; any thread. The caller closes the client.

    Attributes:
        client: A client of the topology that stands for the job. No other job may clean that topology.
    """

    client: CheckpointClient

    def put(self, member: str, attempt: JobCheckpointId, data: bytes) -> LocatedState:
        """Save *data*; CommitFailedError where it is not known to be stored."""
        if len(data) > MAX_STATE:
            raise ConfigError(f"a state of {len(data):,} bytes is over the limit of {MAX_STATE:,}: keep it in a task")
        checkpoint, component = heron_id(attempt), f"{member}.{secrets.token_hex(8)}"
        self.client.save(Instance(component, 0), checkpoint, data)
        return LocatedState(f"{checkpoint}/{component}", len(data), digest_bytes(data))

    def get(self, state: LocatedState) -> bytes:
        """Get it, and compare its digest: a checkpoint manager of Heron's own verifies nothing."""
        found = _LOCATION.fullmatch(state.location)
        if found is None:
            raise StateCorruptError(f"not a place on this shelf: {state.location!r}")
        data = self.client.get(Instance(found[2], 0), found[1])
        if data is None or len(data) != state.size or digest_bytes(data, algorithm_of(state.digest)) != state.digest:
            raise StateCorruptError(f"the state {state.location} is not what was saved")
        return data

    def clean(self, member: str, retained: Collection[JobCheckpointId], before: JobCheckpointId) -> None:
        """Remove what is older than all that is retained, of all members: Heron's clean knows no more than that."""
        self.client.clean(heron_id(min([*retained, before])))
