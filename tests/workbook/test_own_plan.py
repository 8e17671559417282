"""An unedited workbook shows the plan it was made of: GPUs equal, latency and money to 0.5 %.

The requests are of kinds where sheet and planner once read the same distributions differently.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from test_recalculation import latency
from workbook_plans import CATALOG
from workbook_reading import named, read

from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.workbook import write_plan

REQUESTS: dict[str, dict[str, Any]] = {
    # Larger batch limits miss the whole request; the planner takes a small one.
    "small limit for whole requests": {
        "model": "glm-4.5-air", "gpus": ["b200-sxm-180gb"], "setups": ["chunked"],
        "workload": {"requests_per_second": 0.221, "prompt_tokens": {"mean": 898, "p95": 3097},
                     "output_tokens": {"mean": 1315, "p95": 2739}, "arrival_cv": 3},
        "slo": {"ttft_ms": 5738, "e2e_ms": 10802, "percentile": 80},
        "limits": {"max_gpus": 64, "spare_replicas": 0, "target_utilization": 0.59,
                   "max_tensor_parallel": 4}},
    "small limit for gaps": {
        "model": "deepseek-v2-lite", "gpus": ["l4"], "setups": ["colocated"],
        "workload": {"requests_per_second": 94.3, "prompt_tokens": {"mean": 8120, "p95": 29031},
                     "output_tokens": {"mean": 65, "p95": 95}},
        "slo": {"itl_ms": 46, "e2e_ms": 6335, "percentile": 90},
        "limits": {"spare_replicas": 0, "target_utilization": 0.87, "max_tensor_parallel": 4,
                   "max_gpus": 10_000}},
    # A handful of sequences: every batch size has a step of its own.
    "few sequences": {
        "model": "gemma-4-26b-a4b", "gpus": ["b200-sxm-180gb"], "setups": ["colocated"],
        "workload": {"requests_per_second": 1.39, "prompt_tokens": {"mean": 663, "p95": 1324},
                     "output_tokens": [{"tokens": 583, "share": 0.2},
                                       {"tokens": 594, "share": 0.8}]},
        "slo": {"ttft_ms": 4541, "e2e_ms": 5044, "percentile": 95},
        "limits": {"target_utilization": 0.62, "regions": 2}},
    "few sequences, gaps": {
        "model": "gemma-4-26b-a4b", "gpus": ["h200-sxm-141gb"], "setups": ["chunked"],
        "workload": {"requests_per_second": 6, "prompt_tokens": 1945, "arrival_cv": 1.5,
                     "output_tokens": [{"tokens": 176, "share": 0.2}, {"tokens": 733, "share": 0.5},
                                       {"tokens": 1183, "share": 0.3}],
                     "prefix_cache_hit_rate": 0.26},
        "slo": {"itl_ms": 59, "e2e_ms": 5899, "percentile": 80},
        "limits": {"spare_replicas": 2, "target_utilization": 0.76}},
    # A percentile of first tokens between a long prompt and waits.
    "long first tokens": {
        "model": "gpt-oss-120b", "gpus": ["gb200-nvl72"], "setups": ["colocated"],
        "workload": {"requests_per_second": 4.79, "prompt_tokens": {"p50": 10547, "p95": 50259},
                     "output_tokens": [{"tokens": 1457, "share": 0.3},
                                       {"tokens": 198, "share": 0.4},
                                       {"tokens": 124, "share": 0.3}]},
        "slo": {"ttft_ms": 4240, "tpot_ms": 99, "percentile": 90},
        "limits": {"target_utilization": 0.59}},
    # Prompts alone would fill few decodes, not many.
    "short prompts, many experts": {
        "model": "gemma-4-26b-a4b", "gpus": ["h100-sxm-80gb"], "setups": ["chunked"],
        "workload": {"requests_per_second": 182, "prompt_tokens": {"mean": 37, "p95": 110},
                     "output_tokens": 60, "arrival_cv": 0.8},
        "slo": {"itl_ms": 40, "e2e_ms": 10400, "percentile": 95},
        "limits": {"max_tensor_parallel": 1, "spare_replicas": 0, "target_utilization": 0.63}},
    # Many wait for a place, and TTFT allows it.
    "waits for a place": {
        "model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "setups": ["disaggregated"],
        "workload": {"requests_per_second": 10, "prompt_tokens": 1000, "arrival_cv": 2,
                     "output_tokens": {"mean": 200, "p95": 600}},
        "slo": {"ttft_ms": 4000, "percentile": 90},
        "limits": {"max_sequences": 2, "max_gpus": 5000, "spare_replicas": 0}},
    "waits for one place": {
        "model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "setups": ["disaggregated"],
        "workload": {"requests_per_second": 10, "prompt_tokens": 1000, "output_tokens": 50},
        "slo": {"ttft_ms": 10_000, "percentile": 90}, "limits": {"max_sequences": 1}},
    "waits for a place, whole requests": {
        "model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "setups": ["disaggregated"],
        "workload": {"requests_per_second": 20, "prompt_tokens": 1000, "arrival_cv": 1.5,
                     "output_tokens": {"mean": 200, "p95": 400}},
        "slo": {"ttft_ms": 1500, "e2e_ms": 12_000, "percentile": 95},
        "limits": {"max_sequences": 8, "max_gpus": 5000, "max_tensor_parallel": 1}},
    # A smaller limit has fewer gaps with a prefill, and a shorter stall at the level.
    "share of stalled gaps": {
        "model": "ai21-jamba-mini-1.5", "gpus": ["h100-sxm-80gb", "mi300x"],
        "setups": ["colocated"],
        "workload": {"requests_per_second": 18.7, "prompt_tokens": 11909,
                     "output_tokens": {"mean": 51, "p95": 85}},
        "slo": {"ttft_ms": 1811, "itl_ms": 53, "percentile": 50},
        "limits": {"max_gpus": 512, "spare_replicas": 0, "target_utilization": 0.56,
                   "max_sequences": 128}},
    "stall of a long prompt": {
        "model": "dbrx", "gpus": ["h100-sxm-80gb"], "setups": ["colocated"],
        "workload": {"requests_per_second": 132, "prompt_tokens": {"mean": 1394, "p95": 5099},
                     "output_tokens": [{"tokens": 15, "share": 0.52}, {"tokens": 12, "share": 0.27},
                                       {"tokens": 7, "share": 0.21}]},
        "slo": {"ttft_ms": 4654, "tpot_ms": 64, "itl_ms": 66, "percentile": 80},
        "limits": {"spare_replicas": 0, "target_utilization": 0.78}},
    # The step jumps by a fifth where a tile of the experts' rows is full.
    "percentile at a jump": {
        "model": "mixtral-8x7b-v0.1", "gpus": ["b200-sxm-180gb"], "setups": ["chunked"],
        "workload": {"requests_per_second": 773, "prompt_tokens": 257, "output_tokens": 381,
                     "arrival_cv": 1.5, "prefix_cache_hit_rate": 0.83},
        "slo": {"tpot_ms": 29, "percentile": 99},
        "limits": {"spare_replicas": 0, "target_utilization": 0.55, "max_tensor_parallel": 8,
                   "max_gpus": 1_000_000},
        "precisions": [{"weights": "fp8", "kv": "fp8"}]},
    "thousands of replicas": {
        "model": "dbrx", "gpus": ["a10g"], "setups": ["colocated"],
        "workload": {"requests_per_second": 800, "prompt_tokens": {"mean": 182, "p95": 225},
                     "output_tokens": 761, "arrival_cv": 0.8, "prefix_cache_hit_rate": 0.2},
        "slo": {"ttft_ms": 600, "tpot_ms": 100, "itl_ms": 200, "percentile": 99},
        "limits": {"max_gpus": 1_000_000, "target_utilization": 0.96}},
    # The simulation adds a replica to those that the formulas find.
    "more replicas by simulation": {
        "model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "setups": ["chunked"], "verify": True,
        "workload": {"requests_per_second": 2, "prompt_tokens": {"mean": 1000, "p95": 3000},
                     "output_tokens": {"mean": 200, "p95": 700}},
        "slo": {"ttft_ms": 8000, "itl_ms": 60},
        "limits": {"max_sequences": 2, "target_utilization": 0.99}},
}


@pytest.mark.parametrize("name", list(REQUESTS))
def test_the_summary_is_that_of_the_plan(name: str) -> None:
    request = {**REQUESTS[name], "advice": False}
    plan = make(parse_plan(request), CATALOG)
    best = plan.document["recommended"]
    book = read(write_plan(plan.document, plan.points, plan.snapshot))
    if request.get("verify"):
        assert best["verification"]["added_replicas"] > 0
    assert named(book, "out_gpus") == best["gpus"]
    regions = request["limits"].get("regions", 1)
    assert named(book, "out_replicas") == regions * sum(p["replicas"] for p in best["pools"])
    assert named(book, "out_nodes") == best["nodes"]
    assert math.isclose(named(book, "out_usd_per_hour"), best["usd_per_hour"], rel_tol=1e-9)
    for metric in ("ttft", "tpot"):
        assert math.isclose(named(book, f"out_{metric}_ms"),
                            latency(best, request["slo"], metric), rel_tol=0.005), metric
