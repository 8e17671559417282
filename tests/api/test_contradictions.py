"""Fields that are allowed by themselves and contradict one another are refused with a pointer."""

from __future__ import annotations

from typing import Any

import pytest

from planner.api.estimate_schema import parse_estimate
from planner.api.plan_checks import check_estimate, check_plan
from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.api.validation import InvalidDocument
from planner.catalog.shipped import shipped_catalog
from planner.errors import InvalidValue
from planner.sweeps.grid import checked_grid
from planner.sweeps.tasks import plan_cell

CATALOG = shipped_catalog()
BASE: dict[str, Any] = {
    "model": "llama-3.1-8b", "advice": False, "slo": {"tpot_ms": 50, "ttft_ms": 1000},
    "gpus": ["h100-sxm-80gb"], "setups": ["colocated"],
    "workload": {"requests_per_second": 2, "prompt_tokens": 1000, "output_tokens": 200}}
DRAFT = {"draft_tokens": 4, "acceptance": 0.7}


@pytest.mark.parametrize(("changes", "pointer", "words"), [
    ({"limits": {"max_tensor_parallel": 2, "layouts": [{}, {"tensor_parallel": 8}]}},
     "/limits/layouts/1/tensor_parallel", "max_tensor_parallel, 2"),
    ({"limits": {"max_pipeline_parallel": 1, "layouts": [{"pipeline_parallel": 2}]}},
     "/limits/layouts/0/pipeline_parallel", "max_pipeline_parallel, 1"),
    ({"power_cap_w": 2000}, "/power_cap_w", "h100-sxm-80gb, 700 W"),
    ({"power_cap_w": 701, "gpus": ["l40s", "h100-sxm-80gb"]}, "/power_cap_w", "700 W"),
    ({"engine": "tensorrt-llm", "gpus": ["mi300x"]}, "/gpus/0", "NVIDIA GPUs only"),
    ({"engine": "tensorrt-llm", "gpus": ["inferentia2", "mi300x"]}, "/gpus/0", "NVIDIA GPUs only"),
    ({"engine": "vllm-h100-sxm-80gb-fp8", "gpus": ["mi300x"]}, "/gpus/0", "one of AMD"),
    ({"engine": "vllm-hopper-any", "gpus": ["mi300x"]}, "/gpus/0", "one of AMD"),
    ({"speculative": {**DRAFT, "draft_model": "qwen3-0.6b"}}, "/speculative/draft_model",
     "151,936 tokens and llama-3.1-8b one of 128,256"),
])
def test_a_contradiction_is_refused(changes: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        check_plan(parse_plan({**BASE, **changes}), CATALOG)
    assert refused.value.pointer == pointer
    assert words in refused.value.message


@pytest.mark.parametrize("changes", [
    {"limits": {"layouts": [{"tensor_parallel": 16}]}},  # the bound is the usual one
    {"limits": {"max_tensor_parallel": 2, "layouts": [{"tensor_parallel": 2}]}},
    {"power_cap_w": 700}, {"power_cap_w": 600, "gpus": ["l40s", "h100-sxm-80gb"]},
    {"engine": "tensorrt-llm", "gpus": ["mi300x", "h100-sxm-80gb"]},
    {"engine": "vllm-h100-sxm-80gb-fp8", "gpus": ["h200-sxm-141gb"]},
    {"engine": "vllm", "gpus": ["mi300x"]},
    {"speculative": {**DRAFT, "draft_model": "llama-3.2-1b"}}, {"speculative": DRAFT},
    {"model": "qwen2.5-14b", "speculative": {**DRAFT, "draft_model": "qwen2.5-0.5b"}},
])
def test_what_may_be_meant_is_let_through(changes: dict[str, Any]) -> None:
    check_plan(parse_plan({**BASE, **changes}), CATALOG)


def test_gpus_that_an_engine_does_not_run_on_are_named() -> None:
    request = {**BASE, "engine": "tensorrt-llm", "gpus": ["mi300x", "h100-sxm-80gb"]}
    document = make(parse_plan(request), CATALOG).document
    assert {p["gpu"] for o in document["options"] for p in o["pools"]} == {"h100-sxm-80gb"}
    [row] = [r for r in document["infeasible"] if r["gpu"] == "mi300x"]
    assert (row["reason"], "NVIDIA" in row["detail"]) == ("engine", True)


def test_estimates_too() -> None:
    asked = {"model": "llama-3.1-8b", "gpu": "mi300x", "batch": {"decodes": 8,
                                                                "context_tokens": 100}}
    check_estimate(parse_estimate(asked), CATALOG)
    for changes, pointer in (({"engine": "tensorrt-llm"}, "/gpu"),
                             ({"power_cap_w": 2000}, "/power_cap_w")):
        with pytest.raises(InvalidValue) as refused:
            check_estimate(parse_estimate({**asked, **changes}), CATALOG)
        assert refused.value.pointer == pointer


@pytest.mark.parametrize(("base", "grid", "pointer", "words"), [
    ({"gpus": "\u0000"}, {"gpus": [["l4"], ["l40s"]]}, "/base/gpus", "must be a list"),
    ({"workload": {**BASE["workload"], "requests_per_second": "x"}},
     {"workload.requests_per_second": [1, 2]}, "/base/workload/requests_per_second", "number"),
    ({}, {"gpus.0": ["l4"]}, "/grid/gpus.0", "lists as the values of gpus"),
    ({}, {"workload.prompt_tokens.0.tokens": [1]}, "/grid/workload.prompt_tokens.0.tokens",
     "values of workload.prompt_tokens"),
    ({}, {"workload.requests_per_second": [1, 2, 1]}, "/grid/workload.requests_per_second/2",
     "same as value 0"),
    ({}, {"model": ["llama-3.1-8b", "llama-3.1-8b"]}, "/grid/model/1", "same as value 0"),
    ({}, {"slo": [{"tpot_ms": 50}, {"tpot_ms": 50}]}, "/grid/slo/1", "same as value 0"),
])
def test_a_sweep_is_refused(base: dict[str, Any], grid: dict[str, Any], pointer: str, words: str
                            ) -> None:
    with pytest.raises(InvalidValue) as refused:
        checked_grid({**BASE, **base}, grid, CATALOG, 1000)
    errors = refused.value.errors if isinstance(refused.value, InvalidDocument) else [
        (refused.value.pointer, refused.value.message)]
    assert [p for p, m in errors if words in m] == [pointer]


def test_a_cell_that_contradicts_itself_is_a_row() -> None:
    """Other cells of the sweep may go together."""
    grid = checked_grid({**BASE, "engine": "tensorrt-llm", "power_cap_w": 500},
                        {"gpus": [["mi300x"], ["l40s"], ["h100-sxm-80gb"]]}, CATALOG, 1000)
    rows = [plan_cell(grid, grid.combination(cell), CATALOG)[0] for cell in range(grid.cells)]
    assert ["NVIDIA GPUs only" in str(row) for row in rows] == [True, False, False]
    assert ["power_cap_w" in str(row) for row in rows] == [False, True, False]
