"""``/workbooks``: a template out, a filled one in, plans stored all or none."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from flask import Flask
from flask.testing import FlaskClient

from app import create_app

URL = "/api/v1/workbooks"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
ROW = {"Name": "chat", "Model": "llama-3.1-8b", "Requests per second": 5,
       "Prompt tokens, mean": "1,000", "Output tokens, mean": 200, "Time to first token": "1 s",
       "GPUs": "l40s", "Set-ups": "chunked"}


def filled(client: FlaskClient, *rows: dict[str, Any]) -> bytes:
    """The template of the service with rows from row 3 on."""
    book = openpyxl.load_workbook(io.BytesIO(client.get(f"{URL}/template").data))
    page = book["Workloads"]
    place = {str(c.value).partition(" [")[0]: c.column for c in page[1]}
    for number, row in enumerate(rows, 3):
        for label, value in row.items():
            page.cell(number, place[label], value)
    target = io.BytesIO()
    book.save(target)
    return target.getvalue()


def count(client: FlaskClient) -> int:
    return int(client.get("/api/v1/plans?limit=1").json["total"])


def test_the_template(client: FlaskClient) -> None:
    first = client.get(f"{URL}/template")
    assert (first.status_code, first.mimetype) == (200, XLSX)
    assert "workloads.xlsx" in first.headers["Content-Disposition"]
    again = client.get(f"{URL}/template", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304
    assert openpyxl.load_workbook(io.BytesIO(first.data)).sheetnames == ["Workloads", "Help",
                                                                         "Lists"]


@pytest.mark.parametrize("form", ["multipart", "raw", "octets"])
def test_a_filled_template_gives_a_plan_per_row(client: FlaskClient, form: str) -> None:
    data, before = filled(client, ROW, {**ROW, "Name": "b"}), count(client)
    if form == "multipart":
        answer = client.post(URL, data={"file": (io.BytesIO(data), "mine.xlsx")})
    else:
        kind = XLSX if form == "raw" else "application/octet-stream"
        answer = client.post(URL, data=data, content_type=kind)
    assert (answer.status_code, answer.mimetype) == (200, XLSX), answer.data[:500]
    header, *rows = openpyxl.load_workbook(io.BytesIO(answer.data), data_only=True)[
        "Results"].iter_rows(values_only=True)
    lines = [dict(zip(header, row, strict=True)) for row in rows]
    assert [line["Name"] for line in lines] == ["chat", "b"]
    assert count(client) == before + 2
    stored = client.get(f"/api/v1/plans/{lines[0]['Plan']}").json
    assert stored["recommended"]["gpus"] == lines[0]["GPUs"]
    assert client.get(f"/api/v1/plans/{lines[0]['Plan']}/workbook").status_code == 200


def test_results_stand_at_the_percentile_of_the_row(client: FlaskClient) -> None:
    row = {k: v for k, v in ROW.items() if k != "Time to first token"}
    data = filled(client, {**row, "Gap between tokens": "50 ms", "Percentile": 99})
    answer = client.post(URL, data=data, content_type=XLSX)
    header, values = openpyxl.load_workbook(io.BytesIO(answer.data), data_only=True)[
        "Results"].iter_rows(values_only=True)
    line = dict(zip(header, values, strict=True))
    best = client.get(f"/api/v1/plans/{line['Plan']}").json["recommended"]
    assert (line["Percentile [%]"], line["Target, gap between tokens [ms]"]) == (99, 50)
    for label, name in (("Gap between tokens [ms]", "itl_ms"), ("TTFT [ms]", "ttft_ms")):
        assert line[label] == pytest.approx(best[name]["p99"])


def test_the_answer_as_json(client: FlaskClient) -> None:
    data = filled(client, ROW)
    for query, accept in (("?format=json", XLSX), ("", "application/json")):
        answer = client.post(URL + query, data=data, content_type=XLSX,
                             headers={"Accept": accept})
        assert answer.mimetype == "application/json"
        assert answer.json["rows"][0]["name"] == "chat"
        assert answer.json["totals"]["gpus"] == answer.json["rows"][0]["gpus"]
        assert "example row" in answer.json["notes"][0]
    assert client.post(URL, data=data, content_type=XLSX).mimetype == XLSX


def test_the_plans_are_those_of_the_same_request(client: FlaskClient) -> None:
    row = client.post(f"{URL}?format=json", data=filled(client, ROW), content_type=XLSX
                      ).json["rows"][0]
    plan = client.post("/api/v1/plans", json={
        "name": "chat", "model": "llama-3.1-8b", "gpus": ["l40s"], "setups": ["chunked"],
        "workload": {"requests_per_second": 5, "prompt_tokens": 1000, "output_tokens": 200},
        "slo": {"ttft_ms": 1000}}).json["recommended"]
    assert (row["gpus"], row["usd_per_month"], row["setup"]) == (
        plan["gpus"], plan["usd_per_month"], plan["setup"])


def test_one_bad_cell_stores_nothing(client: FlaskClient) -> None:
    before = count(client)
    bad = {**ROW, "Prompt tokens, mean": "1,5", "GPUs": "h100"}
    answer = client.post(URL, data=filled(client, ROW, bad), content_type=XLSX)
    assert (answer.status_code, answer.mimetype) == (422, "application/problem+json")
    assert {e["pointer"] for e in answer.json["errors"]} == {"/Workloads/H4", "/Workloads/S4"}
    assert count(client) == before


def test_a_fault_found_while_planning_stores_nothing(client: FlaskClient,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.api import workbook_service
    from planner.errors import InvalidValue

    made = []

    def make(request: Any, catalog: Any) -> Any:
        if made:
            raise InvalidValue("tensor_parallel 3 does not fit", "/limits/regions")
        made.append(request)
        return real(request, catalog)

    real = workbook_service.make
    monkeypatch.setattr(workbook_service, "make", make)
    before = count(client)
    answer = client.post(URL, data=filled(client, ROW, ROW), content_type=XLSX)
    assert answer.status_code == 422
    assert answer.json["errors"][0]["pointer"] == "/Workloads/AD4"
    assert count(client) == before


@pytest.mark.parametrize(("sent", "status", "words"), [
    ({"data": b"PK\x03\x04 broken", "content_type": XLSX}, 422, "damaged"),
    ({"data": b"", "content_type": XLSX}, 422, "empty"),
    ({"data": b"a,b\n1,2", "content_type": "application/octet-stream"}, 422, "CSV"),
    ({"data": b"{}", "content_type": "application/json"}, 415, "multipart/form-data"),
    ({"data": b"x", "content_type": "text/csv"}, 415, "multipart/form-data"),
    ({}, 415, "nothing"),
    ({"data": {"other": (io.BytesIO(b"x"), "x")}}, 422, "unknown field"),
    ({"data": {"file": "text"}, "content_type": "multipart/form-data"}, 422, "one file"),
    ({"data": {"file": [(io.BytesIO(b"x"), "x"), (io.BytesIO(b"y"), "y")]}}, 422, "not 2"),
    ({"data": {}, "content_type": "multipart/form-data"}, 422, "not 0"),
], ids=range(10))
def test_other_bodies(client: FlaskClient, sent: dict[str, Any], status: int, words: str) -> None:
    answer = client.post(URL, **sent)
    assert (answer.status_code, answer.mimetype) == (status, "application/problem+json")
    assert words in answer.json["detail"]


def test_too_large_a_file(database_url: str) -> None:
    app = create_app({"DATABASE_URL": database_url, "PLANNER_MAX_BODY_BYTES": 1000,
                      "PLANNER_LOG_LEVEL": "error"})
    for sent in ({"data": b"x" * 2000, "content_type": XLSX},
                 {"data": {"file": (io.BytesIO(b"x" * 2000), "x.xlsx")}}):
        answer = app.test_client().post(URL, **sent)
        assert answer.status_code == 413
        assert "PLANNER_MAX_BODY_BYTES" in answer.json["detail"]


def test_the_commands(app: Flask, client: FlaskClient, tmp_path: Path) -> None:
    run = app.test_cli_runner().invoke
    template, out = tmp_path / "t.xlsx", tmp_path / "out.xlsx"
    assert run(args=["template", str(template)]).exit_code == 0
    assert template.read_bytes() == client.get(f"{URL}/template").data
    nothing = run(args=["plan-workbook", str(template), str(out)])
    assert (nothing.exit_code, out.exists()) == (2, False)
    assert "beside the example" in nothing.stderr
    template.write_bytes(filled(client, ROW))
    before = count(client)
    found = run(args=["plan-workbook", str(template), str(out)])
    assert found.exit_code == 0, found.output
    assert "1 of 1 workloads planned" in found.stdout
    assert openpyxl.load_workbook(out).sheetnames[0] == "Summary"
    assert count(client) == before
    absent = run(args=["plan-workbook", str(tmp_path / "absent.xlsx"), str(out)])
    assert absent.stderr.startswith("error: ")
    assert len(absent.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("path", [URL, "/api/v1/traces", "/api/v1/calibrations"])
def test_a_part_without_a_name_that_can_be_read(client: FlaskClient, path: str) -> None:
    lines = []
    for name in (b'name="more"', b'name="\xff\xf7%0D\xf3\xa9"', b'', b'name="file"; filename="x"'):
        lines += [b"--b", b"Content-Disposition: form-data; " + name, b"", b"{}"]
    answer = client.post(path, data=b"\r\n".join([*lines, b"--b--", b""]),
                         content_type="multipart/form-data; boundary=b")
    assert (answer.status_code, answer.mimetype) == (422, "application/problem+json")
