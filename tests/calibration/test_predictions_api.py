"""``POST /predictions``: strict, complete, in order, and quick for ten thousand points."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
from flask.testing import FlaskClient

from planner.api.predictions import EXAMPLE
from planner.api.predictions_schema import MAX_POINTS, parse_predictions

PATH = "/api/v1/predictions"
POINT: dict[str, Any] = {
    "model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "engine": "vllm", "weights": "fp8",
    "kv": "fp8", "tensor_parallel": 4, "concurrency": 16, "prompt_tokens": 1024,
    "output_tokens": 256}
POOL = {"gpu": "h200-sxm-141gb", "tensor_parallel": 8}


def split(**changes: Any) -> dict[str, Any]:
    return {"model": "deepseek-v3", "engine": "sglang", "concurrency": 64, "prompt_tokens": 4096,
            "output_tokens": 512, "prefill": POOL, "decode": {**POOL, "batch_size": 32}, **changes}


def answers(client: FlaskClient, *points: dict[str, Any]) -> list[dict[str, Any]]:
    response = client.post(PATH, json={"points": list(points)})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json["points"]
    return found


def errors(client: FlaskClient, *points: Any) -> dict[str, str]:
    response = client.post(PATH, data=json.dumps({"points": list(points)}),
                           content_type="application/json")
    assert response.status_code == 422, response.text
    return {e["pointer"]: e["message"] for e in response.json["errors"]}


def test_the_example_is_answered(client: FlaskClient) -> None:
    for answer in answers(client, *EXAMPLE["points"]):
        assert set(answer) == {"ttft_ms", "tpot_ms", "output_tokens_per_s",
                               "output_tokens_per_s_per_gpu", "saturated", "confidence"}
        assert answer["ttft_ms"] > answer["tpot_ms"] > 0
        assert answer["confidence"]["level"] in ("fitted", "extrapolated", "assumed")


def test_littles_law_holds(client: FlaskClient) -> None:
    answer, = answers(client, POINT)
    cycle = answer["ttft_ms"] + answer["tpot_ms"] * 255
    assert answer["output_tokens_per_s"] == pytest.approx(16 / cycle * 1e3 * 256)
    assert answer["output_tokens_per_s_per_gpu"] * 4 == pytest.approx(
        answer["output_tokens_per_s"])


def test_answers_keep_the_order(client: FlaskClient) -> None:
    points = [{**POINT, "tensor_parallel": 2 ** (i % 3 + 1), "concurrency": i + 1}
              for i in range(30)]
    together = answers(client, *points)
    for place in (0, 7, 29):
        alone, = answers(client, points[place])
        assert together[place]["tpot_ms"] == pytest.approx(alone["tpot_ms"])


def test_aggregated_set_ups_predict_alike(client: FlaskClient) -> None:
    one, two, three = answers(client, POINT, {**POINT, "setup": "colocated"},
                              {**POINT, "setup": "chunked"})
    assert one == two == three


def test_null_is_as_good_as_absent(client: FlaskClient) -> None:
    nulls = dict.fromkeys(("requests_per_second", "prefill", "decode", "setup", "data_parallel",
                           "expert_parallel", "pipeline_parallel", "replicas"))
    assert answers(client, {**POINT, **nulls}) == answers(client, POINT)


def test_models_go_by_slug_or_hugging_face_id(client: FlaskClient) -> None:
    by_id = {**POINT, "model": "meta-llama/Llama-3.1-70B-Instruct"}
    assert answers(client, by_id) == answers(client, POINT)


def test_experts_spread_over_data_parallel_attention() -> None:
    point = {**POINT, "tensor_parallel": 2, "data_parallel": 4}
    layouts = [p.layout for p in parse_predictions({"points": [
        POINT, point, {**point, "expert_parallel": 4}]})]
    assert [layout.expert for layout in layouts] == [1, 8, 4]


def test_a_pool_takes_from_the_point_what_it_leaves_out() -> None:
    point, = parse_predictions({"points": [split(gpu="l4", data_parallel=2, prefill={})]})
    assert point.prefill is not None
    assert point.decode is not None
    assert (point.prefill.gpu, point.prefill.layout.data) == ("l4", 2)
    assert (point.decode.gpu, point.decode.layout.data) == ("h200-sxm-141gb", 2)
    assert point.setup == "disaggregated"


def test_more_decode_workers_are_not_slower(client: FlaskClient) -> None:
    one, two = answers(client, split(), split(decode={**POOL, "replicas": 2}))
    assert two["tpot_ms"] <= one["tpot_ms"]


def test_an_overloaded_open_loop_is_saturated(client: FlaskClient) -> None:
    load = {k: v for k, v in POINT.items() if k != "concurrency"}
    calm, full = answers(client, {**load, "requests_per_second": 0.5},
                         {**load, "requests_per_second": 5000})
    assert not calm["saturated"]
    assert full["saturated"]
    assert full["ttft_ms"] is None


@pytest.mark.parametrize("output", [1, 2, 200])
@pytest.mark.parametrize("pools", [False, True])
def test_no_more_is_carried_than_a_full_deployment_can(client: FlaskClient, output: int,
                                                       pools: bool) -> None:
    point = {**(split() if pools else POINT), "output_tokens": output}
    del point["concurrency"]
    rates = (0.5, 500, 5000, 50_000)
    found = answers(client, *({**point, "requests_per_second": r} for r in rates))
    assert found[0]["output_tokens_per_s"] == pytest.approx(0.5 * output)
    assert [a["saturated"] for a in found[2:]] == [True, True]
    assert found[3]["output_tokens_per_s"] < 5000 * output
    assert found[3]["output_tokens_per_s"] == pytest.approx(found[2]["output_tokens_per_s"])


@pytest.mark.parametrize("pools", [False, True])
def test_clients_of_single_tokens_get_no_more_than_prefills(client: FlaskClient, pools: bool
                                                            ) -> None:
    point = {**(split() if pools else POINT), "output_tokens": 1}
    found = answers(client, *({**point, "concurrency": c} for c in (1, 10_000, 100_000)))
    assert [a["saturated"] for a in found] == [False, True, True]
    assert found[2]["output_tokens_per_s"] == pytest.approx(found[1]["output_tokens_per_s"],
                                                            rel=0.05)
    assert found[0]["output_tokens_per_s"] < found[2]["output_tokens_per_s"]


def test_what_was_not_fitted_says_so(client: FlaskClient) -> None:
    levels = [a["confidence"]["level"] for a in answers(
        client, POINT, {**POINT, "gpu": "l40s"}, {**POINT, "model": "falcon-mamba-7b"})]
    assert levels[0] == "fitted"
    assert "fitted" not in levels[1:]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "ideal"])
def test_every_model_and_gpu_is_answered(client: FlaskClient, engine: str) -> None:
    models = [m["slug"] for m in client.get("/api/v1/models?limit=1000").json["items"]]
    gpus = [g["slug"] for g in client.get("/api/v1/gpus?limit=1000").json["items"]]
    base = {k: v for k, v in POINT.items() if k not in ("weights", "kv", "tensor_parallel")}
    points = [{**base, "engine": engine, "model": m, "gpu": gpus[i % len(gpus)]}
              for i, m in enumerate(models)]
    points += [{**base, "engine": engine, "gpu": g} for g in gpus]
    for point, answer in zip(points, answers(client, *points), strict=True):
        for name in ("ttft_ms", "tpot_ms", "output_tokens_per_s"):
            assert answer[name] is not None, point
            assert 0 < answer[name] < math.inf, point


@pytest.mark.parametrize("extreme", [
    {"prompt_tokens": 1e8}, {"output_tokens": 1e8}, {"concurrency": 1e6},
    {"output_tokens": 1, "prompt_tokens": 1}, {"tensor_parallel": 1024}, {"replicas": 100000},
    {"pipeline_parallel": 64}, {"gpu": "l4", "model": "deepseek-v3", "tensor_parallel": 1}])
def test_extremes_are_answered(client: FlaskClient, extreme: dict[str, Any]) -> None:
    for answer in answers(client, {**POINT, **extreme}):
        assert answer["tpot_ms"] is None or answer["tpot_ms"] > 0


@pytest.mark.parametrize(("changes", "pointer", "message"), [
    ({"tensor_parallel": 0}, "/tensor_parallel", "whole number"),
    ({"tensor_parallel": True}, "/tensor_parallel", "not true"),
    ({"tensor_parallel": "4"}, "/tensor_parallel", "not '4'"),
    ({"prompt_tokens": math.nan}, "/prompt_tokens", "nan"),
    ({"output_tokens": math.inf}, "/output_tokens", "inf"),
    ({"output_tokens": None}, "/output_tokens", "must not be null"),
    ({"concurrency": -1}, "/concurrency", "at least 1"),
    ({"tensor_paralel": 4}, "/tensor_paralel", "unknown field"),
    ({"requests_per_second": 1}, "/requests_per_second", "only one"),
    ({"concurrency": None}, "/concurrency", "is required"),
    ({"weights": "fp3"}, "/weights", "must be one of"),
    ({"setup": "disaggregated"}, "/prefill", "both pools"),
    ({"prefill": POOL}, "/decode", "both pools"),
    ({"prefill": POOL, "decode": {"x": 1}}, "/decode/x", "unknown field"),
    ({"prefill": POOL, "decode": POOL, "setup": "chunked"}, "/setup", "no prefill"),
    ({"prefill": 3, "decode": POOL}, "/prefill", "must be an object"),
    ({"gpu": None}, "/gpu", "is required"), ({"gpu": "none"}, "/gpu", "unknown GPU"),
    ({"model": "none"}, "/model", "unknown model"), ({"model": ["x"]}, "/model", "a list"),
    ({"engine": "none"}, "/engine", "unknown engine")])
def test_a_refusal_points_at_the_field(client: FlaskClient, changes: dict[str, Any], pointer: str,
                                       message: str) -> None:
    found = errors(client, POINT, POINT, POINT, {**POINT, **changes})
    assert message in found[f"/points/3{pointer}"]


def test_every_fault_is_listed(client: FlaskClient) -> None:
    found = errors(client, {}, 7, {**POINT, "kv": 1})
    assert set(found) == {"/points/0/model", "/points/0/prompt_tokens", "/points/0/output_tokens",
                          "/points/1", "/points/2/kv"}
    assert len(errors(client, *[{}] * 500)) == 100, "the first hundred"


@pytest.mark.parametrize("body", [{}, {"points": []}, {"points": {}}, {"points": None}, [],
                                  {"points": [POINT], "more": 1}])
def test_other_bodies_are_refused(client: FlaskClient, body: Any) -> None:
    assert client.post(PATH, json=body).status_code == 422


def test_more_points_than_allowed_are_refused(client: FlaskClient) -> None:
    found = client.post(PATH, json={"points": [POINT] * (MAX_POINTS + 1)})
    assert found.status_code == 422
    assert "1 to 10000" in found.json["detail"]


def test_ten_thousand_points_take_seconds(client: FlaskClient) -> None:
    points = [{**POINT, "tensor_parallel": 2 ** (i % 4), "concurrency": i % 97 + 1,
               "prompt_tokens": 100 + i, "gpu": ("h100-sxm-80gb", "b200-sxm-180gb")[i % 2]}
              for i in range(MAX_POINTS)]
    start = time.process_time()
    assert len(answers(client, *points)) == MAX_POINTS
    assert time.process_time() - start < 10.0
