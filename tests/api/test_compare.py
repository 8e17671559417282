"""``/plans/compare``: forms of the request, bridges of real plans, faults at their place."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from flask import Flask
from flask.testing import FlaskClient

COMPARE = "/api/v1/plans/compare"


@pytest.fixture(scope="module")
def base() -> dict[str, Any]:
    return {"name": "base", "model": "llama-3.1-8b", "gpus": ["l40s", "h100-sxm-80gb"],
            "setups": ["colocated", "chunked"],
            "workload": {"requests_per_second": 20, "prompt_tokens": {"mean": 1000, "p95": 3000},
                         "output_tokens": 200}, "slo": {"ttft_ms": 1000, "tpot_ms": 50}}


def changed(base: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {**copy.deepcopy(base), **parts}


def assert_sums(bridge: dict[str, Any]) -> None:
    for name in ("gpus", "usd_per_hour", "usd_per_month"):
        total = sum(step[f"{name}_change"] for step in bridge["steps"])
        assert total == pytest.approx(bridge[f"{name}_change"], rel=1e-9, abs=1e-9)
        if bridge["steps"]:
            assert bridge["steps"][0][f"{name}_before"] == bridge[f"{name}_before"]
            assert bridge["steps"][-1][f"{name}_after"] == bridge[f"{name}_after"]


def test_a_base_and_its_scenarios(client: FlaskClient, base: dict[str, Any]) -> None:
    body = {"base": base, "scenarios": [
        {"name": "busy", "changes": {"workload": {"requests_per_second": 80,
                                                  "output_tokens": {"mean": 400}},
                                     "slo": {"tpot_ms": 25}, "limits": {"spare_replicas": 1},
                                     "pricing": {"usd_per_gpu_hour": {"l40s": 5}}}},
        {"name": "same", "changes": {}},
        {"name": "never", "changes": {"slo": {"ttft_ms": 1}}}]}
    answer = client.post(COMPARE, json=body)
    assert answer.status_code == 200, answer.json
    found = answer.json
    assert [p["name"] for p in found["plans"]] == ["base", "busy", "same", "never"]
    busy, same, never = found["bridges"]
    assert [p for s in busy["steps"] for p in s["parts"]] == ["rate", "lengths", "slo", "pricing",
                                                              "limits"]
    assert busy["gpus_change"] > 0
    assert_sums(busy)
    assert (same["steps"], same["gpus_change"], same["reason"]) == ([], 0, None)
    assert (never["steps"], never["gpus_after"]) == ([], None)
    assert "no option" in never["reason"]
    fields = {row["field"]: row["values"] for row in found["differences"]}
    assert fields["/workload/requests_per_second"] == [20, 80, 20, 20]
    assert fields["/pricing/usd_per_gpu_hour/l40s"] == [None, 5, None, None]
    assert "/name" not in fields


def test_stored_plans_and_requests(client: FlaskClient, base: dict[str, Any]) -> None:
    stored = client.post("/api/v1/plans", json=base).json
    more = changed(base, gpus=["l40s"], engine="sglang")
    found = client.post(COMPARE, json={"plans": [stored["id"], more]}).json
    assert [p["id"] for p in found["plans"]] == [stored["id"], None]
    assert found["plans"][0]["recommended"] == stored["recommended"]
    assert [s["parts"] for s in found["bridges"][0]["steps"]] == [["gpus"], ["efficiency"]]
    assert_sums(found["bridges"][0])


def test_a_price_that_changed_since_is_its_own_step(client: FlaskClient, base: dict[str, Any]
                                                    ) -> None:
    price = {"id": "our-l40s", "gpu": "l40s", "provider": "Ourselves", "commitment": "on_demand",
             "usd_per_gpu_hour": 1.0, "as_of": "2026-11", "source": "a test"}
    only = changed(base, gpus=["l40s"], pricing={"provider": "Ourselves"})
    made = client.post("/api/v1/prices", json=price)
    tag = made.headers["ETag"]
    try:
        stored = client.post("/api/v1/plans", json=only).json
        dearer = client.put("/api/v1/prices/our-l40s", json={**price, "usd_per_gpu_hour": 2.0},
                            headers={"If-Match": tag})
        tag = dearer.headers["ETag"]
        found = client.post(COMPARE, json={"plans": [stored["id"], only]}).json["bridges"][0]
    finally:
        client.delete("/api/v1/prices/our-l40s", headers={"If-Match": tag})
    assert [s["parts"] for s in found["steps"]] == [["catalog"]]
    assert found["usd_per_hour_after"] == 2 * found["usd_per_hour_before"] > 0
    assert_sums(found)


def test_the_base_may_be_a_stored_plan_and_null_takes_a_field_away(
        client: FlaskClient, base: dict[str, Any]) -> None:
    stored = client.post("/api/v1/plans", json=base).json
    day = {"workload": {"requests_per_second": None, "requests_per_day": 864_000,
                        "peak_hour_share": 0.1}}
    found = client.post(COMPARE, json={"base": stored["id"],
                                       "scenarios": [{"changes": day}]}).json
    assert found["plans"][1]["request"]["workload"]["requests_per_day"] == 864_000
    assert found["bridges"][0]["steps"][0]["parts"] == ["rate"]


def test_the_workbook(client: FlaskClient, base: dict[str, Any]) -> None:
    answer = client.post(f"{COMPARE}/workbook", json={
        "base": base, "scenarios": [{"changes": {"workload": {"requests_per_second": 40}}}]})
    assert answer.status_code == 200
    assert answer.mimetype.endswith("spreadsheetml.sheet")
    book = openpyxl.load_workbook(io.BytesIO(answer.data))
    assert book.sheetnames == ["Comparison", "Changes", "Bridge to plan 2"]


@pytest.mark.parametrize(("body", "pointer", "words"), [
    ({}, "/plans", "is required"), ({"plans": []}, "/plans", "2 to 8"),
    ({"plans": ["no-such", "plan"]}, "/plans/0", "no plan 'no-such'"),
    ({"plans": ["a\x00b", "b"]}, "/plans/0", "control characters"),
    ({"plans": [1, 2]}, "/plans/0", "plan request or the id"),
    ({"plans": ["a"] * 9}, "/plans", "2 to 8"), ({"base": "x"}, "/scenarios", "1 to 7"),
    ({"scenarios": [{"changes": {}}]}, "/base", "is required"),
    ({"plans": ["a", "b"], "base": "c"}, "/plans", "not both"),
    ({"base": "x", "scenarios": [{"changes": {}, "nmae": "a"}]}, "/scenarios/0/nmae", "unknown"),
])
def test_bad_requests(client: FlaskClient, body: dict[str, Any], pointer: str, words: str) -> None:
    answer = client.post(COMPARE, json=body)
    assert answer.status_code == 422
    said = {e["pointer"]: e["message"] for e in answer.json["errors"]}
    assert words in said[pointer], said


@pytest.mark.parametrize(("changes", "pointer"), [
    ({"workload": {"requests_per_day": 5}}, "/workload/requests_per_day"),
    ({"gpus": ["x100"]}, "/gpus/0"), ({"model": "nope"}, "/model"),
    ({"slo": None}, "/slo"), ({"limits": {"regions": 0}}, "/limits/regions"),
    ({"workload": {"prompt_tokens": 200_000}}, "/workload/prompt_tokens"),
])
def test_a_bad_change_is_named(client: FlaskClient, base: dict[str, Any],
                               changes: dict[str, Any], pointer: str) -> None:
    answer = client.post(COMPARE, json={"base": base, "scenarios": [{"changes": {}},
                                                                    {"changes": changes}]})
    assert answer.status_code == 422
    assert answer.json["errors"][0]["pointer"] == f"/scenarios/1/changes{pointer}"


def test_a_deep_change_is_refused_not_a_crash(client: FlaskClient, base: dict[str, Any]) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = {"workload": deep}
    answer = client.post(COMPARE, json={"base": base, "scenarios": [{"changes": deep}]})
    assert answer.status_code == 422


def test_the_command(app: Flask, tmp_path: Path, base: dict[str, Any]) -> None:
    run = app.test_cli_runner().invoke
    for name, parts in (("a", {}), ("b", {"slo": {"ttft_ms": 300, "tpot_ms": 30}})):
        (tmp_path / f"{name}.json").write_text(json.dumps(changed(base, **parts)))
    files = [str(tmp_path / f"{n}.json") for n in "ab"]
    out = tmp_path / "out.xlsx"
    found = run(args=["compare", *files, "--workbook", str(out)])
    assert found.exit_code == 0, found.output
    assert "plan 1 to plan 2:" in found.stdout
    assert "slo:" in found.stdout
    assert out.read_bytes().startswith(b"PK")
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps({"base": base, "scenarios": [{"changes": {}}]}))
    document = json.loads(run(args=["compare", str(whole), "--json"]).stdout)
    assert len(document["plans"]) == 2
    bad = run(args=["compare", files[0], "no-such-plan"])
    assert bad.exit_code == 2
    assert bad.stderr.strip() == "error: /plans/1: there is no plan 'no-such-plan'"

TRACE = "timestamp,prompt_tokens,output_tokens\n" + "".join(
    f"{i / 5},{300 + i},{20 + i % 50}\n" for i in range(300))


def test_a_stored_trace_is_found(app: Flask, client: FlaskClient, base: dict[str, Any],
                                 tmp_path: Path) -> None:
    client.post("/api/v1/traces?slug=compared", data=TRACE, content_type="text/csv")
    traced = changed(base, workload={"trace": "compared"})
    bodies = ({"base": traced, "scenarios": [{"name": "x", "changes": {"slo": {"tpot_ms": 40}}}]},
              {"base": base, "scenarios": [{"name": "x", "changes": {
                  "workload": {"trace": "compared", "requests_per_second": None}}}]},
              {"plans": [base, traced]})
    for body in bodies:
        answer = client.post(COMPARE, json=body)
        assert answer.status_code == 200, answer.text
        rate = answer.json["plans"][-1]["request"]["workload"]["requests_per_second"]
        assert rate == pytest.approx(5, rel=0.1), "one each 0.2 s"
    file = tmp_path / "compare.json"
    file.write_text(json.dumps(bodies[0]), "utf-8")
    shown = app.test_cli_runner().invoke(args=["compare", str(file), "--json"])
    assert shown.exit_code == 0, shown.output
    missing = client.post(COMPARE, json={"plans": [base, changed(base, workload={"trace": "no"})]})
    assert missing.status_code == 422
    assert [e["pointer"] for e in missing.json["errors"]] == ["/plans/1/workload/trace"]


def test_a_scenario_with_another_trace_takes_all_from_it(client: FlaskClient,
                                                         base: dict[str, Any]) -> None:
    long = TRACE.replace(",30", ",60").replace(",20\n", ",40\n")
    for slug, rows in (("first", TRACE), ("second", long)):
        client.post(f"/api/v1/traces?slug={slug}", data=rows, content_type="text/csv")
    wanted = client.get("/api/v1/traces/second").json["workload"]
    traced = changed(base, workload={"trace": "first", "prefix_cache_hit_rate": 0.25})
    for start in (traced, base):
        found = client.post(COMPARE, json={"base": start, "scenarios": [
            {"changes": {"workload": {"trace": "second"}}},
            {"changes": {"workload": {"trace": "second", "output_tokens": 77}}}]})
        assert found.status_code == 200, found.text
        _, plain, own = (p["request"]["workload"] for p in found.json["plans"])
        for name in ("requests_per_second", "prompt_tokens", "output_tokens", "arrival_cv"):
            assert plain[name] == wanted[name], name
        assert own["output_tokens"] == 77
        assert own["prompt_tokens"] == wanted["prompt_tokens"]
        assert plain["prefix_cache_hit_rate"] == start["workload"].get("prefix_cache_hit_rate", 0)
