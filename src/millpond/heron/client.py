"""
A client of a checkpoint manager that speaks Heron's protocol, ours or Heron's own.

It repeats what failed, with growing delays and jitter, until its deadline: Heron's clients never repeat a save, and
repeat a get five times at once.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

import stamina

from millpond.errors import CommitFailedError, FormatError, StateNotFoundError, StoreClosedError, TransientError
from millpond.heron import peers
from millpond.heron.framing import new_reqid, parse_head
from millpond.heron.messages import OK
from millpond.heron.peers import Instance, Topology, Wire
from millpond.heron.state_body import GOT, StateBegins, StateBody, StatePiece

T = TypeVar("T")
Begin = Callable[[int], object]
Add = Callable[[bytes | memoryview], object]

DEFAULT_PORT = 6666


class RefusedError(TransientError):
    """The checkpoint manager answered NOTOK; the text says why, if it is ours."""


class CheckpointClient:
    """
    Saves, gets and cleans the states of one topology. Any thread; one request at a time.

    It registers as the coordinator, or as the stream manager *stmgr*, which then replaces one of that name.
    """

    def __init__(
        self,
        host: str,
        port: int,
        topology: Topology,
        *,
        stmgr: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 60.0,
        attempts: int = 5,
    ) -> None:
        """Keep what is given; the first request connects. Each attempt waits *timeout_s* for an answer's next byte."""
        self._host, self._port, self._topology, self._stmgr = host, port, topology, stmgr
        self._tls, self._timeout_s, self._attempts = tls, timeout_s, attempts
        self._wire: Wire | None = None
        self._closed = False
        self._lock = threading.Lock()

    def save(self, instance: Instance, checkpoint: str, state: bytes | Path | None) -> None:
        """
        Store a state, in memory or in a file that does not change; None is no state. Durable when this returns.

        Raises:
            CommitFailedError: It is not known to be stored, after all attempts.
        """
        try:
            self._repeat(lambda: self._save(instance, checkpoint, state))
        except TransientError as error:
            raise CommitFailedError(f"the state of {instance} at {checkpoint!r} is not stored: {error}") from error

    def get(self, instance: Instance, checkpoint: str) -> bytes | None:
        """
        Give a state, None if it is "no state"; a spilled one is read from its file.

        Raises:
            StateNotFoundError: The checkpoint manager does not have it, after all attempts.
            TransientError: It cannot be reached.
        """
        pieces: list[bytes | memoryview] = []

        def begin(_size: int) -> None:
            pieces.clear()

        found = self._get(instance, checkpoint, begin, pieces.append)
        return b"".join(pieces) if found else None

    def get_to(self, instance: Instance, checkpoint: str, file: BinaryIO) -> bool:
        """Write a state to *file*, without holding it; False: it is "no state". Errors as :meth:`get`."""

        def begin(_size: int) -> None:
            file.seek(0)
            file.truncate()

        return self._get(instance, checkpoint, begin, file.write)

    def clean(self, oldest: str) -> list[str]:
        """Remove the checkpoints before *oldest*, and say which, if the server tells; TransientError if it failed."""
        return self._repeat(lambda: self._clean(oldest, everything=False))

    def clean_all(self) -> list[str]:
        """Remove all checkpoints of the topology, and say which, if the server tells."""
        return self._repeat(lambda: self._clean("", everything=True))

    def close(self) -> None:
        """Close the connection; idempotent. A request that another thread waits for ends with StoreClosedError."""
        self._closed = True
        wire = self._wire
        if wire is not None:
            wire.break_off()
        with self._lock:
            self._hang_up()

    def __enter__(self) -> Self:
        """Give the client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    # One attempt

    def _save(self, instance: Instance, checkpoint: str, state: bytes | Path | None) -> None:
        wire = self._connected()
        reqid = new_reqid()
        size = state.stat().st_size if isinstance(state, Path) else None if state is None else len(state)
        wire.send(peers.save_head(instance, checkpoint, size, reqid))
        if isinstance(state, Path):
            wire.send_file(state, size or 0)
        elif state:
            wire.send(state)
        self._expect("SaveInstanceStateResponse", reqid, wire)

    def _get(
        self,
        instance: Instance,
        checkpoint: str,
        begin: Callable[[int], object],
        add: Add,
    ) -> bool:
        try:
            return self._repeat(lambda: self._get_once(instance, checkpoint, begin, add))
        except RefusedError as error:
            raise StateNotFoundError(f"no state of {instance} at {checkpoint!r} was given: {error}") from error

    def _get_once(
        self,
        instance: Instance,
        checkpoint: str,
        begin: Callable[[int], object],
        add: Add,
    ) -> bool:
        wire = self._connected()
        reqid = new_reqid()
        wire.send(peers.get(instance, checkpoint, reqid))
        has_state, left = False, 0
        body: StateBody | None = None
        for piece in wire.receive_pieces():
            if body is None:
                head = parse_head(piece)
                if head is None or head.reqid != reqid:
                    raise FormatError("an answer to another request came")
                body, left = StateBody(head.size, GOT), head.size
                continue
            for part in body.feed(piece[:left]):
                if isinstance(part, StateBegins):
                    has_state = True
                    begin(part.size)
                elif isinstance(part, StatePiece):
                    add(part.data)
            left -= len(piece[:left])
        answer: Any = None if body is None else body.message()
        _check_status(answer)
        if answer.checkpoint.state_location and not has_state:
            return _read(Path(answer.checkpoint.state_location), begin, add)
        return has_state

    def _clean(self, oldest: str, *, everything: bool) -> list[str]:
        wire = self._connected()
        reqid = new_reqid()
        wire.send(peers.clean(oldest, reqid, everything=everything))
        answer = self._expect("CleanStatefulCheckpointResponse", reqid, wire)
        return list(answer.cleaned_checkpoint_ids)

    def _expect(self, name: str, reqid: bytes, wire: Wire) -> Any:
        found = wire.receive()
        if (found.name, found.reqid) != (name, reqid):
            raise FormatError(f"a {found.name} came where a {name} was expected")
        _check_status(found.message)
        return found.message

    def _connected(self) -> Wire:
        if self._wire is None:
            wire = Wire(self._host, self._port, self._timeout_s, self._tls)
            try:
                self._register(wire)
            except BaseException:
                wire.close()
                raise
            self._wire = wire
        return self._wire

    def _register(self, wire: Wire) -> None:
        reqid = new_reqid()
        if self._stmgr is None:
            wire.send(peers.register_coordinator(self._topology, reqid))
            self._expect("RegisterTManagerResponse", reqid, wire)
        else:
            wire.send(peers.register_stream_manager(self._topology, self._stmgr, reqid))
            self._expect("RegisterStMgrResponse", reqid, wire)

    def _hang_up(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _repeat(self, work: Callable[[], T]) -> T:
        with self._lock:
            for attempt in stamina.retry_context(on=TransientError, attempts=self._attempts, wait_max=10.0):
                with attempt:
                    return self._attempt(work)
        raise AssertionError("stamina gives up by raising")

    def _attempt(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreClosedError("the client is closed")
        try:
            return work()
        except RefusedError:
            raise
        except BaseException:
            # Nobody knows what else would come on this connection.
            self._hang_up()
            raise


def _check_status(answer: Any) -> None:
    if answer.status.status != OK:
        raise RefusedError(answer.status.message or "NOTOK, without a reason")


def _read(path: Path, begin: Begin, add: Add) -> bool:
    with path.open("rb") as file:
        begin(path.stat().st_size)
        while piece := file.read(1 << 20):
            add(piece)
    return True
