"""A plan in short: the best option of each setup and its price, without advice or documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.catalog.book import Catalog, PriceChoice
from planner.contexts import beyond_message, noted_share
from planner.cost import fleet_cost
from planner.describe import latency_ms, warnings
from planner.fleet import Fleet
from planner.planning import plan_in_short
from planner.profile_scope import confidence_of
from planner.report import layout
from planner.requests import PlanRequest
from planner.sizing import Miss

RESULTS: dict[str, type] = {
    "setup": str, "status": str, "best": bool, "gpus": int, "nodes": int, "replicas": int,
    "layout": str, "weights": str, "kv": str, "utilization": float, "usd_per_hour": float,
    "usd_per_month": float, "usd_per_million_tokens": float, "power_kw": float,
    "ttft_p50_ms": float, "ttft_p90_ms": float, "ttft_p99_ms": float, "tpot_p50_ms": float,
    "tpot_p90_ms": float, "tpot_p99_ms": float, "e2e_p50_ms": float, "e2e_p90_ms": float,
    "e2e_p99_ms": float, "confidence": str, "reason": str, "detail": str,
}
"""Columns of a row and what they hold; any may be null."""
Row = dict[str, Any]


def lean_document(rank: int, fleet: Fleet, request: PlanRequest,
                  prices: Mapping[str, PriceChoice]) -> dict[str, Any]:
    """What a row shows of an option, by the names of ``planner.describe.option_document``."""
    sized, seen = fleet.sized, fleet.sized.latencies
    usd = {slug: float(p.price.usd_per_gpu_hour) for slug, p in prices.items()}
    power = fleet.power_kw(request.power_cap_w)
    cost = fleet_cost(fleet, request, usd, power)
    return {
        "rank": rank, "setup": sized.setup, "weights": sized.weights, "kv": sized.kv,
        "gpus": fleet.gpus, "nodes": fleet.nodes,
        "pools": [{"replicas": p.replicas, "gpu": d.gpu.slug, "tensor_parallel": d.layout.tensor,
                   "pipeline_parallel": d.layout.pipeline, "expert_parallel": d.layout.expert,
                   "data_parallel": d.layout.data, "utilization": p.utilization}
                  for p in fleet.pools for d in (p.pool.deployment,)],
        "ttft_ms": latency_ms(seen.ttft_s), "tpot_ms": latency_ms(seen.tpot_s),
        "e2e_ms": latency_ms(seen.e2e_s), "usd_per_hour": cost.usd_per_hour,
        "usd_per_month": cost.usd_per_month,
        "usd_per_million_tokens": cost.usd_per_million_tokens, "power_kw": power,
        "warnings": warnings(seen, request) + _too_long(fleet, request),
        "confidence": confidence_of([p.pool.deployment for p in fleet.pools]),
    }


def _too_long(fleet: Fleet, request: PlanRequest) -> list[str]:
    """That some requests are longer than the model's context, where they are."""
    llm = fleet.sized.pools[0].deployment.llm
    share = noted_share(request.workload, llm)
    return [beyond_message(share, llm)] if share else []


def cell_rows(request: PlanRequest, catalog: Catalog) -> list[Row]:
    """One row a setup of a request: its best option, or why there is none.

    Parameters
    ----------
    request : PlanRequest
        Checked against the catalog.
    catalog : Catalog
    """
    options, missed = plan_in_short(request, catalog, lean_document)
    found: dict[str, dict[str, Any]] = {}
    for option in options:
        found.setdefault(option["setup"], option)
    first = options[0]["setup"] if options else None
    setups = dict.fromkeys((*request.setups, *found)) if not request.measured else found
    rows = [_planned(found[s], s == first) if s in found else _missed(s, missed) for s in setups]
    return rows or [_missed(None, missed)]


def _planned(option: Mapping[str, Any], best: bool) -> Row:
    pools = option["pools"]
    latencies = {f"{metric}_{q}_ms": (option[f"{metric}_ms"] or {}).get(q)
                 for metric in ("ttft", "tpot", "e2e") for q in ("p50", "p90", "p99")}
    used = [p["utilization"] for p in pools if p.get("utilization") is not None]
    return {**{k: option[k] for k in ("setup", "weights", "kv", "gpus", "nodes", "usd_per_hour",
                                      "usd_per_month", "usd_per_million_tokens", "power_kw")},
            "status": "planned", "best": best, "replicas": sum(p["replicas"] for p in pools),
            "layout": " + ".join(map(layout, pools)), "utilization": max(used, default=None),
            "confidence": option["confidence"]["level"], **latencies,
            "detail": " ".join(option.get("warnings") or []) or None}


def _missed(setup: str | None, missed: list[Miss]) -> Row:
    """The miss that was nearest to working; the first of equals."""
    own = [m for m in missed if setup in (None, m.setup)]
    nearest = min(own, key=lambda m: m.over, default=None)
    why = {} if nearest is None else {"reason": nearest.reason, "detail": nearest.detail}
    return {"setup": setup, "status": "infeasible", "best": False, **why}


def refused_row(code: str, detail: str) -> Row:
    """The row of a cell whose request cannot be used."""
    return {"setup": None, "status": "refused", "best": False, "reason": code, "detail": detail}
