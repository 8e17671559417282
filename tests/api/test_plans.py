"""Plans and estimates over HTTP, with a stub in the planner's place."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

pytestmark = pytest.mark.usefixtures("stub_planner")


@pytest.fixture
def plan(client: FlaskClient, plan_body: dict[str, Any]) -> Any:
    return client.post("/api/v1/plans", json=plan_body)


def test_a_plan_is_made_and_stored(client: FlaskClient, plan: Any) -> None:
    assert plan.status_code == 201
    body = plan.json
    assert list(body)[:3] == ["id", "created_at", "request"]
    assert set(body) == {"id", "created_at", "request", "recommended", "options", "infeasible",
                         "advice", "assumptions"}
    assert body["created_at"].endswith("Z")
    assert plan.headers["Location"] == f"/api/v1/plans/{body['id']}"
    read = client.get(plan.headers["Location"])
    assert read.json == body
    assert read.headers["ETag"] == plan.headers["ETag"]


def test_the_request_comes_back_with_its_defaults(plan: Any, plan_body: dict[str, Any]) -> None:
    request = plan.json["request"]
    assert request["workload"]["prompt_tokens"] == plan_body["workload"]["prompt_tokens"]
    assert request["slo"] == {"ttft_ms": 1000, "tpot_ms": 50, "percentile": 90}
    assert request["limits"]["target_utilization"] == 0.8
    assert request["pricing"]["commitment"] == "on_demand"
    assert len(request["gpus"]) == 6


def test_what_is_not_a_number_becomes_null(plan: Any) -> None:
    assert plan.json["recommended"]["ttft_ms"]["p99"] is None


def test_reading_assumptions_join_the_planners(client: FlaskClient,
                                               plan_body: dict[str, Any]) -> None:
    workload = plan_body["workload"]
    del workload["requests_per_second"]
    workload.update(requests_per_day=86400, peak_hour_share=0.1)
    body = client.post("/api/v1/plans", json=plan_body).json
    assert [a["name"] for a in body["assumptions"]] == ["requests_per_second", "pue"]


def test_a_plan_from_a_saved_workload(client: FlaskClient, plan_body: dict[str, Any]) -> None:
    saved = {"slug": "saved-chat", "workload": plan_body["workload"], "slo": {"ttft_ms": 700}}
    made = client.post("/api/v1/workloads", json=saved)
    plan = client.post("/api/v1/plans", json={"model": "tiny", "workload": "saved-chat"})
    assert plan.status_code == 201, plan.text
    assert plan.json["request"]["slo"] == {"ttft_ms": 700, "percentile": 90}
    assert plan.json["request"]["workload"]["requests_per_second"] == 2
    client.delete(made.headers["Location"], headers={"If-Match": made.headers["ETag"]})
    answer = client.post("/api/v1/plans", json={"model": "tiny", "workload": "saved-chat"})
    assert (answer.status_code, answer.json["errors"][0]["pointer"]) == (422, "/workload")


def test_too_long_a_context(client: FlaskClient, plan_body: dict[str, Any]) -> None:
    plan_body["workload"]["prompt_tokens"] = 9000
    answer = client.post("/api/v1/plans", json=plan_body)
    assert answer.status_code == 422
    assert answer.json["type"].endswith("#context-too-long")
    assert answer.json["errors"][0]["pointer"] == "/workload/prompt_tokens"


def test_plans_are_listed_newest_first(client: FlaskClient, plan: Any,
                                       plan_body: dict[str, Any]) -> None:
    newer = client.post("/api/v1/plans", json={**plan_body, "name": "newer"}).json
    page = client.get("/api/v1/plans?limit=2").json
    assert [p["id"] for p in page["items"]] == [newer["id"], plan.json["id"]]
    assert page["items"][0] == {"id": newer["id"], "created_at": newer["created_at"],
                                "name": "newer", "model": "tiny", "options": 2,
                                "setup": "chunked", "gpus": 4, "usd_per_month": 5840.0}
    assert client.get("/api/v1/plans?q=newer&model=tiny").json["total"] >= 1


def test_a_plan_outlives_changes_of_the_catalog(client: FlaskClient, plan: Any) -> None:
    url = "/api/v1/gpus/h100-sxm-80gb"
    before = client.get(url)
    tag = client.put(url, json={**before.json, "notes": "changed"},
                     headers={"If-Match": before.headers["ETag"]}).headers["ETag"]
    assert client.get(plan.headers["Location"]).json == plan.json
    assert client.put(url, json=before.json, headers={"If-Match": tag}).status_code == 200


def test_points(client: FlaskClient, plan: Any) -> None:
    url = plan.headers["Location"] + "/points"
    whole = client.get(url)
    assert whole.json["columns"] == ["setup", "gpu", "batch", "tpot_ms"]
    assert len(whole.json["rows"]) == 2
    assert client.get(f"{url}?setup=static").json["rows"] == [["static", "l4", 2, 9.0]]
    assert client.get(f"{url}?gpu=l4&setup=chunked").json["rows"] == []
    assert client.get(f"{url}?setup=serial").status_code == 422


@pytest.mark.parametrize(("query", "headers"), [
    ("", {"Accept": "text/csv"}), ("?format=csv", {}),
    ("?format=csv", {"Accept": "application/json"})])
def test_points_as_csv(client: FlaskClient, plan: Any, query: str,
                       headers: dict[str, str]) -> None:
    answer = client.get(plan.headers["Location"] + "/points" + query, headers=headers)
    assert answer.content_type == "text/csv; charset=utf-8"
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0] == ["setup", "gpu", "batch", "tpot_ms"]
    assert len(rows) == 3
    tag = {**headers, "If-None-Match": answer.headers["ETag"]}
    assert client.get(plan.headers["Location"] + "/points" + query, headers=tag
                      ).status_code == 304


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/csv;q=0.5,application/json"])
def test_points_are_json_otherwise(client: FlaskClient, plan: Any, accept: str) -> None:
    answer = client.get(plan.headers["Location"] + "/points", headers={"Accept": accept})
    assert answer.content_type == "application/json"


def test_workbook(client: FlaskClient, plan: Any) -> None:
    answer = client.get(plan.headers["Location"] + "/workbook")
    assert answer.content_type.endswith("spreadsheetml.sheet")
    assert answer.data == b"PK-xlsx"
    assert f"plan-{plan.json['id']}.xlsx" in answer.headers["Content-Disposition"]


def test_a_workbook_that_the_client_has_is_not_made_again(client: FlaskClient, plan: Any,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    url = plan.headers["Location"] + "/workbook"
    tag = client.get(url).headers["ETag"]
    monkeypatch.setattr("planner.workbook.write_plan", None)
    again = client.get(url, headers={"If-None-Match": tag})
    assert (again.status_code, again.headers["ETag"], again.data) == (304, tag, b"")


def test_delete(client: FlaskClient, plan: Any) -> None:
    url = plan.headers["Location"]
    assert client.delete(url, headers={"If-Match": '"other"'}).status_code == 412
    assert client.delete(url).status_code == 204
    assert client.get(url).status_code == 404


def test_the_snapshot_is_stored(app: Flask, plan: Any) -> None:
    from models import PlanRow
    from planner.extensions import db

    with app.app_context():
        row = db.session.get_one(PlanRow, plan.json["id"])
        assert row.snapshot == {"gpus": ["h100-sxm-80gb"]}


def test_estimates(client: FlaskClient, tiny: str) -> None:
    body = {"model": tiny, "gpu": "l40s", "batch": {"decodes": 32, "context_tokens": 1500}}
    one = client.post("/api/v1/estimates", json=body)
    assert (one.status_code, one.json["step_ms"]) == (200, 6.67)
    many = client.post("/api/v1/estimates", json={
        "model": tiny, "gpu": "l40s", "batches": [{"decodes": 1}, {"prefill_tokens": 5}]})
    assert len(many.json["steps"]) == 2


@pytest.mark.parametrize(("field", "pointer"), [("model", "/model"), ("gpu", "/gpu"),
                                                ("engine", "/engine")])
def test_estimates_of_the_unknown(client: FlaskClient, tiny: str, field: str,
                                  pointer: str) -> None:
    body = {"model": tiny, "gpu": "l40s", "batch": {"decodes": 1}, field: "nothing"}
    answer = client.post("/api/v1/estimates", json=body)
    assert answer.status_code == 422
    assert answer.json["type"].endswith("#not-in-catalog")
    assert answer.json["errors"][0]["pointer"] == pointer
