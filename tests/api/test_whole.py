"""The contract from end to end: real requests through the real planner."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient
from openapi_schema_validator import OAS31Validator

CHAT: dict[str, Any] = {
    "name": "Support chat", "model": "llama-3.1-70b",
    "workload": {"requests_per_second": 12, "prompt_tokens": {"mean": 2000, "p95": 6000},
                 "output_tokens": 300, "arrival_cv": 1.0, "prefix_cache_hit_rate": 0.0},
    "slo": {"ttft_ms": 1000, "tpot_ms": 50, "percentile": 90},
    "gpus": ["h100-sxm-80gb", "l40s"], "setups": ["colocated", "chunked", "disaggregated"],
    "precisions": [{"weights": "fp8", "kv": "fp8"}], "engine": "vllm",
    "limits": {"max_gpus": 256, "max_tensor_parallel": 8, "target_utilization": 0.8,
               "spare_replicas": 1},
    "pricing": {"commitment": "on_demand"}, "objective": "cost"}
STEP = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "weights": "bf16", "kv": "bf16",
        "tensor_parallel": 1, "fidelity": "napkin", "engine": "ideal",
        "batch": {"decodes": 32, "context_tokens": 1500, "prefill_tokens": 0}}
OPTION_FIELDS = {
    "rank", "setup", "weights", "kv", "gpus", "nodes", "pools", "ttft_ms", "tpot_ms", "itl_ms",
    "e2e_ms", "limited_by", "bound", "usd_per_hour", "usd_per_month",
    "usd_per_million_input_tokens", "usd_per_million_output_tokens", "usd_per_million_tokens",
    "usd_per_request", "power_kw", "confidence"}
POOL_FIELDS = {
    "role", "gpu", "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel",
    "replicas", "spare_replicas", "gpus", "batch_size", "token_budget", "capacity_rps",
    "utilization", "memory"}
MEMORY_FIELDS = {"physical_gib", "weights_gib", "activation_gib", "runtime_gib", "kv_pool_gib",
                 "kv_tokens", "max_sequences", "fits"}


@pytest.fixture
def keeps_to(client: FlaskClient) -> Any:
    components = client.get("/api/v1/openapi.json").json["components"]

    def check(name: str, document: Any) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": components}
        OAS31Validator(schema).validate(document)

    return check


def test_a_plan(client: FlaskClient, keeps_to: Any) -> None:
    made = client.post("/api/v1/plans", json=CHAT)
    assert made.status_code == 201, made.text
    plan = made.json
    keeps_to("PlanAnswer", plan)
    assert plan["recommended"] == plan["options"][0]
    for option in plan["options"]:
        assert set(option) >= OPTION_FIELDS
        assert set(option["ttft_ms"]) >= {"mean", "p50", "p90", "p95", "p99"}
        assert option["gpus"] == sum(p["gpus"] for p in option["pools"])
        for pool in option["pools"]:
            assert set(pool) >= POOL_FIELDS
            assert set(pool["memory"]) >= MEMORY_FIELDS
    assert all(set(a) >= {"name", "value", "unit", "source"} for a in plan["assumptions"])
    assert client.get(made.headers["Location"]).json == plan


def test_the_same_request_by_another_name(client: FlaskClient) -> None:
    by_slug = client.post("/api/v1/plans", json=CHAT).json["options"]
    name = "meta-llama/Llama-3.1-70B-Instruct"
    assert client.post("/api/v1/plans", json={**CHAT, "model": name}).json["options"] == by_slug


def test_the_echo_can_be_posted_again(client: FlaskClient) -> None:
    first = client.post("/api/v1/plans", json=CHAT).json
    second = client.post("/api/v1/plans", json=first["request"]).json
    assert second["request"] == first["request"]
    assert second["options"] == first["options"]


def test_points_of_a_plan(client: FlaskClient, keeps_to: Any) -> None:
    url = client.post("/api/v1/plans", json=CHAT).headers["Location"] + "/points"
    points = client.get(url).json
    keeps_to("Points", points)
    setup = points["columns"].index("setup")
    chosen = client.get(f"{url}?setup=chunked&gpu=h100-sxm-80gb").json["rows"]
    assert chosen
    assert {row[setup] for row in chosen} == {"chunked"}
    text = client.get(url, headers={"Accept": "text/csv"}).text
    assert len(text.splitlines()) == len(points["rows"]) + 1


def test_no_solution_is_a_plan(client: FlaskClient, keeps_to: Any) -> None:
    made = client.post("/api/v1/plans", json={**CHAT, "slo": {"ttft_ms": 1, "tpot_ms": 1}})
    assert made.status_code == 201
    keeps_to("PlanAnswer", made.json)
    assert (made.json["recommended"], made.json["options"]) == (None, [])
    assert made.json["infeasible"]
    assert all(row["reason"] and row["detail"] for row in made.json["infeasible"])


def test_an_estimate(client: FlaskClient, keeps_to: Any) -> None:
    answer = client.post("/api/v1/estimates", json=STEP)
    keeps_to("EstimateAnswer", answer.json)
    # Weights 16.06e9 B and 32 x 1500 x 131,072 B of cache at 3.35e12 B/s, as the napkin has it.
    assert answer.json["step_ms"] == pytest.approx(6.67, abs=0.01)
    assert set(answer.json["memory"]) >= MEMORY_FIELDS


def test_estimates_of_a_list(client: FlaskClient, keeps_to: Any) -> None:
    body = {**{k: v for k, v in STEP.items() if k != "batch"},
            "batches": [STEP["batch"], {"prefill_tokens": 512}]}
    steps = client.post("/api/v1/estimates", json=body).json
    keeps_to("EstimateAnswer", steps)
    assert steps["steps"][0]["step_ms"] == pytest.approx(6.67, abs=0.01)


@pytest.mark.parametrize("name", ["deepseek-v3", "mixtral-8x7b-v0.1", "gpt-oss-120b", "qwen3-32b"])
def test_the_catalog_has_the_models_that_are_asked_for(client: FlaskClient, keeps_to: Any,
                                                       name: str) -> None:
    model = client.get(f"/api/v1/models/{name}").json
    keeps_to("Model", model)
    assert client.get(f"/api/v1/models/{model['hf_id']}").json["slug"] == name
