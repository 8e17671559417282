"""What the server itself answers: problems, and connections that go on or say that they end."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
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
