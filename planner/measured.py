"""Pools whose workers were measured: exact whole numbers from their rates, no roofline.

DistServe (OSDI 2024) figure 1: prefill workers of 5.6 and decode workers of 10 requests/s want two
prefills per decode, 3.3 requests/s per GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.catalog.book import PriceChoice
from planner.describe import price_document
from planner.errors import InvalidValue, SloUnreachable
from planner.requests import CurvePoint, Layout, MeasuredWorker, PlanRequest
from planner.sizing import Miss, Resources
from planner.units import SECONDS_PER_HOUR, TOKENS_PER_MILLION
from planner.wording import gpus as gpus_text
from planner.workload import Workload


def worker_rate(role: str, worker: MeasuredWorker, workload: Workload) -> float:
    """Requests/s of one worker within the targets: as stated, or the best point of its curve.

    Prefill: ``B / TTFT``. Decode: ``B / (TPOT (o - 1))``. Both in one, by Little's law:
    ``N / (TTFT + TPOT (o - 1))``. A point counts when its TTFT and TPOT are within the targets.

    Raises
    ------
    SloUnreachable
        When no point of the curve is within the targets.
    """
    if worker.requests_per_s is not None:
        return worker.requests_per_s
    rates = [_point_rate(role, point, workload) for point in worker.curve
             if _within(point, workload)]
    if not rates:
        raise SloUnreachable(f"no measured point of the {role} worker is within the targets",
                             f"/measured/{role}/points")
    return max(rates)


def _within(point: CurvePoint, workload: Workload) -> bool:
    seen = {"tpot": point.tpot_s, "itl": point.tpot_s, "ttft": point.ttft_s}
    values = [(seen.get(slo.metric), slo.limit_s) for slo in workload.targets]
    return all(value is None or value <= limit for value, limit in values)


def _point_rate(role: str, point: CurvePoint, workload: Workload) -> float:
    tokens = max(workload.output.mean - 1.0, 1.0)
    decode_s = (point.tpot_s or 0.0) * tokens
    prefill_s = point.ttft_s or 0.0
    seconds = {"prefill": prefill_s, "decode": decode_s}.get(role, prefill_s + decode_s)
    if seconds <= 0:
        needed = {"prefill": "ttft_ms", "decode": "tpot_ms"}.get(role, "ttft_ms and tpot_ms")
        raise InvalidValue(f"a {role} worker's points need {needed}", f"/measured/{role}/points")
    return point.batch / seconds


def replicas_for(rate_per_s: float, worker_rps: float, utilization: float) -> int:
    """Fewest workers of ``worker_rps`` [1/s] that carry a rate [1/s] at a target utilisation."""
    return max(1, math.ceil(rate_per_s / (worker_rps * utilization) - 1e-9))


def whole_ratio(prefill_rps: float, decode_rps: float, prefill_gpus: int = 1,
                decode_gpus: int = 1) -> tuple[int, int, float]:
    """The smallest cell in which neither kind of worker holds the faster one back.

    One worker of the faster kind and as many of the other as feed it.

    Returns
    -------
    tuple
        Prefill workers, decode workers, requests/s per GPU of the cell.

    Examples
    --------
    >>> p, d, goodput = whole_ratio(5.6, 10.0)
    >>> p, d, round(goodput, 2)
    (2, 1, 3.33)
    """
    p = max(1, math.ceil(decode_rps / prefill_rps - 1e-9))
    d = max(1, math.ceil(prefill_rps / decode_rps - 1e-9))
    rate = min(p * prefill_rps, d * decode_rps)
    return p, d, rate / (p * prefill_gpus + d * decode_gpus)


def measured_options(request: PlanRequest, resources: Resources, prices: Mapping[str, PriceChoice]
                     ) -> tuple[list[dict[str, Any]], list[Miss]]:
    """The option of a request that gives its workers' measured rates, or why there is none.

    The workers are of the first GPU named; latencies are not predicted.

    Raises
    ------
    InvalidValue
        When the roles are neither ``serve`` nor ``prefill`` and ``decode`` together.
    """
    roles = set(request.measured)
    if roles not in ({"serve"}, {"prefill", "decode"}):
        raise InvalidValue("give either serve, or prefill and decode together", "/measured")
    gpu = resources.gpus[0]
    pools = [_pool(request, role, gpu.slug) for role in ("serve", "prefill", "decode")
             if role in roles]
    regions = request.limits.regions
    gpus = regions * sum(p["gpus"] for p in pools)
    option: dict[str, Any] = {
        "rank": 1, "setup": "disaggregated" if len(pools) == 2 else "colocated",
        "weights": resources.llm.native_precision, "kv": resources.llm.native_kv, "gpus": gpus,
        "gpus_by_kind": {gpu.slug: gpus}, "nodes": math.ceil(gpus / gpu.node_gpus),
        "regions": regions, "pools": pools, "limited_by": "throughput",
        **{f"{m}_ms": dict.fromkeys(("mean", "p50", "p90", "p95", "p99"))
           for m in ("ttft", "tpot", "itl", "e2e")},
        "goodput_rps_per_gpu": min(p["capacity_rps"] * p["replicas"] for p in pools)
        * regions / gpus,
        "gpus_in_whole_nodes": math.ceil(gpus / gpu.node_gpus) * gpu.node_gpus,
        "limited_by_pool": max(pools, key=lambda p: p["gpus"])["role"], "headroom": {},
        "warnings": [],
        "bound": None, "prices": [price_document(p) for p in prices.values()
                                  if p.price.gpu == gpu.slug],
        "power_kw": gpus * gpu.tdp_w / 1e3 if gpu.tdp_w else None,
        "confidence": {"level": "measured", "tpot_error": 0.0, "gpus_low": gpus,
                       "gpus_high": gpus},
        **_money(request, gpus, prices.get(gpu.slug)),
    }
    if len(pools) == 2:
        p, d, goodput = whole_ratio(*(pool["capacity_rps"] for pool in pools),
                                    *(pool["gpus_per_replica"] for pool in pools))
        option["whole_ratio"] = {"prefill": p, "decode": d, "goodput_rps_per_gpu": goodput}
    if gpus > request.limits.max_gpus:
        return [], [Miss(option["setup"], gpu.slug, Layout(pools[0]["gpus_per_replica"]),
                         option["weights"], "max_gpus",
                         f"needs {gpus_text(gpus)}, {gpus - request.limits.max_gpus} more than "
                         "max_gpus")]
    return [option], []


def _pool(request: PlanRequest, role: str, gpu: str) -> dict[str, Any]:
    worker = request.measured[role]
    rate = request.workload.requests_per_s
    capacity = worker_rate(role, worker, request.workload)
    needed = replicas_for(rate, capacity, request.limits.target_utilization)
    spare = request.limits.spare_replicas
    return {"role": role, "gpu": gpu, "tensor_parallel": None, "pipeline_parallel": None,
            "expert_parallel": None, "data_parallel": None, "gpus_per_replica": worker.gpus,
            "replicas": needed + spare,
            "spare_replicas": spare, "gpus": (needed + spare) * worker.gpus, "batch_size": None,
            "token_budget": None, "requests_per_s_per_replica": rate / needed,
            "capacity_rps": capacity, "engine": None, "memory": None,
            "utilization": rate / (needed * capacity)}


def _money(request: PlanRequest, gpus: int, choice: PriceChoice | None) -> dict[str, float | None]:
    names = ("usd_per_hour", "usd_per_month", "usd_per_request", "usd_per_million_tokens",
             "usd_per_million_input_tokens", "usd_per_million_output_tokens")
    if choice is None:
        return dict.fromkeys(names)
    hourly = gpus * float(choice.price.usd_per_gpu_hour)
    workload = request.workload
    per_request = hourly / ((workload.mean_requests_per_s or workload.requests_per_s)
                            * SECONDS_PER_HOUR)
    tokens = workload.prompt.mean + workload.output.mean
    return dict(zip(names, (hourly, hourly * request.pricing.utilization_hours_per_month,
                            per_request, per_request / tokens * TOKENS_PER_MILLION, None,
                            None), strict=True))
