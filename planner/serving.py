"""What gunicorn answers by itself, how long it waits for a client, and what it does with bodies
that nobody read.
"""

from __future__ import annotations

import contextlib
import json
import time
from http import HTTPStatus
from typing import Any

from gunicorn import http  # type: ignore[import-untyped]
from gunicorn.util import close_graceful  # type: ignore[import-untyped]
from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]

from planner.api.problems import CONTENT_TYPE, TYPE_PREFIX
from planner.reading import READERS, RETRY_S, BodyTooSlow, TooManyReaders

MOST_DRAINED_BYTES = 32 * 2**20
"""Bytes of a refused body that are read and thrown away, so that the client, which may still be
sending them, comes to read the answer and can go on using the connection."""
DRAIN_S = 5.0
"""[s] within which they must arrive."""
GRACE_S = 0.25
"""[s] that any thread may wait for the bytes of one request; longer waits are for the few readers
that a process has, so that clients which send nothing never hold all of its threads."""
IDLE_S = 10.0
"""[s] without a byte after which a client is told 408."""
SLOWEST_BYTES_PER_S, LEAST_S = 10_000, 30.0
"""A client whose request was waited for longer than ``LEAST_S`` and this rate allow is told 408."""
LINGER_S = 0.5
"""[s] to wait that a client whose request was cut off reads why."""
_CHUNK = 1 << 16


class PatientSocket:
    """A client's socket, whose bytes are waited for only so long.

    Parameters
    ----------
    sock : socket.socket
        Blocking while it is read.
    """

    def __init__(self, sock: Any) -> None:
        self.sock = sock
        self.begin()

    def begin(self) -> None:
        """A new request is read from here on."""
        self.request: Any = None
        self.idle_s, self.waited_s, self.size = IDLE_S, 0.0, 0
        self.answered = False
        self.cut: Exception | None = None

    def recv(self, size: int) -> bytes:
        """Bytes of the client, at most ``size``.

        Raises
        ------
        BodyTooSlow, TooManyReaders
            From then on at every call; the connection is to be closed.
        """
        if self.cut is not None:
            raise self.cut
        try:
            data = self._received(size)
        except (BodyTooSlow, TooManyReaders) as error:
            self.cut = error
            if self.request is not None:
                self.request.force_close()
            raise
        self.size += len(data)
        return data

    def _received(self, size: int) -> bytes:
        with contextlib.suppress(TimeoutError):
            if self.waited_s < GRACE_S:
                return self._within(GRACE_S - self.waited_s, size)
        READERS.enter()
        left = LEAST_S + self.size / SLOWEST_BYTES_PER_S - self.waited_s
        try:
            if left > 0:
                return self._within(min(self.idle_s, left), size)
        except TimeoutError:
            pass
        raise BodyTooSlow(
            f"the request was not sent in time: at most {self.idle_s:g} s may pass without a byte, "
            f"and {LEAST_S:g} s and a second per {SLOWEST_BYTES_PER_S:,} bytes in all")

    def _within(self, seconds: float, size: int) -> bytes:
        began = time.monotonic()
        self.sock.settimeout(seconds)
        try:
            data: bytes = self.sock.recv(size)
        finally:
            self.waited_s += time.monotonic() - began
            with contextlib.suppress(OSError):
                self.sock.settimeout(None)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


def begin_request(request: Any) -> None:
    """Note whose bytes are read, and announce the end of the connection where it will end."""
    sock = request.unreader.sock
    if isinstance(sock, PatientSocket):
        sock.request = request
    announce_close(request)


def announce_close(request: Any) -> None:
    """Have the answer say ``Connection: close`` where the body is too long to be read away."""
    sent = next((v for k, v in request.headers if k == "CONTENT-LENGTH"), "0")
    if sent.isdecimal() and int(sent) > MOST_DRAINED_BYTES:
        request.force_close()


def drain(request: Any, environ: Any) -> None:
    """Read away what is left of a body after the answer was sent."""
    if environ.get("gunicorn.socket") is None:
        return
    sock = request.unreader.sock
    sock.answered, sock.idle_s = True, DRAIN_S
    until, left = time.monotonic() + DRAIN_S, MOST_DRAINED_BYTES
    with contextlib.suppress(Exception):  # a client that is gone or slow, or a malformed chunk
        while left > 0 and time.monotonic() < until:
            data = request.body.read(_CHUNK)
            if not data:
                break
            left -= len(data)


class _Kept:
    """A socket whose output is kept."""

    def __init__(self, sock: Any) -> None:
        self.sock, self.data = sock, b""

    def sendall(self, data: bytes) -> None:
        self.data += data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


class ProblemWorker(ThreadWorker):  # type: ignore[misc]
    """A worker whose refusals of what is no request (408, 414, 431, 400, …) are problems, not HTML,
    and which always has threads that wait for no client."""

    def init_process(self) -> None:
        """Let half of the threads, and one at least, read what takes long."""
        READERS.most = max(self.cfg.threads // 2, 1)
        super().init_process()

    def handle(self, conn: Any) -> Any:
        """Read and answer one request of a connection."""
        if conn.parser is None:
            conn.parser = http.get_parser(self.cfg, PatientSocket(conn.sock), conn.client)
        sock = conn.parser.unreader.sock
        sock.begin()
        try:
            goes_on = super().handle(conn)
            if sock.cut is not None:  # here, not in the loop that all connections share
                close_graceful(conn.sock, LINGER_S)
                conn.close = lambda graceful=False: None
            return goes_on
        finally:
            READERS.leave()

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what could not be read, with the status that gunicorn gives it."""
        if isinstance(exc, BodyTooSlow | TooManyReaders):
            answer = cut_off(exc, req)
        else:
            kept = _Kept(client)
            super().handle_error(req, kept, addr, exc)
            answer = as_problem(kept.data, str(exc))
        with contextlib.suppress(OSError):
            client.sendall(answer)


def cut_off(error: BodyTooSlow | TooManyReaders, request: Any) -> bytes:
    """What a client is told whose request was not read to its end; nothing after its answer."""
    if request is not None and request.unreader.sock.answered:
        return b""
    if isinstance(error, BodyTooSlow):
        return as_problem(b"HTTP/1.1 408", str(error))
    return as_problem(b"HTTP/1.1 503", str(error), (f"Retry-After: {RETRY_S}",))


def as_problem(answer: bytes, why: str, headers: tuple[str, ...] = ()) -> bytes:
    """An answer of the server as RFC 9457 problem.

    Examples
    --------
    >>> as_problem(b"HTTP/1.1 414 URI Too Long...", "is too large").split(b"\\r\\n")[0]
    b'HTTP/1.1 414 URI Too Long'
    """
    head = answer.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    status = int(head[1][:3]) if len(head) > 1 and head[1][:3].isdecimal() else 500
    title = HTTPStatus(status).phrase if status != 414 else "URI Too Long"
    said = why if status < 500 or status in (501, 503) else "something broke here"
    body = json.dumps({"type": TYPE_PREFIX + title.lower().replace(" ", "-"), "title": title,
                       "status": status, "detail": said or title, "instance": "", "errors": []})
    lines = (f"HTTP/1.1 {status} {title}", "Connection: close", f"Content-Type: {CONTENT_TYPE}",
             f"Content-Length: {len(body.encode())}", *headers, "", body)
    return "\r\n".join(lines).encode()
