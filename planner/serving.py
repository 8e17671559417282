"""What gunicorn answers by itself, and what it does with bodies that nobody read."""

from __future__ import annotations

import contextlib
import json
import time
from http import HTTPStatus
from typing import Any

from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]

from planner.api.problems import CONTENT_TYPE, TYPE_PREFIX

MOST_DRAINED_BYTES = 32 * 2**20
"""Bytes of a refused body that are read and thrown away, so that the client, which may still be
sending them, comes to read the answer and can go on using the connection."""
DRAIN_S = 5.0
"""[s] within which they must arrive."""
_CHUNK = 1 << 16


def announce_close(request: Any) -> None:
    """Have the answer say ``Connection: close`` where the body is too long to be read away."""
    sent = next((v for k, v in request.headers if k == "CONTENT-LENGTH"), "0")
    if sent.isdecimal() and int(sent) > MOST_DRAINED_BYTES:
        request.force_close()


def drain(request: Any, environ: Any) -> None:
    """Read away what is left of a body after the answer was sent."""
    sock = environ.get("gunicorn.socket")
    if sock is None:
        return
    until, left = time.monotonic() + DRAIN_S, MOST_DRAINED_BYTES
    with contextlib.suppress(Exception):  # a client that is gone, or a malformed chunk
        sock.settimeout(DRAIN_S)
        while left > 0 and time.monotonic() < until:
            data = request.body.read(_CHUNK)
            if not data:
                break
            left -= len(data)
    with contextlib.suppress(OSError):
        sock.settimeout(None)


class _Kept:
    """A socket whose output is kept."""

    def __init__(self, sock: Any) -> None:
        self.sock, self.data = sock, b""

    def sendall(self, data: bytes) -> None:
        self.data += data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


class ProblemWorker(ThreadWorker):  # type: ignore[misc]
    """A worker whose refusals of what is no request (414, 431, 400, …) are problems, not HTML."""

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what could not be read, with the status that gunicorn gives it."""
        kept = _Kept(client)
        super().handle_error(req, kept, addr, exc)
        with contextlib.suppress(OSError):
            client.sendall(as_problem(kept.data, str(exc)))


def as_problem(answer: bytes, why: str) -> bytes:
    """An answer of the server as RFC 9457 problem.

    Examples
    --------
    >>> as_problem(b"HTTP/1.1 414 URI Too Long...", "is too large").split(b"\\r\\n")[0]
    b'HTTP/1.1 414 URI Too Long'
    """
    head = answer.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    status = int(head[1][:3]) if len(head) > 1 and head[1][:3].isdecimal() else 500
    title = HTTPStatus(status).phrase if status != 414 else "URI Too Long"
    said = why if status < 500 or status == 501 else "something broke here"
    body = json.dumps({"type": TYPE_PREFIX + title.lower().replace(" ", "-"), "title": title,
                       "status": status, "detail": said or title, "instance": "", "errors": []})
    lines = (f"HTTP/1.1 {status} {title}", "Connection: close", f"Content-Type: {CONTENT_TYPE}",
             f"Content-Length: {len(body.encode())}", "", body)
    return "\r\n".join(lines).encode()
