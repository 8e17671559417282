"""``/budgets`` and ``flask budget``: the contract, errors with pointers, CSV, workbook."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from budget_requests import IMPOSSIBLE, request, workload
from flask import Flask
from flask.testing import FlaskClient
from openpyxl import load_workbook

URL = "/api/v1/budgets"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "budget.json"


@pytest.fixture
def made(client: FlaskClient) -> dict[str, Any]:
    response = client.post(URL, json=request(workload(name="a", growth_per_month=0.05),
                                             IMPOSSIBLE, name="Year"))
    assert response.status_code == 201
    document: dict[str, Any] = response.json
    assert response.headers["Location"].endswith(f"/budgets/{document['id']}")
    return document


def test_it_is_stored_as_answered(client: FlaskClient, made: dict[str, Any]) -> None:
    again = client.get(f"{URL}/{made['id']}")
    assert again.json == made
    held = client.get(f"{URL}/{made['id']}", headers={"If-None-Match": again.headers["ETag"]})
    assert held.status_code == 304
    listed = client.get(f"{URL}?q=year").json
    assert made["id"] in [row["id"] for row in listed["items"]]


def test_the_echo_makes_it_again(client: FlaskClient, made: dict[str, Any]) -> None:
    again = client.post(URL, json=made["request"]).json
    for part in ("request", "totals", "months", "fleets", "gpu_lines"):
        assert again[part] == made[part]


def test_charges_as_csv(client: FlaskClient, made: dict[str, Any]) -> None:
    response = client.get(f"{URL}/{made['id']}", headers={"Accept": "text/csv"})
    assert response.content_type.startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert float(sum(float(r["EffectiveCost"]) for r in rows)) == pytest.approx(
        made["totals"]["effective_cost"], abs=0.1)
    assert rows[0]["ChargePeriodStart"] == "2027-01-01T00:00:00Z"
    assert client.get(f"{URL}/{made['id']}?format=csv").text == response.text


def test_a_later_price_changes_nothing(client: FlaskClient, made: dict[str, Any]) -> None:
    """The workbook and the charges follow from what was stored."""
    first = client.get(f"{URL}/{made['id']}/workbook").data
    assert client.get(f"{URL}/{made['id']}/workbook").data == first
    book = load_workbook(io.BytesIO(first), data_only=True)
    assert book["Summary"]["A5"].value == pytest.approx(made["totals"]["effective_cost"],
                                                         abs=0.1)


def test_delete(client: FlaskClient, made: dict[str, Any]) -> None:
    url = f"{URL}/{made['id']}"
    assert client.delete(url, headers={"If-Match": '"stale"'}).status_code == 412
    assert client.delete(url).status_code == 204
    for path in (url, f"{url}/workbook"):
        missing = client.get(path)
        assert missing.status_code == 404
        assert missing.content_type == "application/problem+json"


CASES: list[tuple[dict[str, Any], str]] = [
    (request(workload(), workload(), workload(growth_per_month="3%")),
     "/workloads/2/growth_per_month"),
    (request(workload(growth_per_month=1.5)), "/workloads/0/growth_per_month"),
    (request(workload(growth_per_month=-0.9), scenarios=[
        {"name": "base"}, {"name": "low", "growth_added_per_month": -0.1}]),
     "/workloads/0/growth_per_month"),
    (request(workload(seasonality=[1] * 11)), "/workloads/0/seasonality"),
    (request(workload(seasonality=[1] * 11 + [-1])), "/workloads/0/seasonality/11"),
    (request(workload(launches=[{"month": 61, "multiplier": 2}])),
     "/workloads/0/launches/0/month"),
    (request(workload(), workload(verify=True)), "/workloads/1/verify"),
    (request(workload(starts_month=13)), "/workloads/0/starts_month"),
    (request(workload(starts_month=5, ends_month=4)), "/workloads/0/ends_month"),
    (request(workload(model="nothing-7b")), "/workloads/0/model"),
    (request(workload(), workload(gpus=["h100-sxm-80gb", "h1000"])), "/workloads/1/gpus/1"),
    (request(workload(slo={})), "/workloads/0/slo"),
    (request(workload(workload="nobody")), "/workloads/0/workload"),
    (request(workload(limits={"layouts": [{"tensor_parallel": 3}]})),
     "/workloads/0/limits/layouts/0/tensor_parallel"),
    (request(workload(prompt=200_000)), "/workloads/0/workload/prompt_tokens"),
    (request(workload(pricing={"provider": "nobody"})), "/workloads/0/pricing/provider"),
    (request(workload(measured={"prefill": {"requests_per_second": 1}})),
     "/workloads/0/measured"),
    (request(months=11), "/months"), (request(months=61), "/months"),
    ({"workloads": []}, "/workloads"), ({}, "/workloads"),
    (request(start="2027-13"), "/start"), (request(currency="EUR"), "/units_per_usd"),
    (request(currency="euro"), "/currency"), (request(units_per_usd=2), "/units_per_usd"),
    (request(regions=0), "/regions"), (request(regions=["a", "a"]), "/regions/1"),
    (request(scenarios=[{"name": "low"}]), "/scenarios"),
    (request(commitments={"terms": [{"term_months": 12}]}), "/commitments/terms/0/discount"),
    (request(commitments={"terms": [{"term_months": 12, "usd_per_gpu_hour": {"h1": 1}}]}),
     "/commitments/terms/0/usd_per_gpu_hour/h1"),
    (request(owned={"servers": [{"gpu": "h1", "usd_per_server": 1}]}), "/owned/servers/0/gpu"),
    (request(owned={"existing_gpus": {"h1": 1}}), "/owned/existing_gpus/h1"),
    (request(what_if=[{"name": "x", "gpu": "h1"}]), "/what_if/0/gpu"),
    (request(what_if=[{"name": "x", "from_month": 13}]), "/what_if/0/from_month"),
    (request(what_if=[{"name": "x", "usd_per_gpu_hour": 1}]), "/what_if/0/usd_per_gpu_hour"),
    (request(commitments={"terms": [{"term_months": 12, "discount": 0.3,
                                     "usd_per_gpu_hour": {"h100-sxm-80gb": 1}}]}),
     "/commitments/terms/0/discount"),
    (request(workload(ends_month=13), months=12), "/workloads/0/ends_month"),
    (request(actuals=[{"month": 1}, {"month": 1}]), "/actuals"),
    (request(headroom=-0.1), "/headroom"), (request(unknown=1), "/unknown"),
    (request(workload(), workload(fleet="x"), workload(fleet="x", model="qwen3-32b")),
     "/workloads/2/fleet"),
]


@pytest.mark.parametrize(("body", "pointer"), CASES, ids=[f"{i} {p}" for i, (_, p) in
                                                          enumerate(CASES)])
def test_bad_input_is_pointed_at(client: FlaskClient, body: dict[str, Any], pointer: str) -> None:
    response = client.post(URL, json=body)
    assert response.status_code == 422, response.json
    assert response.content_type == "application/problem+json"
    assert pointer in [e["pointer"] for e in response.json["errors"]]


def test_the_example(client: FlaskClient) -> None:
    document = client.post(URL, json=json.loads(EXAMPLE.read_text("utf-8"))).json
    assert document["infeasible"] == []
    assert document["billing_currency"] == "EUR"
    assert {f["model"] for f in document["fleets"]} == {
        "llama-3.1-70b", "qwen2.5-coder-7b"}
    assert all(w["total"] is not None for w in document["what_if"])


def test_the_command(app: Flask, tmp_path: Path) -> None:
    file, book = tmp_path / "b.json", tmp_path / "b.xlsx"
    file.write_text(json.dumps(request(workload(name="a"), IMPOSSIBLE)), encoding="utf-8")
    runner = app.test_cli_runner()
    shown = runner.invoke(args=["budget", str(file), "--workbook", str(book)])
    assert shown.exit_code == 0, shown.output
    assert "Total" in shown.output
    assert "not served" in shown.output
    assert book.read_bytes()[:2] == b"PK"
    table = runner.invoke(args=["budget", str(file), "--csv"])
    assert table.output.startswith("BilledCost,")
    whole = runner.invoke(args=["budget", str(file), "--json"])
    assert json.loads(whole.output)["totals"]["peak_gpus"] > 0
    file.write_text(json.dumps({"workloads": [{}]}), encoding="utf-8")
    refused = runner.invoke(args=["budget", str(file)])
    assert refused.exit_code == 2
    assert "/workloads/0/model" in refused.output

TRACE = "timestamp,prompt_tokens,output_tokens\n" + "".join(
    f"{i / 5},{300 + i},{20 + i % 50}\n" for i in range(300))


def test_a_stored_trace_is_found(app: Flask, client: FlaskClient, tmp_path: Path) -> None:
    client.post("/api/v1/traces?slug=budgeted", data=TRACE, content_type="text/csv")
    body = request({**workload(), "workload": {"trace": "budgeted"}})
    answer = client.post(URL, json=body)
    assert answer.status_code == 201, answer.text
    stated = answer.json["request"]["workloads"][0]["workload"]
    assert stated["trace"] == "budgeted"
    assert stated["requests_per_second"] == pytest.approx(5, rel=0.1), "one each 0.2 s"
    file = tmp_path / "budget.json"
    file.write_text(json.dumps(body), "utf-8")
    shown = app.test_cli_runner().invoke(args=["budget", str(file), "--json"])
    assert shown.exit_code == 0, shown.output
    body["workloads"][0]["workload"] = {"trace": "nowhere"}
    missing = client.post(URL, json=body)
    assert missing.status_code == 422
    assert [e["pointer"] for e in missing.json["errors"]] == ["/workloads/0/workload/trace"]
