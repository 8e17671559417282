"""Plans of the shipped catalog, of every kind that a workbook must show."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.catalog.shipped import shipped_catalog

CATALOG = shipped_catalog()
REQUEST: dict[str, Any] = {
    "name": "Support chat", "model": "llama-3.1-8b",
    "workload": {"requests_per_second": 12, "prompt_tokens": {"mean": 2000, "p95": 6000},
                 "output_tokens": 300},
    "slo": {"ttft_ms": 1000, "tpot_ms": 50, "percentile": 90},
    "gpus": ["h100-sxm-80gb", "l40s"], "setups": ["colocated", "disaggregated"],
    "limits": {"max_gpus": 256, "max_tensor_parallel": 2, "spare_replicas": 1},
}
PlanParts = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def plain() -> PlanParts:
    """An ordinary plan; a copy, so that a test may change it."""
    return copy.deepcopy(_plain())


@functools.cache
def _plain() -> PlanParts:
    return parts()


def parts(**changes: Any) -> PlanParts:
    """Document, points and snapshot of the request with some fields changed."""
    plan = make(parse_plan({**REQUEST, **changes}), CATALOG)
    return plan.document, plan.points, plan.snapshot


def impossible() -> PlanParts:
    """A plan that nothing can meet."""
    return parts(slo={"ttft_ms": 1, "tpot_ms": 50}, setups=["colocated"])


def two_kinds() -> PlanParts:
    """A plan whose recommended option has two pools on two GPU types."""
    document, points, snapshot = plain()
    mixed = next(o for o in document["options"] if len(o["gpus_by_kind"]) == 2)
    return {**document, "recommended": mixed}, points, snapshot


def unpriced() -> PlanParts:
    """A plan whose commitment has no rows, so that nothing has a price."""
    return parts(setups=["colocated"], pricing={"commitment": "owned"})


def measured() -> PlanParts:
    """A plan of measured workers, which has no latencies, layouts or points."""
    return parts(measured={"prefill": {"requests_per_second": 5.6},
                           "decode": {"requests_per_second": 10}})


def own_words() -> PlanParts:
    """A rate per day, median lengths, a list of lengths, a percentile for each target."""
    return parts(setups=["colocated"], slo={"e2e_ms": 30000, "e2e_percentile": 95,
                                            "ttft_ms": 2000, "ttft_percentile": 99},
                 workload={"requests_per_day": 500000, "peak_hour_share": 0.08,
                           "prompt_tokens": {"p50": 1500, "p95": 6000},
                           "output_tokens": [{"tokens": 100, "share": 1},
                                             {"tokens": 500, "share": 1}]})


def many() -> PlanParts:
    """Forty options."""
    document, points, snapshot = plain()
    document["options"] = [{**document["options"][0], "rank": i} for i in range(1, 41)]
    return document, points, snapshot


KINDS: dict[str, Callable[[], PlanParts]] = {
    "plain": plain, "impossible": impossible, "two kinds": two_kinds, "unpriced": unpriced,
    "measured": measured, "own words": own_words, "many": many}
