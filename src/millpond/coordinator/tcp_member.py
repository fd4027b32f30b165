"""A member process's end over TCP: one connection for all of its members, made again whenever it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from itertools import cycle
from typing import Any

from attrs import define

from millpond.coordinator.binding import Address, Trust
from millpond.coordinator.ends import MemberEnd
from millpond.coordinator.messages import Order, Report
from millpond.coordinator.wire import (
    MAX_GREETING,
    PROTOCOL,
    ClientHello,
    Sealer,
    ServerHello,
    ServerProof,
    addressed_of,
    hello_of,
    is_proof,
    new_nonce,
    proof,
    read_frame,
    to_json,
)
from millpond.errors import ConfigError, FormatError

log = logging.getLogger("millpond")

_MOST_UNSENT = 10_000
_LEAVING_S = 1.0


class TcpLink:
    """
    A connection to whoever leads, shared by the members of one process. Any thread.

    It tries the addresses in turn until a coordinator answers, and again when the connection breaks. What cannot be
    sent meanwhile is lost, but for what is waiting when the very first connection is made. One thread with an event
    loop reads and writes: an object of TLS bears no second thread.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        trust: Trust | None = None,
        *,
        timeout_s: float = 10.0,
        idle_timeout_s: float = 20.0,
        retry_s: float = 0.2,
    ) -> None:
        """
        Prepare; the first member that opens its end connects.

        Args:
            addresses: Where coordinators may listen; a standby listens once it leads.
            trust: How both ends prove who they are.
            timeout_s: How long connecting, greeting and each piece of sending may take; and after how long without any
                coordinator the log warns.
            idle_timeout_s: A connection on which nothing comes for so long is made anew; a coordinator sends regularly.
            retry_s: The pause after each address that did not answer.

        Raises:
            ConfigError: There is no address, or one has no port.
        """
        if not addresses or any(address.port == 0 for address in addresses):
            raise ConfigError(f"a member needs the addresses of its coordinators, with ports, not {list(addresses)}")
        self._addresses = tuple(addresses)
        self._trust = trust or Trust()
        self._timeout_s = timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._retry_s = retry_s
        self._deliver: dict[str, Callable[[Order], None]] = {}
        self._unsent: deque[bytes] = deque(maxlen=_MOST_UNSENT)
        self._lock = threading.Lock()  # of both
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_ended = False
        # Of the loop's thread:
        self._task: asyncio.Task[None] | None = None
        self._to_send = asyncio.Event()
        self._alone_since: float | None = None
        self._told: dict[Address | None, str] = {}

    def member_end(self, member: str) -> MemberEnd:
        """Give the end of *member*."""
        return _TcpMemberEnd(self, member)

    def begin(self, member: str, deliver: Callable[[Order], None]) -> None:
        """Deliver the orders for *member* from now on."""
        with self._lock:
            self._deliver[member] = deliver
            if self._thread is None and not self._is_ended:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._work, args=(self._loop,), name="millpond-member-tcp", daemon=True
                )
                self._thread.start()

    def end(self, member: str, deliver: Callable[[Order], None] | None) -> None:
        """Deliver nothing more for *member*, unless a later start of it has taken over."""
        with self._lock:
            if self._deliver.get(member) is deliver:
                self._deliver.pop(member, None)

    def send(self, report: Report) -> None:
        """Put *report* behind what waits to be sent; FormatError if it cannot be written at all."""
        data = to_json(report)
        with self._lock:
            was_empty = not self._unsent
            self._unsent.append(data)
        if was_empty:
            self._call(self._to_send.set)

    def close(self) -> None:
        """Send what waits, for a moment, then end the connection and the thread; idempotent."""
        with self._lock:
            self._is_ended = True
            thread = self._thread
        self._call(self._end)
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._timeout_s)

    def _call(self, act: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it all that could be done
                loop.call_soon_threadsafe(act)

    # ----------------------------------------------------------------------------------------------- the loop's thread

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner, contextlib.suppress(asyncio.CancelledError):
            runner.run(self._run())

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        self._task = asyncio.current_task()
        self._alone_since = time.monotonic()
        for address in cycle(self._addresses):
            if self._is_ended:
                return
            try:
                await self._talk(address)
            except ssl.SSLError as error:
                text = f"TLS with the coordinator at {address} fails: {error}: see both ends' certificates"
                self._tell_once(address, text)
            except (OSError, EOFError) as error:
                self._missed(address, error)
            except FormatError as error:
                self._tell_once(address, f"the coordinator at {address} cannot be spoken to: {error}")
            except Exception:  # whatever it is, the members are lost unless somebody goes on connecting
                log.exception("the connection to the coordinator at %s has failed", address)
            await asyncio.sleep(self._retry_s)

    def _missed(self, address: Address, error: Exception) -> None:
        """Note that *address* did not answer: of several, only one does; warn when none does for long."""
        log.debug("no coordinator at %s: %r", address, error)
        if self._alone_since is None:
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since >= self._timeout_s:
            where = ", ".join(map(str, self._addresses))
            self._tell_once(
                None, f"for {self._timeout_s:g} s there has been no connection to a coordinator at {where}; trying on"
            )

    def _tell_once(self, address: Address | None, text: str) -> None:
        """Warn of what goes wrong at each try, of an address or of all, once until it changes."""
        if text != self._told.get(address):
            log.warning("%s", text)
        self._told[address] = text

    async def _talk(self, address: Address) -> None:
        """Be connected to the coordinator at *address* until that breaks."""
        async with asyncio.timeout(self._timeout_s):
            reader, writer = await self._connect(address)
        try:
            async with asyncio.timeout(self._timeout_s):
                reports, orders = await self._greet(reader, writer)
            self._told.clear()
            self._alone_since = None
            try:
                await _either(self._receive(reader, orders), self._send_all(writer, reports))
            except asyncio.CancelledError:
                await self._leave(writer, reports)
                raise
            finally:
                with self._lock:
                    self._unsent.clear()
        finally:
            writer.transport.abort()

    async def _connect(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = self._trust.tls
        name = None if tls is None else self._trust.server_name or address.host
        return await asyncio.open_connection(address.host, address.port, ssl=tls, server_hostname=name)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Sealer, Sealer]:
        """Prove that we know the secret, and let the coordinator prove it."""
        secret, plain = self._trust.secret, Sealer(None, "", "", "")
        hello = hello_of(await read_frame(reader, MAX_GREETING), ServerHello)
        if hello.millpond != PROTOCOL:
            raise FormatError(f"it speaks protocol {hello.millpond}, and this release {PROTOCOL}")
        if hello.secret != (secret is not None):
            wants = "asks for a shared secret, and none is set" if hello.secret else "knows no shared secret"
            raise FormatError(f"it {wants} here: give both ends the same")
        nonce = new_nonce()
        writer.write(plain.frame(to_json(ClientHello(nonce, proof(secret, "client", hello.nonce, nonce)))))
        await writer.drain()
        answer = hello_of(await read_frame(reader, MAX_GREETING), ServerProof)
        if not is_proof(answer.proof, proof(secret, "server", hello.nonce, nonce)):
            raise FormatError("it does not know the shared secret")
        return Sealer(secret, "reports", hello.nonce, nonce), Sealer(secret, "orders", hello.nonce, nonce)

    async def _receive(self, reader: asyncio.StreamReader, orders: Sealer) -> None:
        while True:
            async with asyncio.timeout(self._idle_timeout_s):
                content = await read_frame(reader)
            addressed = addressed_of(orders.open(content))
            self._give(addressed.to, addressed.order)

    def _give(self, member: str, order: Order) -> None:
        with self._lock:
            found = list(self._deliver.values()) if not member else [self._deliver.get(member)]
        for deliver in found:
            if deliver is not None:
                deliver(order)

    async def _send_all(self, writer: asyncio.StreamWriter, reports: Sealer) -> None:
        while True:
            writer.write(reports.frame(await self._next_unsent()))
            async with asyncio.timeout(self._timeout_s):
                await writer.drain()

    async def _next_unsent(self) -> bytes:
        while True:
            with self._lock:
                if self._unsent:
                    return self._unsent.popleft()
                self._to_send.clear()
            await self._to_send.wait()

    async def _leave(self, writer: asyncio.StreamWriter, reports: Sealer) -> None:
        """Send what waits, for a moment."""
        with self._lock:
            writer.writelines([reports.frame(data) for data in self._unsent])
        writer.close()
        with contextlib.suppress(OSError):  # also too late: nobody reads at the other end
            async with asyncio.timeout(_LEAVING_S):
                await writer.wait_closed()


@define
class _TcpMemberEnd(MemberEnd):
    _link: TcpLink
    _member: str
    _deliver: Callable[[Order], None] | None = None

    def open(self, deliver: Callable[[Order], None]) -> None:
        self._deliver = deliver
        self._link.begin(self._member, deliver)

    def send(self, report: Report) -> None:
        self._link.send(report)

    def close(self) -> None:
        self._link.end(self._member, self._deliver)


async def _either(*running: Coroutine[Any, Any, None]) -> None:
    """Run both until one ends or fails, and end the other; what it raised is raised."""
    tasks = [asyncio.ensure_future(each) for each in running]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
