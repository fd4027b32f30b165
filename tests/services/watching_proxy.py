"""An HTTP proxy that notes each request to an S3 server, and can answer in its place, or lose an answer."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from attrs import define, field, frozen

TIMEOUT_S = 60.0
BLOCK = 1 << 16


@frozen
class Request:
    """
    One request.

    Attributes:
        method: HTTP's verb.
        path: The path, decoded.
        query: What follows it, one value a name.
        size: Of the body in bytes.
        headers: By lower-case name.
    """

    method: str
    path: str
    query: dict[str, str]
    size: int
    headers: dict[str, str] = field(factory=dict, eq=False, repr=False)


@frozen
class Answer:
    """
    What the proxy does instead of passing a request on, or with what came back.

    Attributes:
        status: Of the answer; None: the request is passed on, and the answer is lost.
        code: S3's word for the error.
        headers: More headers.
        cut: Pass the request on, and send so many bytes of the answer's body only.
        flip: Pass the request on, and turn the bit of the answer's body at this byte.
        after: Pass the request on, and call this before the answer is lost.
        without: Pass the request on without this header, and the answer as it is.
    """

    status: int | None = None
    code: str = ""
    headers: dict[str, str] = field(factory=dict)
    cut: int | None = None
    flip: int | None = None
    after: Callable[[], object] | None = None
    without: str = ""

    @property
    def lost(self) -> bool:
        """Tell whether the answer is to be lost."""
        return self.status is None and self.cut is None and self.flip is None and not self.without


LOST = Answer()
Rule = Callable[[Request], Answer | None]


@define
class Watch:
    """
    What a proxy saw, and what it is to do.

    Attributes:
        endpoint: Where the proxy listens.
        requests: All so far, in the order in which they came.
        rule: Asked for each request; None passes it on.
    """

    endpoint: str
    requests: list[Request] = field(factory=list)
    rule: Rule = lambda _request: None

    def take(self) -> list[Request]:
        """Give the requests since the last call."""
        taken, self.requests = self.requests, []
        return taken


def once(matches: Callable[[Request], bool], *answers: Answer) -> Rule:
    """Give a rule that deals *answers* out to the first requests that *matches* accepts."""
    left, lock = list(answers), threading.Lock()

    def rule(request: Request) -> Answer | None:
        with lock:
            return left.pop(0) if left and matches(request) else None

    return rule


@contextmanager
def watching(endpoint: str) -> Iterator[Watch]:
    """Put a proxy in front of *endpoint* until the block ends. What is signed is signed for the proxy's address."""
    upstream = urlsplit(endpoint).netloc

    class Handler(_Handler):
        target = upstream

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    watch = Handler.watch = Watch(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        server.shutdown()
        server.server_close()
        thread.join(TIMEOUT_S)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target: str
    watch: Watch

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, unquote(parts.path), query, len(body), headers)
        self.watch.requests.append(request)
        answer = self.watch.rule(request)
        if answer is not None and answer.status is not None:
            self._say_error(answer)
        else:
            self._pass_on(body, answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_any

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _say_error(self, answer: Answer) -> None:
        xml = f"<Error><Code>{answer.code}</Code><Message>made by a test</Message></Error>" if answer.code else ""
        assert answer.status is not None
        self._send(answer.status, {"Content-Type": "application/xml", **answer.headers}, xml.encode())

    def _pass_on(self, body: bytes, answer: Answer | None) -> None:
        dropped = {"expect", answer.without if answer is not None else ""}
        upstream = http.client.HTTPConnection(self.target, timeout=TIMEOUT_S)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            came = upstream.getresponse()
            data = came.read()
        finally:
            upstream.close()
        if answer is not None and answer.lost:
            if answer.after is not None:
                answer.after()
            self._hang_up()
            return
        kept = {
            name: value for name, value in came.getheaders() if name.lower() not in ("connection", "transfer-encoding")
        }
        self._send(came.status, kept, data, answer)

    def _send(self, status: int, headers: dict[str, str], data: bytes, answer: Answer | None = None) -> None:
        given = {
            name: value for name, value in headers.items() if name.lower() not in ("content-length", "date", "server")
        }
        stated = next((value for name, value in headers.items() if name.lower() == "content-length"), str(len(data)))
        length = stated if self.command == "HEAD" else str(len(data))
        with suppress(OSError):  # the client may have gone
            self.send_response(status)
            for name, value in {**given, "Content-Length": length}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if answer is not None and answer.flip is not None and data:
                place = answer.flip % len(data)
                data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            self.wfile.write(data if answer is None or answer.cut is None else data[: answer.cut])
        if answer is not None and answer.cut is not None:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(2)
