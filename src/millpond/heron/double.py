"""
Doubles of Heron's clients, for tests of a checkpoint manager: they do on the wire what Heron's stream managers and its
coordinator do, and no better.

A stream manager registers and sends other requests without waiting for the answer; asks for the state of each of its
instances at once; asks again at once, five times in all, where the answer is not OK; saves once and never again; and
takes an answer with a broken or an empty body for success, as the C++ client does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millpond.heron import peers
from millpond.heron.framing import new_reqid
from millpond.heron.messages import OK
from millpond.heron.peers import ConnectionEndedError, Instance, Received, Topology, Wire

TRIES = 5
"""Of a get."""


class _Peer:
    """A connection that registers at once."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        """Connect, and register without waiting for the answer."""
        self.wire = Wire(host, port, timeout_s)
        self.registered: bool | None = None
        self._register_id = new_reqid()
        self._waiting: dict[bytes, Received] = {}
        try:
            self.wire.send(self._registration(self._register_id))
        except BaseException:
            self.close()
            raise

    def _registration(self, reqid: bytes) -> bytes:
        raise NotImplementedError

    def await_registration(self) -> bool:
        """Give whether the registration was OK."""
        if self.registered is None:
            self.registered = self.answer(self._register_id).message.status.status == OK
        return self.registered

    def answer(self, reqid: bytes) -> Received:
        """Give the answer to *reqid*; answers to other requests are kept for those who ask for them."""
        while reqid not in self._waiting:
            found = self.wire.receive()
            self._waiting[found.reqid] = found
        return self._waiting.pop(reqid)

    def close(self) -> None:
        """Close the connection."""
        self.wire.close()

    def __enter__(self) -> Self:
        """Give the double."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


class StreamManagerDouble(_Peer):
    """A stream manager. One thread."""

    def __init__(
        self, host: str, port: int, topology: Topology, stmgr: str, *, with_plan: bool = True, timeout_s: float = 30.0
    ) -> None:
        """Connect and register."""
        self.topology, self.stmgr, self._with_plan = topology, stmgr, with_plan
        super().__init__(host, port, timeout_s)

    def _registration(self, reqid: bytes) -> bytes:
        return peers.register_stream_manager(self.topology, self.stmgr, reqid, with_plan=self._with_plan)

    def begin_save(self, instance: Instance, checkpoint: str, state: bytes | None) -> bytes:
        """Send a save, and give its request id."""
        reqid = new_reqid()
        size = None if state is None else len(state)
        self.wire.send(peers.save_head(instance, checkpoint, size, reqid), state or b"")
        return reqid

    def save(self, states: Mapping[Instance, bytes | None], checkpoint: str) -> set[Instance]:
        """Save the states of instances, all at once; give those of which the coordinator would be told."""
        sent = {instance: self.begin_save(instance, checkpoint, state) for instance, state in states.items()}
        return {each for each, reqid in sent.items() if self.answer(reqid).message.status.status == OK}

    def save_spilled(self, instance: Instance, checkpoint: str, path: str) -> bool:
        """Save a state that lies in a file; give whether that was OK."""
        reqid = new_reqid()
        self.wire.send(peers.save_spilled(instance, checkpoint, path, reqid))
        return bool(self.answer(reqid).message.status.status == OK)

    def begin_get(self, instance: Instance, checkpoint: str) -> bytes:
        """Send a get, and give its request id."""
        reqid = new_reqid()
        self.wire.send(peers.get(instance, checkpoint, reqid))
        return reqid

    def restore(self, checkpoint: str) -> dict[Instance, bytes | None] | None:
        """
        Ask for the state of each of its instances, all at once; None: one could not be had, in five tries.

        A restore in which an answer names another checkpoint would hang; here it is an error.
        """
        owed = {instance: self.begin_get(instance, checkpoint) for instance in self.topology.of(self.stmgr)}
        found: dict[Instance, bytes | None] = {}
        for instance, reqid in owed.items():
            answer = self.answer(reqid).message
            for _ in range(TRIES - 1):
                if answer.status.status == OK:
                    break
                answer = self.answer(self.begin_get(instance, checkpoint)).message
            if answer.status.status != OK:
                return None
            if answer.checkpoint.checkpoint_id != checkpoint:
                raise ConnectionEndedError(f"a state of checkpoint {answer.checkpoint.checkpoint_id!r} came: it hangs")
            found[instance] = _state(answer.checkpoint)
        return found


class CoordinatorDouble(_Peer):
    """A coordinator, as far as a checkpoint manager sees it. One thread."""

    def __init__(
        self, host: str, port: int, topology: Topology, *, old_name: bool = False, timeout_s: float = 30.0
    ) -> None:
        """Connect and register; *old_name* spells the message as builds before 2020-11 do."""
        self.topology, self._old_name = topology, old_name
        super().__init__(host, port, timeout_s)

    def _registration(self, reqid: bytes) -> bytes:
        return peers.register_coordinator(self.topology, reqid, old_name=self._old_name)

    def clean(self, oldest: str | None, *, everything: bool = False) -> Any:
        """Clean; give the answer."""
        reqid = new_reqid()
        self.wire.send(peers.clean(oldest, reqid, everything=everything))
        return self.answer(reqid).message


def _state(checkpoint: Any) -> bytes | None:
    """Give the state as an instance takes it: the one in the message before the one in a file."""
    if checkpoint.HasField("state") and (checkpoint.state or not checkpoint.HasField("state_location")):
        return bytes(checkpoint.state)
    if checkpoint.HasField("state_location"):
        return Path(checkpoint.state_location).read_bytes()
    return None
