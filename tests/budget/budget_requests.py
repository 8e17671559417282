"""Budgets that the tests share, and ways to make them."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from planner.api.budget_schema import parse_budget
from planner.api.budget_service import MadeBudget, make
from planner.budget.budget import BudgetResult, make_budget
from planner.catalog.book import Catalog
from planner.catalog.shipped import shipped_catalog

SMALL: dict[str, Any] = {
    "model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "setups": ["chunked"],
    "limits": {"layouts": [{"tensor_parallel": 1}], "token_budgets": [2048]},
    "workload": {"requests_per_second": 20, "prompt_tokens": {"mean": 1000, "p95": 3000},
                 "output_tokens": 200},
    "slo": {"ttft_ms": 1000, "tpot_ms": 50}}
IMPOSSIBLE = {**SMALL, "name": "too fast", "slo": {"ttft_ms": 0.5, "tpot_ms": 0.5}}


def workload(**changes: Any) -> dict[str, Any]:
    """A small plan request with changes; ``rate`` and ``cv`` reach into its workload."""
    made = copy.deepcopy(SMALL)
    for key, name in (("rate", "requests_per_second"), ("cv", "arrival_cv"),
                      ("prompt", "prompt_tokens"), ("output", "output_tokens")):
        if key in changes:
            made["workload"][name] = changes.pop(key)
    made |= changes
    if "chunked" not in made["setups"]:  # chunk budgets go with no other setup
        made["limits"] = {k: v for k, v in made["limits"].items() if k != "token_budgets"}
    return made


def request(*workloads: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A budget request over twelve months of 2027."""
    return {"start": "2027-01", "workloads": list(workloads) or [workload()], **changes}


@cache
def catalog() -> Catalog:
    return shipped_catalog()


def budget(*workloads: dict[str, Any], **changes: Any) -> BudgetResult:
    return make_budget(parse_budget(request(*workloads, **changes)), catalog())


def made(*workloads: dict[str, Any], **changes: Any) -> MadeBudget:
    return make(parse_budget(request(*workloads, **changes)), catalog())
