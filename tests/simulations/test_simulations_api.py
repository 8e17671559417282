"""``/simulations`` from the request to the rows, run by a worker process."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from models import PlanRow
from planner.api.background import stop_jobs
from planner.api.simulations import EXAMPLE
from planner.errors import InvalidValue
from planner.extensions import db
from planner.warm_up import warm_up

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "jobs"))
from jobs_helpers import make_app, wait_for

PATH = "/api/v1/simulations"
PLAN = {"model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "setups": ["chunked", "disaggregated"],
        "workload": {"requests_per_second": 6, "prompt_tokens": {"mean": 800, "p95": 2000},
                     "output_tokens": 100}, "slo": {"ttft_ms": 1000, "tpot_ms": 40},
        "limits": {"layouts": [{"tensor_parallel": 1}], "token_budgets": [2048],
                   "spare_replicas": 1}, "advice": False}
FLEET = {**EXAMPLE, "requests": 300}
TRACE = "timestamp,prompt_tokens,output_tokens\n" + "".join(
    f"{i / 5},{300 + i},{20 + i % 50}\n" for i in range(300))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    """An app whose workers do not compile: so few requests are served faster without. What the app
    itself needs is compiled before."""
    warm_up()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_DISABLE_JIT", "1")
        app = make_app(tmp_path_factory.mktemp("simulated"), "processes", PLANNER_JOB_PROCESSES=1)
        yield app
        stop_jobs(app)
        with app.app_context():
            db.engine.dispose()


@pytest.fixture
def web(served: Flask) -> FlaskClient:
    return served.test_client()


@pytest.fixture(scope="module")
def plan(served: Flask) -> dict[str, Any]:
    answer = served.test_client().post("/api/v1/plans", json=PLAN)
    assert answer.status_code == 201, answer.text
    return dict(answer.json)


@pytest.fixture(scope="module")
def trace(served: Flask) -> str:
    answer = served.test_client().post("/api/v1/traces?slug=minute", data=TRACE,
                                       content_type="text/csv")
    assert answer.status_code == 201, answer.text
    return "minute"


def simulated(client: FlaskClient, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(PATH, json=body)
    assert answer.status_code == 202, answer.text
    job_id = answer.json["id"]

    def ended() -> Any:
        job = client.get(f"/api/v1/jobs/{job_id}").json
        return job if job["status"] in ("done", "failed") else None
    job = wait_for(ended, 120)
    assert job["status"] == "done", job
    found = client.get(job["result"])
    assert found.status_code == 200, found.text
    return dict(found.json)


def test_every_option_of_a_plan(web: FlaskClient, plan: dict[str, Any]) -> None:
    assert {o["setup"] for o in plan["options"]} == {"chunked", "disaggregated"}
    for option in plan["options"]:
        body = simulated(web, {"plan": plan["id"], "rank": option["rank"], "requests": 400})
        assert body["setup"] == option["setup"]
        assert body["gpus"] == option["gpus"] - sum(
            p["spare_replicas"] * p["gpus_per_replica"] for p in option["pools"])
        assert body["promised"] == {m: option[m] for m in (
            "ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")}
        assert body["observed"]["tpot_ms"]["p90"] == pytest.approx(
            option["tpot_ms"]["p90"], rel=0.5), "the same order of magnitude, with 400 requests"
        assert body["refused"] == 0
        rate = 400 / body["simulated_s"]
        assert rate == pytest.approx(6, rel=0.25)


def test_spares_serve_when_asked(web: FlaskClient, plan: dict[str, Any]) -> None:
    body = simulated(web, {"plan": plan["id"], "requests": 100, "spares": True})
    assert body["gpus"] == plan["recommended"]["gpus"]


def test_a_trace_its_slices_and_rates(web: FlaskClient, plan: dict[str, Any], trace: str) -> None:
    whole = simulated(web, {"plan": plan["id"], "trace": trace})
    assert (whole["requests"], whole["trace"]) == (300, trace)
    part = simulated(web, {"plan": plan["id"], "trace": trace, "start_s": 10, "end_s": 30})
    assert part["requests"] == 100
    faster = simulated(web, {"plan": plan["id"], "trace": trace, "rate_scale": 10})
    assert faster["simulated_s"] < whole["simulated_s"] / 3
    assert faster["utilization"] > whole["utilization"]


def test_rows_add_up(web: FlaskClient, trace: str) -> None:
    body = simulated(web, {**{k: v for k, v in FLEET.items() if k not in ("requests", "workload")},
                           "trace": trace, "warmup_share": 0})
    assert body["promised"] is None
    answer = web.get(f"{PATH}/{body['id']}/requests")
    assert answer.mimetype == "text/csv"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 300
    assert [r["prompt_tokens"] for r in rows[:2]] == ["300", "301"]
    ttft = sorted(float(r["ttft_ms"]) for r in rows)
    assert sum(ttft) / 300 == pytest.approx(body["observed"]["ttft_ms"]["mean"], rel=1e-3)
    good = sum(r["within_slo"] == "true" for r in rows) / 300
    assert good == pytest.approx(body["attainment"]["all"])
    tag = answer.headers["ETag"]
    again = web.get(f"{PATH}/{body['id']}/requests", headers={"If-None-Match": tag})
    assert again.status_code == 304


def test_the_same_seed_is_the_same_run(web: FlaskClient) -> None:
    first, second, other = (simulated(web, {**FLEET, "seed": s}) for s in (1, 1, 2))
    assert first["observed"] == second["observed"] != other["observed"]


def test_a_failure_and_bursts(web: FlaskClient) -> None:
    calm = simulated(web, FLEET)
    broken = simulated(web, {**FLEET, "failures": [{"at_s": 5, "duration_s": 10, "replica": 1}]})
    assert calm["lost"] == 0
    assert broken["lost"] > 0
    bursts = {"pattern": "on_off", "on_s": 2, "off_s": 8}
    assert simulated(web, {**FLEET, "arrivals": bursts})["observed"]["ttft_ms"]["p90"] > (
        calm["observed"]["ttft_ms"]["p90"])


ECHOED = [
    FLEET,
    {**FLEET, "failures": [{"at_s": 5, "duration_s": 10, "replica": 1}], "rate_scale": 2.0,
     "arrivals": {"pattern": "on_off", "on_s": 2.0, "off_s": 8.0}, "router": "round_robin"},
    {**{k: FLEET[k] for k in ("fleet", "slo")}, "trace": "minute", "start_s": 10.0, "end_s": 30.0,
     "workload": {"prefix_cache_hit_rate": 0.25}},
    {**{k: FLEET[k] for k in ("fleet", "slo")}, "trace": "minute", "seed": 3},
    {**FLEET, "workload": {"trace": "minute"}, "requests": 50},
    {**FLEET, "requests": 100, "workload": {**FLEET["workload"], "arrival_cv": 2.0}},
]


@pytest.mark.usefixtures("trace")
@pytest.mark.parametrize("body", ECHOED)
def test_the_request_is_shown_and_asks_for_the_same(web: FlaskClient, body: dict[str, Any]
                                                    ) -> None:
    first = simulated(web, body)
    asked = first["request"]
    assert {k: asked[k] for k in body if k not in ("fleet", "workload", "slo")} == {
        k: v for k, v in body.items() if k not in ("fleet", "workload", "slo")
        } | ({"failures": [{"pool": 0, **f} for f in body["failures"]]} if "failures" in body
             else {})
    assert asked["slo"] == {**body["slo"], "percentile": 90.0}
    assert asked["fleet"]["pools"][0] == {
        "role": "serve", "tensor_parallel": 1, "pipeline_parallel": 1, "expert_parallel": 1,
        "data_parallel": 1, "batch_size": None, **body["fleet"]["pools"][0]}
    again = simulated(web, asked)
    assert again["request"] == asked
    assert again["observed"] == first["observed"]


def test_the_request_of_a_plan(web: FlaskClient, plan: dict[str, Any]) -> None:
    first = simulated(web, {"plan": plan["id"], "requests": 100, "seed": 2})
    asked = first["request"]
    assert (asked["plan"], asked["rank"], asked["seed"]) == (plan["id"], 1, 2)
    assert simulated(web, asked)["observed"] == first["observed"]


def test_lists_and_deleting(web: FlaskClient) -> None:
    body = simulated(web, {**FLEET, "requests": 50})
    assert body["id"] in [s["id"] for s in web.get(PATH).json["items"]]
    assert web.delete(f"{PATH}/{body['id']}").status_code == 204
    assert web.get(f"{PATH}/{body['id']}").status_code == 404
    assert web.get(f"/api/v1/jobs/{body['id']}").status_code == 404


POOL = {"gpu": "h100-sxm-80gb", "replicas": 1}
DRAFTS = {"draft_tokens": 3, "acceptance": 0.7}


def fleet(**changes: Any) -> dict[str, Any]:
    return {**FLEET, "fleet": {**FLEET["fleet"], **changes}}


def replayed(**changes: Any) -> dict[str, Any]:
    """On a trace, whether it is stored or not."""
    return {**{k: FLEET[k] for k in ("fleet", "slo")}, "trace": "minute", **changes}


BAD = [
    ({}, "/plan"), ({"plan": "nothing"}, "/plan"), ({**FLEET, "plan": "x"}, "/plan"),
    ({"fleet": FLEET["fleet"]}, "/slo"), ({"fleet": FLEET["fleet"]}, "/workload"),
    ({**FLEET, "rank": 1}, "/rank"), ({**FLEET, "requests": 5}, "/requests"),
    ({**FLEET, "seed": -1}, "/seed"), ({**FLEET, "router": "best"}, "/router"),
    ({**FLEET, "trace": "nothing", "requests": 5}, "/requests"),
    (replayed(trace="nothing"), "/trace"),
    ({**FLEET, "start_s": 5}, "/start_s"), ({**FLEET, "end_s": 5}, "/end_s"),
    ({**FLEET, "warmup_share": 1}, "/warmup_share"),
    ({**FLEET, "requests": 10, "warmup_share": 0.99}, "/warmup_share"),
    ({**FLEET, "workload": {**FLEET["workload"], "requests_per_second": 1e-300}},
     "/workload/requests_per_second"),
    ({**FLEET, "workload": {**FLEET["workload"], "requests_per_second": 1e-300},
      "rate_scale": 1e-300}, "/workload/requests_per_second"),
    (fleet(pools=[]), "/fleet/pools"), (fleet(pools=[POOL, POOL]), "/fleet/pools"),
    (fleet(setup="disaggregated"), "/fleet/pools"),
    (fleet(pools=[{**POOL, "role": "decode"}]), "/fleet/pools"),
    (fleet(pools=[{**POOL, "gpu": "x1"}]), "/fleet/pools/0/gpu"),
    (fleet(pools=[{**POOL, "replicas": 0}]), "/fleet/pools/0/replicas"),
    (fleet(model="nothing"), "/fleet/model"), (fleet(engine="nothing"), "/fleet/engine"),
    (fleet(model="llama-3.1-405b"), "/fleet/pools"),
    (fleet(engine="tensorrt-llm", pools=[{**POOL, "gpu": "mi300x"}]), "/fleet/pools/0/gpu"),
    (fleet(engine="sglang-mi300x-any", pools=[POOL]), "/fleet/pools/0/gpu"),
    (fleet(setup="disaggregated", engine="tensorrt-llm",
           pools=[POOL, {**POOL, "gpu": "mi300x"}]), "/fleet/pools/1/gpu"),
    (fleet(power_cap_w=1), "/fleet/power_cap_w"), (fleet(power_cap_w=5000), "/fleet/power_cap_w"),
    (fleet(speculative={**DRAFTS, "draft_model": "nothing"}), "/fleet/speculative/draft_model"),
    (fleet(speculative={**DRAFTS, "draft_model": "qwen2.5-3b"}),
     "/fleet/speculative/draft_model"),
    (fleet(pools=[{**POOL, "tensor_parallel": 3}]), "/fleet/pools/0/tensor_parallel"),
    (fleet(setup="disaggregated", pools=[POOL, {**POOL, "tensor_parallel": 64}]),
     "/fleet/pools/1/tensor_parallel"),
    (fleet(pools=[{**POOL, "pipeline_parallel": 33}]), "/fleet/pools/0/pipeline_parallel"),
    (fleet(pools=[{**POOL, "tensor_parallel": 2, "expert_parallel": 2}]),
     "/fleet/pools/0/expert_parallel"),
    (fleet(model="mixtral-8x7b-v0.1", pools=[{**POOL, "tensor_parallel": 2, "data_parallel": 8,
                                         "expert_parallel": 16}]),
     "/fleet/pools/0/expert_parallel"),
    (fleet(model="mixtral-8x7b-v0.1", pools=[{**POOL, "tensor_parallel": 2, "expert_parallel": 4}]),
     "/fleet/pools/0/expert_parallel"),
    ({**FLEET, "failures": [{"at_s": 1, "duration_s": 1, "pool": 1}]}, "/failures/0/pool"),
    ({**FLEET, "failures": [{"at_s": 1, "duration_s": 1, "replica": 2}]}, "/failures/0/replica"),
    ({**FLEET, "arrivals": {"pattern": "on_off", "on_s": 1}}, "/arrivals/off_s"),
    ({**FLEET, "arrivals": {"pattern": "diurnal", "profile": [0]}}, "/arrivals/profile"),
    ({**FLEET, "arrivals": {"pattern": "diurnal", "profile": [1, 2], "on_s": 5}},
     "/arrivals/on_s"),
    ({**FLEET, "arrivals": {"pattern": "on_off", "on_s": 1, "off_s": 2, "day_s": 60}},
     "/arrivals/day_s"),
    ({**FLEET, "arrivals": {"pattern": "on_off", "on_s": 1, "off_s": 2, "profile": [1]}},
     "/arrivals/profile"),
    ({**FLEET, "spares": True}, "/spares"),
    *((replayed(workload={name: FLEET["workload"].get(name, 1)}), f"/workload/{name}")
      for name in ("prompt_tokens", "output_tokens", "requests_per_second", "requests_per_day",
                   "peak_hour_share", "concurrent_users", "think_time_s", "arrival_cv")),
    (replayed(workload={"trace": "other"}), "/workload/trace"),
    (replayed(workload="saved"), "/workload"),
    ({**FLEET, "workload": {**FLEET["workload"], "arrival_cv": 2},
      "arrivals": {"pattern": "on_off", "on_s": 1, "off_s": 2}}, "/workload/arrival_cv"),
    ({**FLEET, "arrivals": {"pattern": "on_off", "on_s": 1e-12, "off_s": 2}}, "/arrivals/on_s"),
    (fleet(setup="static"), "/fleet/pools/0/token_budget"),
    (fleet(setup="disaggregated", pools=[POOL, {**POOL, "token_budget": 2048}]),
     "/fleet/pools/1/token_budget"),
]


@pytest.mark.parametrize(("body", "pointer"), BAD)
def test_refusals(web: FlaskClient, body: dict[str, Any], pointer: str) -> None:
    answer = web.post(PATH, json=body)
    assert answer.status_code == 422, answer.text
    assert pointer in [e["pointer"] for e in answer.json["errors"]], answer.text


@pytest.mark.parametrize("part", [{"start_s": 1000}, {"end_s": 0.3},
                                  {"start_s": 10, "end_s": 10.3}])
def test_a_slice_of_almost_nothing(web: FlaskClient, plan: dict[str, Any], trace: str,
                                   part: dict[str, float]) -> None:
    fleet_of = {k: FLEET[k] for k in ("fleet", "slo")}
    for what in ({"plan": plan["id"]}, fleet_of):
        answer = web.post(PATH, json={**what, "trace": trace, **part})
        assert answer.status_code == 422, answer.text
        assert [e["pointer"] for e in answer.json["errors"]] == ["/start_s"]
        assert "at least 3 are needed" in answer.json["detail"]
    assert not [e for e in web.get(PATH).json["items"] if e["status"] == "failed"]


@pytest.mark.parametrize(("given", "pointer"), [
    ({"warmup_share": 0.999}, "/warmup_share"), ({"rate_scale": 1e-300}, "/rate_scale"),
    ({"start_s": 10, "end_s": 11, "warmup_share": 0.9}, "/warmup_share")])
def test_a_trace_of_which_nothing_would_be_seen(web: FlaskClient, trace: str,
                                                given: dict[str, float], pointer: str) -> None:
    body = {k: FLEET[k] for k in ("fleet", "slo")} | {"trace": trace} | given
    answer = web.post(PATH, json=body)
    assert answer.status_code == 422, answer.text
    assert [e["pointer"] for e in answer.json["errors"]] == [pointer]


def test_the_longest_span_keeps_the_clock() -> None:
    from planner.simulations.requests import MAX_SPAN_S, check_extent

    assert MAX_SPAN_S + 1e-5 > MAX_SPAN_S
    check_extent(10, MAX_SPAN_S, 0.8, "")
    with pytest.raises(InvalidValue, match="of 10 requests 1 would count"):
        check_extent(10, 1.0, 0.9, "")


def test_a_rate_of_almost_nothing_still_takes_time(web: FlaskClient) -> None:
    """An idle fleet: as fast at a request a month as at one an hour."""
    seen = [simulated(web, {**FLEET, "requests": 100, "workload": {
        **FLEET["workload"], "requests_per_second": rate}})["observed"] for rate in (3e-4, 1e-7)]
    for metric in ("ttft_ms", "tpot_ms"):
        assert seen[1][metric]["mean"] > 0.1
        assert seen[1][metric]["mean"] == pytest.approx(seen[0][metric]["mean"], rel=0.05)


def test_a_context_beyond_the_model(web: FlaskClient) -> None:
    body = {**FLEET, "workload": {**FLEET["workload"], "prompt_tokens": 200_000}}
    answer = web.post(PATH, json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json["type"].endswith("#context-too-long")
    assert answer.json["errors"][0]["pointer"] == "/workload/prompt_tokens"
    rows = "timestamp,prompt_tokens,output_tokens\n" + "".join(
        f"{i},200000,9\n" for i in range(20))
    web.post("/api/v1/traces?slug=endless", data=rows, content_type="text/csv")
    traced = {k: v for k, v in FLEET.items() if k not in ("workload", "requests")}
    answer = web.post(PATH, json={**traced, "trace": "endless"})
    assert answer.status_code == 422, answer.text
    assert answer.json["type"].endswith("#context-too-long")
    assert answer.json["errors"][0]["pointer"] == "/trace"


    for more in ({"workload": {"prefix_cache_hit_rate": 0.2}}, {"workload": {}}):
        answer = web.post(PATH, json={**traced, "trace": "endless", **more})
        assert answer.status_code == 422, answer.text
        assert [e["pointer"] for e in answer.json["errors"]] == ["/trace"]


def test_a_trace_beyond_the_model_of_a_plan(web: FlaskClient, plan: dict[str, Any]) -> None:
    rows = "timestamp,prompt_tokens,output_tokens\n" + "".join(
        f"{i},300000,9\n" for i in range(20))
    web.post("/api/v1/traces?slug=longer", data=rows, content_type="text/csv")
    answer = web.post(PATH, json={"plan": plan["id"], "trace": "longer"})
    assert answer.status_code == 422, answer.text
    assert answer.json["type"].endswith("#context-too-long")
    assert [e["pointer"] for e in answer.json["errors"]] == ["/trace"]


def test_prefix_hits_go_with_a_trace(web: FlaskClient, trace: str) -> None:
    body = simulated(web, replayed(workload={"prefix_cache_hit_rate": 0.5}))
    rows = list(csv.DictReader(io.StringIO(web.get(f"{PATH}/{body['id']}/requests").text)))
    assert rows[0]["cached_tokens"] == "150"
    assert len(rows) == 300
    plain = simulated(web, replayed())
    assert plain["observed"]["ttft_ms"]["mean"] > body["observed"]["ttft_ms"]["mean"]


def test_no_such_option(web: FlaskClient, plan: dict[str, Any]) -> None:
    answer = web.post(PATH, json={"plan": plan["id"], "rank": 99})
    assert answer.json["errors"][0]["pointer"] == "/rank"


def test_a_plan_keeps_its_draft_model(web: FlaskClient, served: Flask) -> None:
    """Deleting it changes nothing; a plan that kept none says which model is gone."""
    sizes = {"layers": 4, "hidden": 512, "heads": 8, "kv_heads": 4, "intermediate": 1024,
             "vocab": 128256}
    made = web.post("/api/v1/models", json={"slug": "my-draft", **sizes})
    assert made.status_code == 201, made.text
    wish = {"draft_tokens": 3, "acceptance": 0.7, "draft_model": "my-draft"}
    planned = web.post("/api/v1/plans", json={**PLAN, "setups": ["chunked"], "speculative": wish})
    assert planned.status_code == 201, planned.text
    asked = {"plan": planned.json["id"], "requests": 100}
    before = simulated(web, asked)
    gone = web.delete("/api/v1/models/my-draft", headers={"If-Match": made.headers["ETag"]})
    assert gone.status_code == 204, gone.text
    after = simulated(web, asked)
    assert after["observed"] == before["observed"]
    with served.app_context():
        row = db.session.get(PlanRow, planned.json["id"])
        row.snapshot = {k: v for k, v in row.snapshot.items() if k != "draft"}
        db.session.commit()
    answer = web.post(PATH, json=asked)
    assert answer.status_code == 422, answer.text
    error, = answer.json["errors"]
    assert error["pointer"] == "/plan"
    assert "draft model" in error["message"]
    assert "'my-draft'" in error["message"]


def test_not_finished_and_not_there(client: FlaskClient) -> None:
    """In an app that only queues."""
    answer = client.post(PATH, json=FLEET)
    assert answer.status_code == 202, answer.text
    job_id = answer.json["id"]
    for path in (f"{PATH}/{job_id}", f"{PATH}/{job_id}/requests"):
        found = client.get(path)
        assert (found.status_code, "queued, 0% done" in found.json["detail"]) == (409, True)
    assert client.delete(f"/api/v1/jobs/{job_id}").status_code == 204
    assert client.get(f"/api/v1/jobs/{job_id}").json["status"] == "cancelled"
    assert client.get(f"/api/v1/sweeps/{job_id}").status_code == 404, "it is no sweep"
    assert client.delete(f"{PATH}/{job_id}").status_code == 204
    assert client.get(f"{PATH}/nothing").status_code == 404


def test_a_plan_of_measured_workers_cannot_be_simulated(web: FlaskClient) -> None:
    measured = {**PLAN, "measured": {"serve": {"requests_per_second": 5}}}
    made = web.post("/api/v1/plans", json=measured)
    assert made.status_code == 201, made.text
    answer = web.post(PATH, json={"plan": made.json["id"]})
    assert answer.status_code == 422
    assert "measured workers" in answer.json["detail"]


def test_the_example_is_taken(web: FlaskClient) -> None:
    root = Path(__file__).resolve().parents[2] / "examples" / "simulations"
    for file in root.glob("*.json"):
        answer = web.post(PATH, json=json.loads(file.read_text(encoding="utf-8")))
        assert answer.status_code == 202, answer.text
        web.delete(f"{PATH}/{answer.json['id']}")
