"""``/traces``: uploads in every form, entity tags, and plans made from a trace."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from planner.api.simulations import EXAMPLE

PATH = "/api/v1/traces"
HEADER = "timestamp,prompt_tokens,output_tokens\n"
CSV = HEADER + "".join(f"{i / 4},{100 + i},{10 + i % 7}\n" for i in range(480))


@pytest.fixture
def trace(client: FlaskClient) -> Iterator[str]:
    """A stored trace of two minutes at four requests a second; its slug."""
    answer = client.post(f"{PATH}?slug=two-minutes&name=Two", data=CSV, content_type="text/csv")
    assert answer.status_code == 201, answer.text
    yield "two-minutes"
    drop(client, "two-minutes")


def drop(client: FlaskClient, slug: str) -> None:
    found = client.get(f"{PATH}/{slug}")
    if found.status_code == 200:
        tag = {"If-Match": found.headers["ETag"]}
        assert client.delete(f"{PATH}/{slug}", headers=tag).status_code == 204


def test_read_list_and_etag(client: FlaskClient, trace: str) -> None:
    answer = client.get(f"{PATH}/{trace}")
    body = answer.json
    assert body["requests"] == 480
    assert body["requests_per_second_peak"] == body["requests_per_second_mean"] == 4.008
    assert body["workload"]["requests_per_second"] == 4.008
    assert (body["name"], body["format"], body["skipped"]) == ("Two", "plain", 0)
    tag = answer.headers["ETag"]
    assert client.get(f"{PATH}/{trace}", headers={"If-None-Match": tag}).status_code == 304
    listed = client.get(PATH, query_string={"q": "TWO-"}).json
    assert listed["total"] == 1
    assert "workload" not in listed["items"][0]
    assert client.get(f"{PATH}/nothing").status_code == 404
    assert client.delete(f"{PATH}/{trace}").status_code == 428
    assert client.delete(f"{PATH}/{trace}", headers={"If-Match": '"old"'}).status_code == 412


def test_the_rows_come_back(client: FlaskClient, trace: str) -> None:
    answer = client.get(f"{PATH}/{trace}/requests")
    assert answer.mimetype == "text/csv"
    assert answer.text.splitlines()[:2] == ["timestamp,prompt_tokens,output_tokens", "0.0,100,10"]
    again = client.post(f"{PATH}?slug=again", data=answer.data, content_type="text/csv").json
    assert {**again, "slug": 0, "name": 0} == {**client.get(f"{PATH}/{trace}").json, "slug": 0,
                                               "name": 0}
    drop(client, "again")


@pytest.mark.parametrize("kind", ["text/csv", "application/gzip", "application/octet-stream"])
def test_raw_bodies(client: FlaskClient, kind: str) -> None:
    data = CSV.encode() if kind == "text/csv" else gzip.compress(CSV.encode())
    answer = client.post(f"{PATH}?slug=raw", data=data, content_type=kind)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == f"{PATH}/raw"
    drop(client, "raw")


def test_forms(client: FlaskClient) -> None:
    form = {"file": (io.BytesIO(gzip.compress(CSV.encode())), "My Trace.csv.gz"), "name": "Mine"}
    answer = client.post(PATH, data=form)
    assert answer.status_code == 201, answer.text
    assert (answer.json["slug"], answer.json["name"]) == ("my-trace", "Mine")
    drop(client, "my-trace")
    empty = client.post(PATH, data={"slug": "x"}, content_type="multipart/form-data")
    assert empty.json["errors"][0]["pointer"] == "/file"
    wrong = {"file": (io.BytesIO(b""), "a.csv"), "colour": "red"}
    assert client.post(PATH, data=wrong).json["errors"][0]["pointer"] == "/colour"


def test_replace(client: FlaskClient, trace: str) -> None:
    path, csv = f"{PATH}/{trace}", {"data": CSV + "121,1,1\n", "content_type": "text/csv"}
    assert client.put(path, **csv).status_code == 428
    tag = client.get(path).headers["ETag"]
    answer = client.put(path, headers={"If-Match": tag}, **csv)
    assert (answer.status_code, answer.json["requests"]) == (200, 481)
    assert client.put(path, headers={"If-Match": tag}, **csv).status_code == 412


BAD = [
    (CSV, "text/csv", "?slug=two-minutes", 409, "slug"), (CSV, "text/csv", "", 422, "slug"),
    (CSV, "text/csv", "?slug=A b", 422, "slug"), (CSV, "image/png", "?slug=a", 415, None),
    (CSV, "text/csv", "?slug=a&skip_empty=maybe", 422, "skip_empty"),
    (CSV, "text/csv", "?slug=a&time_unit=h", 422, "time_unit"),
    (CSV, "text/csv", "?slug=a&colour=red", 422, "colour"),
    ("", "text/csv", "?slug=a", 422, ""),
    (HEADER + "2,1,1\n1,1,1\n", "text/csv", "?slug=a", 422, "/rows/2/timestamp"),
    (HEADER + "2,1,0\n", "text/csv", "?slug=a", 422, "/rows/1/output_tokens"),
    ("a,b\n", "text/csv", "?slug=a", 422, "/timestamp"),
]


@pytest.mark.parametrize(("data", "kind", "query", "status", "pointer"), BAD)
@pytest.mark.usefixtures("trace")
def test_refusals(client: FlaskClient, data: str, kind: str, query: str, status: int,
                  pointer: str | None) -> None:
    answer = client.post(PATH + query, data=data, content_type=kind)
    assert answer.status_code == status, answer.text
    assert answer.mimetype == "application/problem+json"
    if pointer is not None:
        row = answer.json["errors"][0]
        assert row.get("pointer", row.get("parameter")) == pointer
        assert ("parameter" in row) == (pointer.isidentifier())


@pytest.mark.usefixtures("trace")
def test_options_are_named_where_they_were_given(client: FlaskClient) -> None:
    """Those of the query as parameters, those of a form as its fields."""
    def sent(query: str, **form: str) -> Any:
        file = {"file": (io.BytesIO(CSV.encode()), "a.csv")}
        answer = client.post(PATH + query, data={**file, **form})
        return answer.status_code, answer.json["errors"][0].items() - {
            ("message", answer.json["errors"][0]["message"])}

    assert sent("", slug="A b") == (422, {("pointer", "/slug")})
    assert sent("?slug=A b") == (422, {("parameter", "slug")})
    assert sent("", slug="two-minutes") == (409, {("pointer", "/slug")})
    assert sent("?slug=two-minutes") == (409, {("parameter", "slug")})
    assert sent("?time_unit=h", slug="b") == (422, {("parameter", "time_unit")})


def test_too_large(app: Flask, client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(app.config, "PLANNER_MAX_TRACE_BYTES", 100_000)
    text = HEADER + "".join(f"{i},1,1\n" for i in range(30_000))
    url = f"{PATH}?slug=large"
    for answer in (
            client.post(url, data=text, content_type="text/csv"),
            client.post(url, data=gzip.compress(text.encode()), content_type="application/gzip"),
            client.post(url, data={"file": (io.BytesIO(text.encode()), "a.csv")}),
            client.post(url, input_stream=io.BytesIO(text.encode()), content_type="text/csv",
                        headers={"Transfer-Encoding": "chunked"},
                        environ_overrides={"wsgi.input_terminated": True})):
        assert answer.status_code == 413, answer.text
        assert "PLANNER_MAX_TRACE_BYTES" in answer.json["detail"]
    monkeypatch.setitem(app.config, "PLANNER_MAX_TRACE_ROWS", 10)
    answer = client.post(url, data=CSV, content_type="text/csv")
    assert (answer.status_code, "more than 10 rows" in answer.text) == (413, True)


def test_a_larger_trace_than_other_bodies_may_be(client: FlaskClient) -> None:
    text = HEADER + "".join(f"{i}.000000000000000000000,1000000,1000000\n" for i in range(120_000))
    assert len(text) > 5_000_000
    answer = client.post(f"{PATH}?slug=large", data=text, content_type="text/csv")
    assert answer.status_code == 201, answer.text
    drop(client, "large")


@pytest.mark.usefixtures("stub_planner")
class TestPlans:
    def body(self, **workload: Any) -> dict[str, Any]:
        return {"model": "llama-3.1-8b", "workload": workload, "slo": {"tpot_ms": 50}}

    def post(self, client: FlaskClient, **workload: Any) -> Any:
        return client.post("/api/v1/plans", json=self.body(**workload))

    def test_a_trace_gives_what_is_not_given(self, client: FlaskClient, trace: str) -> None:
        answer = self.post(client, trace=trace)
        assert answer.status_code == 201, answer.text
        workload = answer.json["request"]["workload"]
        stored = client.get(f"{PATH}/{trace}").json["workload"]
        assert {k: workload[k] for k in stored} == stored
        assert workload["trace"] == trace
        sources = {a["name"]: a["source"] for a in answer.json["assumptions"]}
        assert sources["requests_per_second"] == f"busiest minute of trace {trace}"
        other = self.post(client, trace=trace, requests_per_second=9, output_tokens=50).json
        workload = other["request"]["workload"]
        assert workload["requests_per_second"] == 9
        assert workload["output_tokens"] == 50
        assert workload["prompt_tokens"] == stored["prompt_tokens"]

    def test_the_echo_needs_the_trace_no_more(self, client: FlaskClient, trace: str) -> None:
        first = self.post(client, trace=trace).json["request"]
        drop(client, trace)
        again = client.post("/api/v1/plans", json=first)
        assert again.status_code == 201, again.text
        assert again.json["request"] == first

    def test_an_unknown_trace(self, client: FlaskClient) -> None:
        answer = self.post(client, trace="nothing")
        assert answer.status_code == 422
        assert answer.json["errors"] == [{"pointer": "/workload/trace",
                                          "message": "no trace 'nothing' is stored"}]


def test_a_trace_that_waiting_simulations_read_stays(client: FlaskClient) -> None:
    text = "timestamp,prompt_tokens,output_tokens\n" + "".join(
        f"{i},{300 + i},{20 + i % 5}\n" for i in range(50))
    made = client.post("/api/v1/traces?slug=waited-for", data=text, content_type="text/csv")
    tag = {"If-Match": made.headers["ETag"]}
    body = {k: v for k, v in EXAMPLE.items() if k not in ("workload", "requests")}
    job = client.post("/api/v1/simulations", json={**body, "trace": "waited-for"})
    assert job.status_code == 202, job.text
    refused = client.delete("/api/v1/traces/waited-for", headers=tag)
    assert refused.status_code == 409
    assert f"simulation '{job.json['id']}' (queued)" in refused.json["detail"]
    assert client.delete(f"/api/v1/jobs/{job.json['id']}").status_code < 300
    assert client.delete("/api/v1/traces/waited-for", headers=tag).status_code == 204
