"""
A server that says yes to every S3 request that writes, and keeps nothing: what is left is the client's own cost.

    python tests/services/null_s3.py PORT
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.processes import free_port, running
from services.s3_server import S3Server

BLOCK = 1 << 20
XML = {
    b"uploads": b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>",
    b"uploadId": b'<CompleteMultipartUploadResult><ETag>"x-1"</ETag></CompleteMultipartUploadResult>',
}


@contextmanager
def serve(root: Path) -> Iterator[S3Server]:
    """Serve until the block ends; *root* gets the log."""
    root.mkdir(parents=True, exist_ok=True)
    port = free_port()
    path = str(Path(__file__).resolve().parents[1])
    with running([sys.executable, __file__, str(port)], port, root / "null.log", PYTHONPATH=path):
        yield S3Server(f"http://127.0.0.1:{port}", "any", "any-secret", "null")


def _answer_all(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    scratch = memoryview(bytearray(BLOCK))
    with connection:
        while (head := _head(connection)) is not None:
            _drop_body(connection, head, scratch)
            first = head[: head.index(b"\r\n")]
            post = first.startswith(b"POST")
            body = next((xml for word, xml in XML.items() if post and b"?" + word in first), b"")
            connection.sendall(b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: %d\r\n\r\n' % len(body) + body)


def _head(connection: socket.socket) -> bytes | None:
    """Read a request up to what has come of its body; None at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(1 << 16)
        if not more:
            return None
        data += more
    return data


def _drop_body(connection: socket.socket, head: bytes, scratch: memoryview) -> None:
    lines, _, body = head.partition(b"\r\n\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in lines.split(b"\r\n")[1:])
    if b"expect" in headers:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    left = int(headers.get(b"content-length", 0)) - len(body)
    while left > 0 and (came := connection.recv_into(scratch[: min(left, BLOCK)])):
        left -= came


def main() -> None:
    """Serve on the port that the command line names."""
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer_all, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
