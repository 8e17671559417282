"""Every failure is a problem: the right status, type and pointer, and never HTML."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app import create_app

JSON = "application/json"


def assert_problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.content_type == "application/problem+json"
    body: dict[str, Any] = answer.json
    assert set(body) == {"type", "title", "status", "detail", "instance", "errors"}
    assert (body["status"], body["type"]) == (status, f"/api/v1/problems#{code}")
    return body


@pytest.mark.parametrize(("method", "url", "arguments", "status", "code"), [
    ("get", "/nothing", {}, 404, "not-found"),
    ("get", "/api/v1/gpus/nothing", {}, 404, "not-in-catalog"),
    ("get", "/api/v1/plans/nothing", {}, 404, "not-found"),
    ("get", "/api/v1/plans/nothing/points", {}, 404, "not-found"),
    ("get", "/api/v1/plans/nothing/workbook", {}, 404, "not-found"),
    ("delete", "/api/v1/gpus", {}, 405, "method-not-allowed"),
    ("post", "/api/v1/gpus", {"data": "{"}, 415, "unsupported-media-type"),
    ("post", "/api/v1/gpus", {"data": "a=1", "content_type": "text/plain"}, 415,
     "unsupported-media-type"),
    ("post", "/api/v1/gpus", {"data": "{", "content_type": JSON}, 400, "malformed-json"),
    ("post", "/api/v1/gpus", {"data": b"\xff\xfe\xfd", "content_type": JSON}, 400,
     "malformed-json"),
    ("post", "/api/v1/gpus", {"data": "", "content_type": JSON}, 400, "malformed-json"),
    ("post", "/api/v1/gpus", {"data": "[" * 100_000, "content_type": JSON}, 400,
     "malformed-json"),
    ("post", "/api/v1/gpus", {"data": "9" * 5000, "content_type": JSON}, 400, "malformed-json"),
    ("post", "/api/v1/gpus", {"data": "[]", "content_type": JSON}, 422, "invalid-value"),
    ("post", "/api/v1/gpus", {"data": "null", "content_type": JSON}, 422, "invalid-value"),
    ("post", "/api/v1/gpus", {"data": " " * 5_000_001, "content_type": JSON}, 413,
     "request-entity-too-large"),
    ("get", "/api/v1/gpus?limit=x", {}, 422, "invalid-value"),
    ("put", "/api/v1/gpus/l40s", {"data": "{}", "content_type": JSON}, 428,
     "precondition-required"),
    ("put", "/api/v1/gpus/nothing", {"data": "{", "content_type": JSON}, 404, "not-in-catalog"),
    ("post", "/api/v1/plans", {"data": "{}", "content_type": JSON}, 422, "invalid-value"),
])
def test_failures_are_problems(client: FlaskClient, method: str, url: str,
                               arguments: dict[str, Any], status: int, code: str) -> None:
    body = assert_problem(getattr(client, method)(url, **arguments), status, code)
    assert body["instance"] == url.split("?")[0]


@pytest.mark.parametrize(("data", "words"), [
    (b'{"slug": "a\xff"}', "byte 12 (0xff) is not UTF-8 text"),
    ('{"slug": "a"}'.encode("utf-16"), "byte 1 (0xff) is not UTF-8 text"),
    (b"[" * 100_000, "its lists and objects are nested too deeply"),
    (b"9" * 5000, "a number in it has more than 4,300 digits"),
    (b'{"slug":\n nothing}', "Expecting value at line 2, column 2"),
    (b"", "Expecting value at line 1, column 1"),
])
def test_what_is_not_json_says_why(client: FlaskClient, data: bytes, words: str) -> None:
    answer = client.post("/api/v1/gpus", data=data, content_type=JSON)
    body = assert_problem(answer, 400, "malformed-json")
    assert body["detail"] == f"the body is not JSON: {words}"
    assert body["errors"] == [{"pointer": "", "message": words}]


def test_a_byte_order_mark_is_no_fault(client: FlaskClient) -> None:
    answer = client.post("/api/v1/gpus", data=b"\xef\xbb\xbf{}", content_type=JSON)
    assert_problem(answer, 422, "invalid-value")


def test_a_body_in_chunks_has_the_same_limit(client: FlaskClient) -> None:
    answer = client.post("/api/v1/gpus", input_stream=io.BytesIO(b"{}" + b" " * 5_000_000),
                         content_type=JSON, headers={"Transfer-Encoding": "chunked"},
                         environ_overrides={"wsgi.input_terminated": True})
    body = assert_problem(answer, 413, "request-entity-too-large")
    assert "at most 5,000,000 bytes" in body["detail"]
    assert body["errors"][0]["pointer"] == ""


def test_405_says_what_is_allowed(client: FlaskClient) -> None:
    assert "GET" in client.delete("/api/v1/gpus").headers["Allow"]


def test_a_defect_is_a_problem_without_its_trace(client: FlaskClient, stub_planner: None,
                                                 plan_body: dict[str, Any],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(sys.modules["planner.planning"], "make_plan", broken)
    answer = client.post("/api/v1/plans", json=plan_body)
    assert_problem(answer, 500, "internal-error")
    assert "secret" not in answer.text


def test_an_unmigrated_database_is_a_problem(tmp_path: Any) -> None:
    app = create_app({"DATABASE_URL": f"sqlite:///{tmp_path}/empty.sqlite3"})
    answer = app.test_client().get("/readyz")
    assert_problem(answer, 503, "database-unavailable")
    assert answer.headers["Retry-After"]
    _dispose(app)


def _dispose(app: Flask) -> None:
    from planner.extensions import db

    with app.app_context():
        db.engine.dispose()


def test_types_are_listed(client: FlaskClient) -> None:
    types = {row["type"] for row in client.get("/api/v1/problems").json["items"]}
    assert "/api/v1/problems#unknown-architecture" in types


def test_all_errors_of_a_document_come_at_once(client: FlaskClient) -> None:
    answer = client.post("/api/v1/gpus", json={"slug": 1, "memory_gib": -1})
    pointers = {e["pointer"] for e in assert_problem(answer, 422, "invalid-value")["errors"]}
    assert {"/slug", "/name", "/memory_gib", "/dense_tflops"} <= pointers


@pytest.mark.parametrize("url", ["/healthz", "/readyz"])
def test_probes(client: FlaskClient, url: str) -> None:
    assert client.get(url).json["status"] == "ok"


def test_metrics_count_requests(client: FlaskClient) -> None:
    client.get("/healthz")
    text = client.get("/metrics").text
    assert 'planner_requests_total{endpoint="health.healthz",method="GET",status="200"}' in text


def test_a_request_is_logged_with_its_id(client: FlaskClient,
                                         capsys: pytest.CaptureFixture[str], app: Flask) -> None:
    from planner.api.observe import _configure_log

    _configure_log("info", "json")
    answer = client.get("/healthz", headers={"X-Request-Id": "abc-1"})
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    _configure_log("error", "json")
    assert answer.headers["X-Request-Id"] == line["request_id"] == "abc-1"
    assert (line["path"], line["status"]) == ("/healthz", 200)


def test_an_unsafe_request_id_is_replaced(client: FlaskClient) -> None:
    sent = 'x"} forged'
    assert client.get("/healthz", headers={"X-Request-Id": sent}).headers["X-Request-Id"] != sent


@pytest.mark.parametrize(("text", "wanted"), [
    ('{"slug": "a", "slug": "b"}', ["/slug"]),
    ('{"slug": "a", "dense_tflops": {"bf16": 1, "fp8": 2, "bf16": 3}}', ["/dense_tflops/bf16"]),
    ('{"a": {"b": 1, "b": 2}, "a": {"c": [{"d/e": 1, "d/e": 1}]}}', ["/a", "/a/c/0/d~1e"])])
def test_a_key_that_is_given_twice_is_refused(client: FlaskClient, text: str,
                                              wanted: list[str]) -> None:
    answer = client.post("/api/v1/gpus", data=text, content_type=JSON)
    body = assert_problem(answer, 422, "invalid-value")
    assert [e["pointer"] for e in body["errors"]] == wanted
    assert {e["message"] for e in body["errors"]} == {"is given more than once"}


@pytest.mark.parametrize("url", ["/api/v1/gpus/l40s", "/api/v1/engines/ideal",
                                 "/api/v1/models/llama-3.1-8b"])
@pytest.mark.parametrize("data", ["{}", "{", '{"slug": 5}'])
def test_a_stale_version_is_told_before_a_bad_body(client: FlaskClient, url: str,
                                                   data: str) -> None:
    stale = client.put(url, data=data, content_type=JSON, headers={"If-Match": '"old"'})
    assert_problem(stale, 412, "precondition-failed")
    tag = client.get(url).headers["ETag"]
    read = client.put(url, data=data, content_type=JSON, headers={"If-Match": tag})
    assert read.status_code in (400, 422)


def test_what_uses_a_row_is_named(client: FlaskClient) -> None:
    url = "/api/v1/gpus/l40s"
    used = client.delete(url, headers={"If-Match": client.get(url).headers["ETag"]})
    body = assert_problem(used, 409, "conflict")
    prices = client.get("/api/v1/prices?gpu=l40s&limit=500").json
    assert f"price {min(p['id'] for p in prices['items'])!r}" in body["detail"]
    if prices["total"] > 20:
        assert f"and {prices['total'] - 20} more" in body["detail"]
    assert client.get(url).status_code == 200
