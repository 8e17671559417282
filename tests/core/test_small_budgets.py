"""Token budgets that leave no room for a chunk are told from a memory that is full."""

from __future__ import annotations

import pytest

from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.catalog.shipped import shipped_catalog


@pytest.mark.parametrize(("budgets", "gpu", "reason"), [
    ([1], "h100-sxm-80gb", "token_budget"), ([16], "h100-sxm-80gb", "token_budget"),
    ([1], "l4", "memory"), ([1, 2048], "h100-sxm-80gb", None)])
def test_the_reason_names_what_is_short(budgets: list[int], gpu: str, reason: str | None) -> None:
    model = "llama-3.1-8b" if gpu.startswith("h100") else "llama-3.1-70b"
    plan = make(parse_plan({
        "model": model, "gpus": [gpu], "setups": ["chunked"], "advice": False,
        "workload": {"requests_per_second": 2, "prompt_tokens": 500, "output_tokens": 100},
        "slo": {"ttft_ms": 2000, "tpot_ms": 60},
        "limits": {"token_budgets": budgets, "layouts": [{"tensor_parallel": 1}]}}),
        shipped_catalog()).document
    assert [row["reason"] for row in plan["infeasible"]] == ([reason] if reason else [])
    if reason == "token_budget":
        assert "no token budget leaves room" in plan["infeasible"][0]["detail"]
