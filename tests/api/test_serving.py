"""What the server itself answers: problems, and connections that go on or say that they end."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("gunicorn")
ROOT = Path(__file__).resolve().parents[2]
BODY = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server of its own; its port."""
    folder = tmp_path_factory.mktemp("served")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    env = {**os.environ, "DATABASE_URL": f"sqlite:///{folder}/x.sqlite3",
           "PLANNER_EXECUTOR": "none"}
    command = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{number}", "--workers", "1",
               "--threads", "4", "--no-control-socket", "app:create_app()"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
        try:
            _wait(number)
            yield number
        finally:
            server.terminate()
            server.wait(30)
    shutil.rmtree(folder, ignore_errors=True)


def _wait(number: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", number), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the server did not start")


@pytest.mark.parametrize(("sent", "status"), [
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 9000 + b"\r\n\r\n", 431),
    (b"POST /api/v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n", 400),
    (b"nonsense\r\n\r\n", 400),
])
def test_what_is_no_request_is_a_problem(port: int, sent: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(sent)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        found = json.loads(answer.read())
    assert (answer.status, found["status"]) == (status, status)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Connection"] == "close"
    assert found["title"]
    assert found["detail"]


def test_a_connection_goes_on_after_a_body_that_was_too_large(port: int) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(3):
        for body, status in ((b"x" * 7_000_000, 413), (b"{}", 422)):
            client.request("POST", "/api/v1/plans", body, BODY)
            answer = client.getresponse()
            assert json.loads(answer.read())["status"] == answer.status == status
            assert answer.headers["Connection"] == "keep-alive"
    client.close()


def test_a_body_too_large_to_be_read_away_ends_the_connection(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(b"POST /api/v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
                       b"\r\nContent-Length: 900000000\r\n\r\n{")
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert answer.status == 413
        assert answer.headers["Connection"] == "close"


UPLOAD = (b"POST /api/v1/traces?slug=%s HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\n"
          b"Content-Length: %d\r\n\r\n")
PLAN = (b"POST /api/v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 99\r\n\r\n{")


def _answer(client: socket.socket) -> tuple[int, dict[str, str], dict[str, object]]:
    """Status, headers and body of the one answer that a client gets."""
    answer = http.client.HTTPResponse(client)
    answer.begin()
    return answer.status, dict(answer.headers), json.loads(answer.read())


def _healthy_s(port: int) -> float:
    """How long a look at the health of the server takes [s]."""
    began = time.monotonic()
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    client.request("GET", "/healthz")
    assert client.getresponse().read() == b'{"status":"ok"}\n'
    client.close()
    return time.monotonic() - began


@pytest.mark.parametrize("sent", [
    UPLOAD % (b"a", 1000) + b"timestamp,prompt_tokens,output_tokens\n", PLAN,
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n"], ids=["trace", "plan", "headers"])
def test_clients_that_fall_silent_do_not_hold_the_threads(port: int, sent: bytes) -> None:
    clients = [socket.create_connection(("127.0.0.1", port), 40) for _ in range(8)]
    for client in clients:
        client.sendall(sent)
    assert max(_healthy_s(port) for _ in range(5)) < 6
    began = time.monotonic()
    answers = [_answer(client) for client in clients]
    assert time.monotonic() - began < 30
    assert {status for status, _, _ in answers} == {408, 503}
    for status, headers, body in answers:
        assert headers["Content-Type"] == "application/problem+json"
        assert body["status"] == status
        assert ("Retry-After" in headers) == (status == 503)
        assert status == 503 or headers["Connection"] == "close"
    for client in clients:
        assert client.recv(100) == b"", "nothing after the answer, and the connection ends"
        client.close()


def test_a_client_that_trickles_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from planner import serving
    from planner.reading import READERS, BodyTooSlow

    monkeypatch.setattr(serving, "LEAST_S", 1.5)
    near, far = socket.socketpair()
    ended = threading.Event()

    def trickle() -> None:
        while not ended.wait(0.1):
            far.sendall(b"1")

    sender = threading.Thread(target=trickle)
    sender.start()
    began, patient = time.monotonic(), serving.PatientSocket(near)
    try:
        with pytest.raises(BodyTooSlow, match=r"and 1.5 s and a second per 10,000 bytes in all"):
            list(iter(lambda: patient.recv(100), b""))
        with pytest.raises(BodyTooSlow):
            patient.recv(100)
    finally:
        ended.set()
        sender.join()
        READERS.leave()
        near.close()
        far.close()
    assert 1.4 < time.monotonic() - began < 6


def test_a_body_that_comes_in_pieces_is_read(port: int) -> None:
    body = b"timestamp,prompt_tokens,output_tokens\n1,5,5\n2,5,5\n4,5,x\n"
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(UPLOAD % (b"pieces", len(body)))
        for start in range(0, len(body), 20):
            time.sleep(0.8)
            client.sendall(body[start:start + 20])
        status, headers, found = _answer(client)
        assert (status, headers["Connection"]) == (422, "keep-alive")
        assert "row 3 has output_tokens" in str(found["detail"])
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert _answer(client)[2] == {"status": "ok"}


def test_large_uploads_at_once_leave_threads_for_others(port: int) -> None:
    rows = b"timestamp,prompt_tokens,output_tokens\n" + b"1,5,5\n" * 400_000 + b"2,5,0\n"
    clients = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(5)]
    senders = [threading.Thread(target=client.sendall, args=(UPLOAD % (b"big", len(rows)) + rows,))
               for client in clients]
    for sender in senders:
        sender.start()
    assert max(_healthy_s(port) for _ in range(10)) < 5
    statuses = sorted(_answer(client)[0] for client in clients)
    for sender, client in zip(senders, clients, strict=True):
        sender.join()
        client.close()
    assert statuses[:2] == [422, 422], "two threads of four read uploads"
    assert set(statuses[2:]) <= {422, 503}
    assert 503 in statuses
